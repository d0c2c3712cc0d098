"""Tests and measures the CUDA backend, in units of work in order of worth; scripts/gpu_check.sh
starts it and says what its options mean.

What was measured lies in <output>/results.tar.gz, which the next call goes on from, with report.md
and report.json beside it: three files. Exit status: 0 all was measured, 1 something failed, 3 the
budget was used up before all was measured.
"""

import argparse
import datetime
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..repository import ROOT
from . import gpu_check_report
from .sitting.budget import Budget, seconds_of
from .sitting.results import ARCHIVE, Results, pack, unpack
from .sitting.runner import Runner
from .sitting.units import SIZES, STAGES, Setup, Units

LEFT = 3  # exit status: the budget was used up
GPU = "name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory"


def printed(*call):
    """Lines that a program prints; none without it."""
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def machine_lines(args):
    now = datetime.datetime.now(datetime.timezone.utc)
    dry = " (dry run: tiny shapes, no GPU figures)" if args.tiny else ""
    yield f"commit: {args.commit}"
    yield f"command: {args.invocation}"
    yield f"date: {now:%Y-%m-%dT%H:%MZ}"
    yield f"backend: {args.device}{dry}"
    yield f"kernel: {platform.system()} {platform.release()}"
    for gpu in printed("nvidia-smi", f"--query-gpu={GPU}", "--format=csv,noheader"):
        yield f"gpu: {gpu}"
    for line in printed("nvcc", "--version"):
        if line.startswith("Build"):
            yield f"nvcc: {line}"


def made_by(args):
    """What figures are of: this code on such a GPU."""
    gpu = printed("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    device = gpu[0].strip() if gpu and args.device == "cuda" else args.device
    return f"{args.commit} on {device}"


def setup_of(args):
    within = []  # of our own programs only: another one, such as Python, brings its own libraries
    if args.library_path:
        within = ["env", f"LD_LIBRARY_PATH={args.library_path}"]
    return Setup(
        device=args.device,
        tiny=args.tiny,
        root=ROOT,
        report=(*within, args.report_program),
        tests=(*within, args.tests_program),
        python=args.python,
        sizes=args.sizes,
    )


def among(accepted):
    """For argparse: a list of them, separated by commas."""

    def parse(text):
        chosen = tuple(text.split(","))
        for one in chosen:
            if one not in accepted:
                raise argparse.ArgumentTypeError(f"'{one}' is not one of: {' '.join(accepted)}")
        return chosen

    return parse


def parsed(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--from", dest="earlier", type=Path, help="an archive to go on from where --output has none"
    )
    parser.add_argument("--budget", type=seconds_of, help="such as 9m; default: no end")
    parser.add_argument("--spent", type=float, default=0, help="seconds that already passed")
    parser.add_argument("--again", choices=["failed", "all"], help="units to run once more")
    parser.add_argument("--stages", type=among(STAGES), default=STAGES)
    parser.add_argument("--sizes", type=among(SIZES), default=SIZES)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="shapes for a dry run on a CPU")
    parser.add_argument("--report-program", required=True, help="gpu_report")
    parser.add_argument("--tests-program", required=True, help="mpt_cuda_tests")
    parser.add_argument("--library-path", help="LD_LIBRARY_PATH of these two")
    parser.add_argument("--python", default="python3", help="interpreter with torch")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--invocation", default="")
    return parser.parse_args(arguments)


class Sitting:
    """A call: goes on from what there is in a directory of its own, and leaves the archive and the
    reports.
    """

    def __init__(self, args, raw, say=print):
        self.args, self.raw, self.say = args, raw, say
        self.archive = args.output / ARCHIVE
        if args.earlier and not args.earlier.exists():
            raise SystemExit(f"gpu_check.sh: error: {args.earlier}: no such archive")
        if self.archive.exists():
            if args.earlier and not args.earlier.samefile(self.archive):
                say(f"going on from {self.archive}, which is there already, not {args.earlier}")
            unpack(self.archive, raw)
        elif args.earlier:
            unpack(args.earlier, raw)
        self.results = Results(raw, made_by(args))
        setup = setup_of(args)
        self.units = [unit for unit in Units(setup).in_order() if unit.stage in args.stages]
        budget = Budget(args.budget, args.spent)
        self.runner = Runner(setup, self.results, budget, args.commit, say, self.save)

    def save(self):
        """After every unit: the call may be ended at any moment. Figures that the report does not
        understand are no reason to measure no more.
        """
        pack(self.raw, self.archive)
        self.no_report = ""
        try:
            gpu_check_report.write(self.raw, self.args.output)
        except Exception as problem:
            self.no_report = f"the report could not be made: {problem!r}"

    def run(self):
        (self.raw / "machine.txt").write_text("\n".join([*machine_lines(self.args), ""]))
        again = {"failed": ("failed",), "all": ("done", "failed")}.get(self.args.again, ())
        try:
            self.runner.run(self.units, again)
        finally:
            self.save()
        return self.verdict()

    def named(self, *states):
        return [u.name for u in self.units if self.results.of(u).get("state") in states]

    def verdict(self):
        failed, left = self.named("failed"), self.named("left", "cut off")
        done = len(self.named("done"))
        self.say(f"{done} of {len(self.units)} units are measured: {self.args.output}/report.md")
        if left:
            self.say(f"budget used up, {len(left)} units left: {' '.join(left)}")
            self.say(f"to go on, call again with --from {self.archive} or the same --output")
        if failed:
            self.say(f"{len(failed)} failed: {' '.join(failed)}; see raw/ in {self.archive}")
        if self.no_report:
            self.say(self.no_report)
        return 1 if failed or self.no_report else LEFT if left else 0


def main(arguments=None, say=None):
    args = parsed(arguments)
    args.output = args.output.resolve()
    args.output.mkdir(parents=True, exist_ok=True)
    raw = Path(tempfile.mkdtemp(prefix="gpu_check."))
    try:
        return Sitting(args, raw, say or (lambda text: print(text, flush=True))).run()
    finally:
        shutil.rmtree(raw, ignore_errors=True)
