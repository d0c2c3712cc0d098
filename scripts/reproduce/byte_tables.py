#!/usr/bin/env python3
"""Prints the paper's byte tables from what `mpretrain plan` counts: memory by optimizer and format, Apollo-E by rank.

    scripts/reproduce/byte_tables.py --program build/cpu/mpretrain > docs/results/bytes.md

Exits 1 if a figure that the paper prints differs from it in any printed digit.
"""

import argparse
import json
import pathlib
import subprocess
import sys

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
SIZES = ["60m", "130m", "350m", "1b"]

# Label, config without its size, what is changed in it, and what the paper prints: persistent bytes a parameter, and
# with the gradient.
FP32_MASTER = ("precision.compute=bf16", "precision.optimizer_state=bf16", "precision.gradient=bf16")
MEMORY = [
    ("AdamW, FP32 master, BF16 states", "fp32_adamw", FP32_MASTER, (8, 10)),
    ("AdamW, BF16 weights and states", "bf16_adamw", (), None),
    ("AdamW + SR, BF16", "bf16_adamw_sr", (), (6, 8)),
    ("AdamW + Kahan, BF16", "bf16_adamw_kahan", (), None),
    ("M+Adam, BF16 master", "bf16", (), (8, 10)),
    ("M+Adam, FP8 master", "fp8", (), (7, 9)),
    ("M+Adam, NVFP4 master", "nvfp4", (), None),
    ("AdamW, FP32 everywhere", "fp32_adamw", (), None),
]

# Bytes of optimizer state a parameter, as printed for 130M and 350M.
APOLLO_E = {1: ("4.739", "4.362"), 4: ("4.754", "4.377"), 8: ("4.775", "4.397"), 16: ("4.817", "4.438")}


def plan(program, config, *overrides):
    sets = [argument for text in overrides for argument in ("--set", text)]
    command = [program, "plan", "--json", "--config", str(CONFIGS / f"{config}.json"), *sets]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_table(program):
    print("| bytes a parameter | weights | states | persistent | + gradient | paper |")
    print("|---|---|---|---|---|---|")
    wrong = []
    for label, config, overrides, paper in MEMORY:
        nominal = plan(program, f"60m_{config}", *overrides)["nominal_bytes_per_parameter"]
        persistent = nominal["weights"] + nominal["optimizer_state"]
        total = persistent + nominal["gradient"]
        if paper not in (None, (persistent, total)):
            wrong.append(label)
        printed = f"{paper[0]} / {paper[1]}" if paper else ""
        print(f"| {label} | {nominal['weights']:g} | {nominal['optimizer_state']:g} | {persistent:g} | {total:g} "
              f"| {printed} |")
    return wrong


def weight_table(program):
    print("| bytes of weights, scales included | " + " | ".join(SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for label, config in [("BF16", "bf16"), ("FP8, blocks of 128", "fp8"), ("NVFP4", "nvfp4")]:
        cells = []
        for size in SIZES:
            counted = plan(program, f"{size}_{config}")
            total = counted["logical_bytes"]["weights"]
            cells.append(f"{total:,} ({total / counted['parameters']:.3f})")
        print(f"| {label} | " + " | ".join(cells) + " |")


def apollo_table(program):
    print("| rank | " + " | ".join(SIZES) + " | paper, 130M and 350M |")
    print("|---" * (len(SIZES) + 2) + "|")
    wrong = []
    for rank, paper in APOLLO_E.items():
        cells = {}
        for size in SIZES:
            counted = plan(program, f"{size}_bf16_apollo_e", f"optimizer.apollo_e_rank={rank}")
            cells[size] = (counted["logical_bytes"]["optimizer_state"], counted["parameters"])
        if paper != tuple(f"{cells[size][0] / cells[size][1]:.3f}" for size in ("130m", "350m")):
            wrong.append(f"Apollo-E of rank {rank}")
        print(f"| {rank} | " + " | ".join(f"{total:,} = {total / n:.6f}" for total, n in cells.values()) +
              f" | {paper[0]}, {paper[1]} |")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/cpu/mpretrain")
    program = parser.parse_args().program
    print("# Bytes that training keeps\n\nCounted by `mpretrain plan`; made by `scripts/reproduce/byte_tables.py`.\n")
    print("## Memory table, nominal\n\nWeights of FP8 without their block scales, of NVFP4 with them.\n")
    wrong = memory_table(program)
    print("\n## Weights as they are stored\n")
    weight_table(program)
    print("\n## Optimizer state of M+Adam with Apollo-E\n\nBytes, and bytes a parameter; mini and channel are alike.\n")
    wrong += apollo_table(program)
    for label in wrong:
        print(f"byte_tables: {label} differs from the paper", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
