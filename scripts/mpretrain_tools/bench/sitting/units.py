"""What a sitting measures: units of work, each one measured command or a few that belong together,
in order of worth, and how long each takes.

Durations are estimates for an H200 and decide only what is started. Those of the tests, the
machine, steps of 350m and 1b and the peer at 350m are what calls on one took, and a little more.
"""

import dataclasses
import functools
import json
import pathlib
import shutil
import subprocess
import typing

STAGES = ("tests", "machine", "steps", "pairs", "optimizer", "sanitizer", "peer")
SIZES = ("350m", "1b", "60m", "130m")  # by worth
FORMATS = ("fp32", "bf16", "block_fp8", "nvfp4")
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = {
    "tests": 110,
    "machine": 20,
    "steps": {"60m": 35, "130m": 40, "350m": 65, "1b": 105},
    "pairs": {"60m": 35, "130m": 40, "350m": 55, "1b": 80},
    "optimizer": 12,
    "sanitizer": {"others": 80, "attention": 60},
    "peer": {"60m": 110, "130m": 120, "350m": 160, "1b": 220},
}
TINY_SECONDS = 5
# Steps that take a few seconds to half a minute on an H200 at the goal.
STEPS = {"60m": 100, "130m": 60, "350m": 30, "1b": 15}
# Of a model: what it is compared with, and itself.
PAIRS = {
    "fp8": ("bf16", "fp8"),
    "nvfp4": ("fp8", "nvfp4"),
    "m_plus_adam": ("bf16_adamw", "bf16"),
    "sr": ("bf16_adamw", "bf16_adamw_sr"),
    "kahan": ("bf16_adamw", "bf16_adamw_kahan"),
}
# compute-sanitizer makes tests tens of times slower. Left out: whole trainings, sweeps over every
# combination of optimizer and format, large matrices, and errors that tests provoke on purpose.
TOO_LONG = (
    "*Training*:*CudaRun*:*SameBits*Quarter:*Tuning*:*LargeEnough*:*Scratch*:*OutOfMemory*"
    ":*CannotRecord*:*MayGo*"
)
# An error in one test leaves no verdict on those after it, so the tests are in parts.
ATTENTION = "*Attention*:DocumentBias*"
PARTS = {"others": f"-{TOO_LONG}:{ATTENTION}", "attention": f"{ATTENTION}-{TOO_LONG}"}


@dataclasses.dataclass(frozen=True)
class Setup:
    """Where everything is. `tiny`: shapes that a CPU computes in a moment, for dry runs."""

    device: str
    tiny: bool
    root: pathlib.Path
    report: tuple[str, ...]  # gpu_report, with what its environment needs
    tests: tuple[str, ...]
    python: str  # that has torch
    sizes: tuple[str, ...] = SIZES


@dataclasses.dataclass(frozen=True)
class Command:
    """Leaves <name>.json, the figures that it prints, and <name>.log. `words` is given the
    directory of all of these.
    """

    name: str
    words: typing.Callable[[pathlib.Path], list]
    figures: bool = True  # else what it prints is for people, and goes to the log


@dataclasses.dataclass(frozen=True)
class Unit:
    name: str
    stage: str
    seconds: float
    commands: tuple[Command, ...]
    missing: str = ""  # why it cannot run here
    optional: bool = False  # then that is no failure

    @property
    def most_seconds(self):
        """What takes longer has hung."""
        return 3 * self.seconds + 60


