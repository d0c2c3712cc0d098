#!/usr/bin/env python3
"""Tunes every (regime, optimizer) by coordinate descent and writes the trace, the ablations and what was found.

    scripts/reproduce/tune.py --scale pico --tokens data/tokens --work runs --output docs/results/pico
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
from dataclasses import asdict

from experiments import configuration
from experiments.cell import Cell
from experiments.descent import descend
from experiments.launch import Local
from experiments.ledger import Ledger
from experiments.runner import Place, Runner

GRIDS = pathlib.Path(__file__).with_name("grids.json")
FIRST = ["bf16_adamw", "bf16"]
AGAIN = ["bf16_fp8_adamw", "bf16_fp8", "fp8_adamw", "fp8", "nvfp4_adamw", "nvfp4"]
RATE = ["fp32_adamw", "bf16_adamw_sr", "bf16_adamw_kahan"]


def rule_of(row):
    return "adamw" if "adamw" in row else "m_plus_adam"


class Tuning:
    """All descents of one scale."""

    def __init__(self, args, runner):
        self.args, self.runner = args, runner
        self.grids = configuration.parse(GRIDS)[args.scale]
        self.directory = pathlib.Path(args.output) / "tuning"

    def cell(self, row, point):
        return Cell.of(f"{self.args.scale}_{row}.json", self.grids["length"], point, {"seed": self.args.seed})

    def losses(self, row, points):
        cells = [self.cell(row, point) for point in points]
        if not self.runner.run(cells):
            raise SystemExit(f"tune: {row}: a run failed")
        return [self.runner.result(cell).val_loss for cell in cells]

    def tune(self, row, phase, start):
        grid = self.grids[phase][rule_of(row)]
        trace = descend(lambda points: self.losses(row, points), start, grid, self.grids[phase]["runs"],
                        on_sweep=lambda trace: self.write(row, trace))
        self.write(row, trace)
        print(f"{row}: {trace.finished} after {trace.runs} runs, loss {trace.loss:.4f}, {trace.point}", flush=True)
        return trace.point

    def write(self, row, trace):
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{row}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"row": row, "scale": self.args.scale, "seed": self.args.seed,
                                         "length": self.grids["length"], **asdict(trace)}, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    def start_of(self, row):
        keys = self.grids["first"][rule_of(row)]
        return {key: value for key, value in self.grids["start"].items() if key in keys}

    def all(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            first = dict(zip(FIRST, pool.map(lambda row: self.tune(row, "first", self.start_of(row)), FIRST)))
            by_rule = {rule_of(row): point for row, point in first.items()}
            later = [(row, "again") for row in AGAIN] + [(row, "rate") for row in RATE]
            found = pool.map(lambda each: self.tune(*each, by_rule[rule_of(each[0])]), later)
            points = {**first, **dict(zip((row for row, _ in later), found))}
        path = pathlib.Path(self.args.output) / "tuned.json"
        path.write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="pico")
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--program", default=str(configuration.ROOT / "build/cpu/mpretrain"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    place = Place(args.program, pathlib.Path(args.tokens), pathlib.Path(args.work), threads=1, jobs=args.jobs)
    ledger = Ledger(pathlib.Path(args.output) / "runs.csv")

    def report(statuses):
        states = [status.state for status in statuses.values()]
        print({state: states.count(state) for state in set(states)}, flush=True)

    Tuning(args, Runner(place, ledger, Local(args.program, 1), "e345d75", report)).all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
