"""How scripts start: which of several modules is meant, and what becomes of their user's
mistakes.
"""

import argparse
import importlib
import os
import select
import signal
import sys


def reported(main, *mistakes):
    """Exit status of main(). A mistake is one line on stderr and status 1, without a trace of our
    calls; nobody reading on, as with `| head`, is none.
    """
    try:
        try:
            status = main()
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            if has_no_reader(sys.stdout):
                return 128 + signal.SIGPIPE
            raise
    except mistakes as problem:
        print(f"{os.path.basename(sys.argv[0])}: error: {problem}", file=sys.stderr)
        return 1


def has_no_reader(pipe):
    """Whether the pipe's other end is closed. What it still holds is dropped then."""
    poll = select.poll()
    poll.register(pipe, 0)  # errors are told without being asked for
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())
    return True


def of_several(package, *mistakes):
    """Runs main() of the module that the first argument names, one of package.NAMES, with the
    arguments behind it. Of a package whose MODULES say where they are, modules name their own
    MISTAKES.
    """
    if sys.argv[1:2] and sys.argv[1] in package.NAMES:
        script, name, *arguments = sys.argv
        sys.argv = [f"{script} {name}", *arguments]  # so that usage and errors name it
        path = getattr(package, "MODULES", {}).get(name)
        module = importlib.import_module(
            f"{__package__}.{path}" if path else f"{package.__name__}.{name}"
        )
        return reported(module.main, *mistakes, *getattr(module, "MISTAKES", ()))
    parser = argparse.ArgumentParser(
        description=package.__doc__.split("\n\n")[0], epilog="NAME --help lists its options."
    )
    parser.add_argument(
        "name", metavar="NAME", choices=package.NAMES, help="one of " + ", ".join(package.NAMES)
    )
    parser.parse_args()
    return 2  # not reached: no argument is a name
