"""Estimates the cost of training on several ranks: memory by purpose and bytes sent, as counted by
`mpretrain plan`, and the time of a step by a small event simulation.

    scripts/tools.py scaling_model --model 350m --regime nvfp4 --ranks 1,8,64

Times are predictions: they rest on the assumed figures of machines.json, of which none was
measured.
"""

import argparse
import json
import sys

from ..sweeps import options
from ..sweeps.configuration import BadConfig
from . import COMPUTE, H100, LARGE, OPTIMIZERS, SMALL, Case, efficiency, model, simulate

MISTAKES = (BadConfig,)


def report(case, machine):
    counted, step = case.counted, simulate(case, machine)
    return {
        "ranks": case.ranks,
        "micro_batches": counted.micro_batches,
        "buckets": len(counted.buckets),
        "memory_bytes": {**counted.memory, "total": counted.total},
        "bytes_sent_per_step": counted.sent,
        "predicted_step_seconds": step.total,
        "predicted_efficiency": efficiency(case, machine),
        "exchange_launches": step.launches,
    }


def print_reports(reports):
    print(
        f"{'ranks':>6} {'GB a rank':>10} {'sent MB':>9} {'step ms':>9} {'efficiency':>10}   (times:"
        f" predictions for {H100.name})"
    )
    for r in reports:
        print(
            f"{r['ranks']:>6} {r['memory_bytes']['total'] / 1e9:>10.2f}"
            f" {sum(r['bytes_sent_per_step'].values()) / 1e6:>9.1f}"
            f" {1e3 * r['predicted_step_seconds']:>9.2f} {r['predicted_efficiency']:>10.3f}"
        )


def numbers(text):
    return [int(n) for n in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--model", default="350m", choices=SMALL + list(LARGE))
    add("--regime", default="nvfp4", choices=COMPUTE)
    add("--optimizer", default="m_plus_adam", choices=OPTIMIZERS)
    add(
        "--ranks",
        default=[2**k for k in range(11)],
        type=numbers,
        help="numbers of ranks, separated by commas; default: 1 to 1024",
    )
    add("--gradient-reduce", default="fp32", choices=["fp32", "bf16"])
    add("--bucket-mib", default=32, type=int)
    add("--json", action="store_true")
    add("--backend", default="cuda", choices=["cpu", "cuda"])
    options.add_program(parser)
    return parser.parse_args()


def main():
    args = arguments()
    shape, batch = model(args.model)
    reports = []
    for ranks in args.ranks:
        case = Case(
            program=args.program,
            shape=shape,
            batch=batch,
            regime=args.regime,
            optimizer=args.optimizer,
            ranks=ranks,
            gradient_reduce=args.gradient_reduce,
            bucket_mib=args.bucket_mib,
            backend=args.backend,
        )
        if case.fits_the_batch:
            reports.append(report(case, H100))
        else:
            print(f"{ranks} ranks: a step has only {batch.rows} rows", file=sys.stderr)
    print(json.dumps(reports, indent=1)) if args.json else print_reports(reports)
    return 0
