"""Compares the predictions of rank_model for two ranks on this machine's CPU with measurements.

    scripts/tools.py rank_scaling_measured --program build/cpu/mpretrain --data data

The nano model, one thread a rank, each pinned to a core. What the model is fed is measured with one
rank while another like it keeps the other core busy: steps of the rows that one of two ranks will
have, steps of twice as many (the slope is the time of a row, the rest that of the update), and the
rate of copying memory. The exchange is predicted from its bytes.

Two clocks: the fastest step of a run, which other processes on the machine disturb, and the
processor time of a rank for a step, which they disturb less and which does not see waiting. Rounds
go in turn through all measurements.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from .. import rank_model as m
from ..repository import ROOT
from ..runs.metrics import Run
from ..sweeps.configuration import BadConfig

MISTAKES = (BadConfig,)

REGIMES = ["fp32", "bf16", "fp8", "nvfp4"]
SEQ_LEN = 256
MESSAGE = 1e-4  # seconds until a rank that sleeps sees a message: assumed
FIRST = 3  # steps at the start that do not count
ENVIRONMENT = {
    **os.environ,
    "OMP_WAIT_POLICY": "passive",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

COPY = """
import time
source, target = bytearray(b"x") * (8 << 20), bytearray(8 << 20)
end, rates = time.perf_counter() + 1, []
while time.perf_counter() < end:
    begin = time.perf_counter()
    target[:] = source
    rates.append(len(source) / (time.perf_counter() - begin))