class Units:
    def __init__(self, setup):
        self.setup = setup

    def in_order(self):
        first, *others = [size for size in SIZES if size in self.setup.sizes]
        yield self.tests()
        yield self.machine()
        yield self.steps(first)
        yield from self.pairs(first)
        yield from self.optimizers()
        yield from map(self.steps, others)
        for part in PARTS:
            yield from (self.sanitizer(tool, part) for tool in TOOLS)
        yield from map(self.peer, (first, *others))
        for size in others:
            yield from self.pairs(size)

    def unit(self, name, stage, commands, kind=None, **more):
        """`kind`: the size or part, where the stage's units take different times."""
        seconds = SECONDS[stage] if kind is None else SECONDS[stage][kind]
        seconds = TINY_SECONDS if self.setup.tiny else seconds
        return Unit(name, stage, seconds, tuple(commands), **more)

    # --- one after the other ----------------------------------------------------------------------

    def tests(self):
        def words(raw):
            output = f"--gtest_output=json:{raw}/tests_cases.json"
            return [*self.setup.tests, output, "--gtest_brief=1"]

        return self.unit(
            "tests", "tests", [Command("tests", words, figures=False)], **self.needs_a_gpu()
        )

    def machine(self):
        return self.unit("machine", "machine", [self.measure("machine", "machine", *self.small())])

    def steps(self, size):
        return self.unit(f"steps_{size}", "steps", [self.step(f"steps_{size}", size)], size)

    def pairs(self, size):
        for name, configs in PAIRS.items():
            options = [*self.step_options(size), *self.configs(size, configs)]
            command = self.measure(f"pair_{size}_{name}", "pair", *options)
            yield self.unit(command.name, "pairs", [command], size)

    def optimizers(self):
        cases = [
            (f"{format}_{rule}", ["--format", format, "--rule", rule])
            for format in FORMATS
            for rule in ("adamw", "m_plus_adam")
        ]
        for rounding in ("stochastic", "kahan"):
            options = ["--format", "bf16", "--rule", "adamw", "--writeback", rounding]
            cases.append((f"bf16_adamw_{rounding}", options))
        elements = "65536" if self.setup.tiny else "268435456"
        for name, options in cases:
            options = [*options, "--elements", elements, *self.small()]
            command = self.measure(f"optimizer_{name}", "optimizer", *options)
            yield self.unit(command.name, "optimizer", [command])

    def sanitizer(self, tool, part):
        program = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        program += ["--report-api-errors", "no", "--kernel-name", "kns=mpt"]
        # The environment of our own programs comes before the name of the last word's program.
        words = [*self.setup.tests[:-1], *program, self.setup.tests[-1]]
        words += [f"--gtest_filter={PARTS[part]}", "--gtest_brief=1"]
        missing = self.needs_a_gpu()
        if not missing and not shutil.which(program[0]):
            missing = {"missing": f"{program[0]} is not on PATH"}
        command = Command(f"sanitizer_{tool}_{part}", lambda raw: words, figures=False)
        return self.unit(command.name, "sanitizer", [command], part, **missing)

    def peer(self, size):
        """Ours, the peer, ours again: the same card at the same temperature."""
        before, after = (
            self.step(f"peer_{size}_ours_{when}", size, ("bf16_adamw",))
            for when in ("before", "after")
        )
        torch = Command(f"peer_{size}_torch", lambda raw: self.torch_words(size, raw))
        missing = {} if self.has_torch else {"missing": f"{self.setup.python} has no torch"}
        commands = [before, torch, after]
        return self.unit(
            f"peer_{size}", "peer", commands, size, optional=self.setup.tiny, **missing
        )

    # --- words ------------------------------------------------------------------------------------

    def measure(self, name, mode, *options):
        words = [*self.setup.report, "--device", self.setup.device, mode, *options]
        return Command(name, lambda raw: words)

    def step(self, name, size, configs=("bf16", "fp8")):
        small = ["--gemm-size", "128"] if self.setup.tiny else []
        options = [*self.step_options(size), *small, *self.configs(size, configs)]
        return self.measure(name, "step", *options)

    def step_options(self, size):
        if self.setup.tiny:
            shape = ["--tokens-per-step", "256", "--seq-len", "64", "--micro-batch-rows", "2"]
            return [*shape, "--steps", "2", "--rounds", "2", "--warm-up", "3"]
        shape = ["--tokens-per-step", "131072", "--seq-len", "1024"]
        steps = ["--steps", str(STEPS[size]), "--rounds", "5"]
        return [*shape, *steps, "--set", "train.activation_recompute=none"]

    def configs(self, size, names):
        size = "nano" if self.setup.tiny else size
        return [word for name in names for word in ("--config", f"configs/{size}_{name}.json")]

    def small(self):
        return ["--gemm-size", "128", "--copy-bytes", "1048576"] if self.setup.tiny else []

    def torch_words(self, size, raw):
        """At half our rows from the start: PyTorch holds the logits of a whole micro-batch, also as
        FP32, of which we hold a chunk.
        """
        ours = json.loads((raw / f"peer_{size}_ours_before.json").read_text())
        rows = max(ours[0]["micro_batch_rows"] // 2, 1)
        script = [self.setup.python, "scripts/bench.py", "torch_gpu_step"]
        script += ["--size", "nano" if self.setup.tiny else size, "--device", self.setup.device]
        tokens = self.step_options(size)[:4]
        steps = "2" if self.setup.tiny else str(STEPS[size])
        return [*script, "--micro-batch-rows", str(rows), *tokens, "--steps", steps]

    # --- what is there ----------------------------------------------------------------------------

    def needs_a_gpu(self):
        return {"missing": "needs a GPU", "optional": True} if self.setup.tiny else {}

    @functools.cached_property
    def has_torch(self):
        call = [self.setup.python, "-c", "import torch"]
        return subprocess.run(call, capture_output=True, check=False).returncode == 0
