"""Ends a sweep in good order when it is asked to: programs save a checkpoint first, a second
request kills them.
"""

import contextlib
import os
import signal

HOW_TO_GO_ON = "Start it again with the same arguments to continue."


class Stopped(SystemExit):
    """The sweep was asked to stop and has; its code is that of a process that the signal ended."""


class Stop:
    """Whether the sweep was asked to stop, by SIGINT or SIGTERM to this process."""

    def __init__(self):
        self.signal = None
        self.advice = HOW_TO_GO_ON  # to whoever asked
        self._processes = set()

    def __bool__(self):
        return self.signal is not None

    def listen(self):
        """Takes over the signals; only the main thread can."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        return self

    @contextlib.contextmanager
    def passed_to(self, process):
        """While the process runs, which leads a group of its own, it is told to stop, too."""
        self._processes.add(process)
        try:
            if self:
                process.terminate()
            yield
        finally:
            self._processes.discard(process)

    def request(self, number=signal.SIGTERM):
        """Tells the programs to stop, as a signal does."""
        self.signal = number
        for process in list(self._processes):
            process.terminate()

    # Runs between any two instructions of the main thread: it takes no lock and prints past all
    # buffers.
    def _on_signal(self, number, _):
        if self and self._processes:
            _say(f"killing {len(self._processes)} cells")
            self._kill()
        elif self._processes:
            _say(
                f"stopping: {len(self._processes)} cells are saving a checkpoint and ending; a"
                " second signal kills them"
            )
            self.request(number)
        else:
            self.request(number)
            _say(f"stopped. {self.advice}")
            raise Stopped(128 + number)

    def _kill(self):
        for process in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _say(text):
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode())