print(sorted(rates)[len(rates) // 2])
"""


class Seconds(typing.NamedTuple):
    """Of a step."""

    fastest: float
    processor: float  # of a rank, all its threads


@dataclasses.dataclass
class Runs:
    program: str
    data: pathlib.Path
    steps: int
    scratch: pathlib.Path

    def command(self, regime, rows, name, steps):
        sets = {
            "data.train": json.dumps([str(self.data / "train_*.bin")]),
            "data.validation": "[]",
            "data.tokenizer": "",
            "batch.tokens_per_step": rows * SEQ_LEN,
            "train.steps": steps,
            "checkpoint.every_steps": 0,
            "device.type": "cpu",
            "device.threads": 1,
            "output_dir": str(self.scratch),
            "name": name,
        }
        pairs = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
        return [
            self.program,
            "train",
            "--config",
            str(ROOT / "configs" / f"nano_{regime}.json"),
            *pairs,
        ]

    def fastest(self, name):
        return min(Run(self.scratch / name).series("step_seconds")[1][FIRST:])

    def timed(self, names, commands_of):
        """Two runs, of which the difference counts: of FIRST steps, and of all."""
        processor = []
        for steps in (FIRST, self.steps):
            for name in names:
                shutil.rmtree(self.scratch / name, ignore_errors=True)
            processor.append(run_all(commands_of(steps)))
        spent = (processor[1] - processor[0]) / 2 / (self.steps - FIRST)
        return Seconds(statistics.fmean(self.fastest(name) for name in names), spent)

    def side_by_side(self, regime, rows):
        """One rank while another does the same."""
        names = ["one_0", "one_1"]
        return self.timed(
            names,
            lambda steps: [
                ["taskset", "-c", str(core), *self.command(regime, rows, name, steps)]
                for core, name in enumerate(names)
            ],
        )

    def two_ranks(self, regime, rows):
        launch = ["mpirun", "-np", "2", "--bind-to", "core"]
        return self.timed(
            ["two"], lambda steps: [launch + self.command(regime, rows, "two", steps)]
        )


def run_all(commands):
    """Processor seconds of all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = [
        subprocess.Popen(
            c, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for c in commands
    ]
    for process, command in zip(started, commands):
        output = process.communicate()[0]
        if process.returncode:
            sys.exit(f"rank_scaling_measured: error: {' '.join(command)}\n{output[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def copy_rate():
    """Bytes a second that one core copies while the other copies too."""
    started = [
        subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-c", COPY],
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in (0, 1)
    ]
    return statistics.fmean(float(process.communicate()[0]) for process in started)


def machine(rate):
    """Both ends of a message copy it once, on the core that would compute otherwise."""
    return m.Machine(
        "2 cores",
        {},
        achieved=1.0,
        memory=0,
        memory_bandwidth=2 * rate,
        kernel=0.0,
        copy_launch=1e-6,
        node=2,
        intra=rate / 2,
        inter=0,
        protocols=(m.Protocol(MESSAGE, 0.0, 1.0),),
        small=(MESSAGE, 0.0, 0.0),
        beside=False,
    )


def case_of(program, regime, rows):
    """Of two ranks."""
    shape, _ = m.model("nano")
    batch = m.Batch(SEQ_LEN, rows, rows // 2, False)
    return m.Case(program, shape, batch, regime, ranks=2, backend="cpu")


def predict(case, half, whole, rate):
    """A step of two ranks, from those of one with half the rows and with all, as a Step."""
    cpu, rows = machine(rate), case.batch.rows
    a_row = max(whole - half, 0) / (rows // 2)
    fixed = max(half - a_row * (rows // 2), 0)
    assumed = m.group_work(case, dataclasses.replace(m.H100, kernel=0.0))
    gemms = sum(w.forward + w.backward for w in assumed)
    # Of what does not depend on rows: the update, and casts of weights, in the proportion of the
    # bytes that they move.
    bytes_only = dataclasses.replace(m.H100, memory_bandwidth=1.0)
    update = m.update_seconds(dataclasses.replace(case, ranks=1), bytes_only)
    refresh = [w.refresh for w in m.group_work(case, bytes_only)]
    unit = fixed / (update + sum(refresh))
    scale = (half - fixed) / gemms
    work = [
        m.Work(w.forward * scale, w.backward * scale, r * unit) for w, r in zip(assumed, refresh)
    ]
    most = case.counted.most_elements / case.shape.parameters
    return m.simulate(case, cpu, work, update * unit * most)


def measure(runs, rounds, rows_of_steps):
    """By (regime, rows), of every round: half the rows, all of them, the rate of copying, two
    ranks. What is there after each.
    """
    found = {(regime, rows): [] for rows in rows_of_steps for regime in REGIMES}
    for number in range(rounds):
        for (regime, rows), of_rounds in found.items():
            begin = time.monotonic()
            of_rounds.append(
                (
                    runs.side_by_side(regime, rows // 2),
                    runs.side_by_side(regime, rows),
                    copy_rate(),
                    runs.two_ranks(regime, rows),
                )
            )
            print(
                f"round {number + 1} of {rounds}: {regime}, {rows} rows:"
                f" {time.monotonic() - begin:.0f} s",
                file=sys.stderr,
            )
            yield {key: value for key, value in found.items() if value}


def by_clock(case, of_rounds, clock):
    predicted = [
        predict(case, half[clock], whole[clock], rate) for half, whole, rate, _ in of_rounds
    ]
    ratios = [two[clock] / step.total for step, (*_, two) in zip(predicted, of_rounds)]

    def median(values):
        return 1e3 * statistics.median(values)

    return {
        "one_rank_ms": median(r[0][clock] for r in of_rounds),
        "predicted_ms": median(s.total for s in predicted),
        "predicted_exchange_ms": median(s.exchanging for s in predicted),
        "measured_ms": median(r[3][clock] for r in of_rounds),
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
    }


def summary(case, of_rounds):
    return {
        "regime": case.regime,
        "rows": case.batch.rows,
        **{name: by_clock(case, of_rounds, clock) for clock, name in enumerate(Seconds._fields)},
        "rounds": [
            dict(zip(("half_s", "whole_s", "copy_bytes_per_second", "two_ranks_s"), r))
            for r in of_rounds
        ],
    }


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default="build/cpu/mpretrain")
    parser.add_argument(
        "--data",
        default="data",
        type=pathlib.Path,
        help="token shards with a vocabulary of at most 4096",
    )
    parser.add_argument("--output", default=str(ROOT / "docs" / "scaling" / "measured.json"))
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=20, type=int)
    parser.add_argument(
        "--rows",
        default=[2, 16],
        type=int,
        nargs="+",
        help="of a step; the exchange is the same for any",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(args.program, args.data.resolve(), args.steps, pathlib.Path(scratch))
        for found in measure(runs, args.rounds, args.rows):  # an interrupted run leaves what it has
            result = {
                "processor": processor(),
                "date": datetime.date.today().isoformat(),
                "steps_a_run": args.steps,
                "load_average": os.getloadavg()[1],
                "steps": [
                    summary(case_of(args.program, *key), of_rounds)
                    for key, of_rounds in found.items()
                ],
            }
            pathlib.Path(args.output).write_text(
                json.dumps(result, indent=1) + "\n", encoding="utf-8"
            )
    for r in result["steps"]:
        for name in Seconds._fields:
            clock = r[name]
            print(
                f"{r['regime']:>6} {r['rows']:>3} rows, {name}: predicted"
                f" {clock['predicted_ms']:.1f} ms (exchange {clock['predicted_exchange_ms']:.1f}),"
                f" measured {clock['measured_ms']:.1f} ms, ratio {clock['ratio']:.2f}"
                f" ({clock['ratio_range'][0]:.2f}-{clock['ratio_range'][1]:.2f})"
            )
