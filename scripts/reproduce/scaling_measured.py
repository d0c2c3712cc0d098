#!/usr/bin/env python3
"""Compares what scripts/scaling_model.py predicts for two ranks on this machine's CPU with what they take.

    scripts/reproduce/scaling_measured.py --program build/cpu/mpretrain --data data --output docs/scaling/measured.json

The nano model, one thread a rank, each pinned to a core. What the model is fed is measured with one rank while another like it
keeps the other core busy: steps of the rows that one of two ranks will have, steps of twice as many (the slope is the
time of a row, the rest that of the update), and the rate of copying memory. The exchange is predicted from its bytes.
Rounds go in turn through all measurements; figures are medians with their range.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import rank_model as m  # noqa: E402

REGIMES = ["fp32", "bf16", "fp8", "nvfp4"]
ROWS = [16, 2]         # of a step; the exchange is the same for any
SEQ_LEN = 256
MESSAGE = 1e-4         # seconds until a rank that sleeps sees a message: assumed
FIRST = 5              # steps at the start that do not count
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

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


@dataclasses.dataclass
class Runs:
    program: str
    data: pathlib.Path
    steps: int
    scratch: pathlib.Path

    def command(self, regime, rows, name):
        sets = {"data.train": json.dumps([str(self.data / "train_*.bin")]), "data.validation": "[]", "data.tokenizer": "",
                "batch.tokens_per_step": rows * SEQ_LEN, "train.steps": self.steps, "checkpoint.every_steps": 0,
                "device.type": "cpu", "device.threads": 1, "output_dir": str(self.scratch), "name": name}
        pairs = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
        return [self.program, "train", "--config", str(ROOT / "configs" / f"nano_{regime}.json"), *pairs]

    def seconds(self, name):
        path = self.scratch / name / "metrics.jsonl"
        steps = [json.loads(line)["step_seconds"] for line in path.read_text(encoding="utf-8").splitlines()]
        return statistics.median(steps[FIRST:])

    def side_by_side(self, regime, rows):
        """Median seconds of a step of one rank while another does the same."""
        names = [f"one_{core}" for core in (0, 1)]
        self.clear(names)
        run_all([["taskset", "-c", str(core), *self.command(regime, rows, name)] for core, name in enumerate(names)])
        return statistics.fmean(self.seconds(name) for name in names)

    def two_ranks(self, regime, rows):
        self.clear(["two"])
        run_all([["mpirun", "-np", "2", "--bind-to", "core", *self.command(regime, rows, "two")]])
        return self.seconds("two")

    def clear(self, names):
        for name in names:
            subprocess.run(["rm", "-rf", str(self.scratch / name)], check=True)


def run_all(commands):
    started = [subprocess.Popen(c, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    for process, command in zip(started, commands):
        output = process.communicate()[0]
        if process.returncode:
            sys.exit(f"scaling_measured.py: error: {' '.join(command)}\n{output[-2000:]}")


def copy_rate():
    """Bytes a second that one core copies while the other copies too."""
    started = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", COPY], stdout=subprocess.PIPE, text=True)
               for core in (0, 1)]
    return statistics.fmean(float(process.communicate()[0]) for process in started)


def machine(rate):
    """Both ends of a message copy it once, on the core that would compute otherwise."""
    return m.Machine("2 cores", {}, achieved=1.0, memory=0, memory_bandwidth=2 * rate, kernel=0.0, copy_launch=1e-6, node=2, intra=rate / 2,
                     inter=0, protocols=(m.Protocol(MESSAGE, 0.0, 1.0),), small=(MESSAGE, 0.0, 0.0), beside=False)


def case_of(regime, rows, ranks):
    shape, _ = m.model("nano")
    batch = m.Batch(SEQ_LEN, rows, rows // ranks, False)
    return m.Case(shape, batch, m.REGIMES[regime], "m_plus_adam", ranks, backend="cpu")


def predict(regime, rows, half, whole, rate):
    """A step of two ranks, from those of one with half the rows and with all, as a Step."""
    case, cpu = case_of(regime, rows, 2), machine(rate)
    a_row = max(whole - half, 0) / (rows // 2)
    fixed = max(half - a_row * (rows // 2), 0)
    assumed = m.group_work(case, dataclasses.replace(m.H100, kernel=0.0))
    products = sum(w.forward + w.backward for w in assumed)
    # Of what does not depend on rows: the update, and casts of weights, in the proportion of the bytes that they move.
    bytes_only = dataclasses.replace(m.H100, memory_bandwidth=1.0)
    update = m.update_seconds(dataclasses.replace(case, ranks=1), bytes_only)
    refresh = [w.refresh for w in m.group_work(case, bytes_only)]
    unit = fixed / (update + sum(refresh))
    scale = (half - fixed) / products
    work = [m.Work(w.forward * scale, w.backward * scale, r * unit) for w, r in zip(assumed, refresh)]
    return m.simulate(case, cpu, work, update * unit * max(m.own_elements(case)) / case.shape.parameters)


def measure(runs, rounds):
    """By (regime, rows): (half, whole, copy rate, two ranks) of every round."""
    found = {(regime, rows): [] for regime in REGIMES for rows in ROWS}
    for number in range(rounds):
        for (regime, rows), of_rounds in found.items():
            begin = time.monotonic()
            of_rounds.append((runs.side_by_side(regime, rows // 2), runs.side_by_side(regime, rows), copy_rate(),
                              runs.two_ranks(regime, rows)))
            print(f"round {number + 1} of {rounds}: {regime}, {rows} rows: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return found


def summary(regime, rows, of_rounds):
    predicted = [predict(regime, rows, half, whole, rate) for half, whole, rate, _ in of_rounds]
    ratios = [two / step.total for step, (*_, two) in zip(predicted, of_rounds)]

    def median(values):
        return 1e3 * statistics.median(values)

    return {"regime": regime, "rows": rows, "one_rank_ms": median(r[0] for r in of_rounds),
            "one_rank_all_rows_ms": median(r[1] for r in of_rounds), "predicted_ms": median(s.total for s in predicted),
            "predicted_exchange_ms": median(s.exchanging for s in predicted), "measured_ms": median(r[3] for r in of_rounds),
            "ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)],
            "rounds": [dict(zip(("half_s", "whole_s", "copy_bytes_per_second", "two_ranks_s"), r)) for r in of_rounds]}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/cpu/mpretrain")
    parser.add_argument("--data", default="data", type=pathlib.Path, help="token shards of a vocabulary up to 4096")
    parser.add_argument("--output", default=str(ROOT / "docs" / "scaling" / "measured.json"))
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--steps", default=40, type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Runs(args.program, args.data.resolve(), args.steps, pathlib.Path(scratch)), args.rounds)
    result = {"processor": processor(), "date": datetime.date.today().isoformat(), "steps_a_run": args.steps, "rounds": args.rounds,
              "load_at_end": os.getloadavg()[0], "steps": [summary(*key, of_rounds) for key, of_rounds in found.items()]}
    pathlib.Path(args.output).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for r in result["steps"]:
        print(f"{r['regime']:>6} {r['rows']:>3} rows: predicted {r['predicted_ms']:.1f} ms (exchange {r['predicted_exchange_ms']:.1f}), "
              f"measured {r['measured_ms']:.1f} ms, ratio {r['ratio']:.2f} ({r['ratio_range'][0]:.2f}-{r['ratio_range'][1]:.2f})")


if __name__ == "__main__":
    main()
