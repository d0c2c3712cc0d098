"""Predicts what training over ranks takes: memory by purpose, bytes sent, and the time of a step by
a small event simulation.

    scripts/scaling_model.py --model 350m --regime nvfp4 --ranks 1,8,64
    scripts/scaling_model.py --check build/cpu/mpretrain --ranks 1,2,64  # against `mpretrain plan`

Memory and bytes follow the rules of the program, buffer by buffer. Times are predictions: they rest
on the assumed figures of a `Machine` (rank_model/step.py), of which none was measured.
"""

import argparse
import json
import subprocess
import sys

from . import (
    CONFIGS,
    H100,
    LARGE,
    OPTIMIZERS,
    PURPOSES,
    REGIMES,
    SMALL,
    Case,
    buckets,
    efficiency,
    memory_of,
    model,
    simulate,
    volume,
)

# With configs/<size>_<name>.json: (regime, optimizer).
CHECKED = {
    "fp32": ("fp32", "m_plus_adam"),
    "bf16": ("bf16", "m_plus_adam"),
    "bf16_adamw": ("bf16", "adamw"),
    "bf16_kahan": ("bf16", "kahan"),
    "bf16_fp8": ("bf16_fp8", "m_plus_adam"),
    "fp8": ("fp8", "m_plus_adam"),
    "nvfp4": ("nvfp4", "m_plus_adam"),
    "bf16_apollo_e": ("bf16", "apollo_e"),
}


def planned(program, config, case, ranks_known):
    command = [
        program,
        "plan",
        "--json",
        "--config",
        str(config),
        "--set",
        f"device.type={case.backend}",
        *(["--set", f"device.threads={case.threads}"] if case.backend == "cpu" else []),
    ]
    if ranks_known:
        command += [
            "--ranks",
            str(case.ranks),
            "--set",
            f"distributed.gradient_reduce={case.gradient_reduce}",
        ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"scaling_model.py: error: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def differences(counted, case):
    """Purpose, planned bytes, ours: what is not the same. Of scratch the tables of functors are not
    modelled.
    """
    memory = memory_of(case)
    for purpose in PURPOSES:
        theirs, ours = counted["allocated_bytes"][purpose], memory.bytes[purpose]
        if purpose == "scratch" and 0 <= theirs - ours <= 1024 * (len(case.specs) + 4):
            continue
        if theirs != ours:
            yield purpose, theirs, ours
    sent = volume(case)
    ours = {"gradients": sent.gradients, "weights": sent.weights, "sums_and_scales": sent.small}
    for kind, theirs in counted.get("bytes_sent_per_step", {}).items():
        if theirs != ours[kind]:
            yield f"sent {kind}", theirs, ours[kind]


def check(program, backend, ranks):
    """Every size, regime and optimizer that has a configuration, against the program's own plan."""
    wrong = cases = 0
    for size in SMALL:
        shape, batch = model(size)
        for name, (regime, optimizer) in CHECKED.items():
            config = CONFIGS / f"{size}_{name}.json"
            if not config.exists() or (size == "pico" and backend == "cuda"):
                continue
            for n, wire in [
                (of, w) for of in ranks for w in (("fp32", "bf16") if of > 1 else ("fp32",))
            ]:
                case = Case(
                    shape, batch, REGIMES[regime], optimizer, n, wire, backend=backend, threads=2
                )
                counted = planned(program, config, case, ranks != [1])
                cases += 1
                for what, theirs, ours in differences(counted, case):
                    wrong += 1
                    print(
                        f"{config.stem}, {n} ranks, {wire}: {what}: plan {theirs:,}, model"
                        f" {ours:,}",
                        file=sys.stderr,
                    )
    print(f"{cases} plans compared, {wrong} figures differ")
    return 1 if wrong else 0


def report(case, machine):
    memory, sent, step = memory_of(case), volume(case), simulate(case, machine)
    return {
        "ranks": case.ranks,
        "micro_batches": case.micro_batches,
        "buckets": len(buckets(case)),
        "memory_bytes": {**memory.bytes, "total": memory.total},
        "bytes_sent_per_step": sent._asdict(),
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="350m", choices=SMALL + list(LARGE))
    parser.add_argument("--regime", default="nvfp4", choices=REGIMES)
    parser.add_argument("--optimizer", default="m_plus_adam", choices=OPTIMIZERS)
    parser.add_argument("--ranks", default=None, type=numbers, help="numbers of ranks, by commas")
    parser.add_argument("--gradient-reduce", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--bucket-mib", default=32, type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--check",
        metavar="PROGRAM",
        help="compare with what `PROGRAM plan` counts, for --ranks (default 1)",
    )
    parser.add_argument(
        "--backend", default=None, choices=["cpu", "cuda"], help="default: cuda; of --check cpu"
    )
    args = parser.parse_args()
    if args.check:
        return check(args.check, args.backend or "cpu", args.ranks or [1])
    shape, batch = model(args.model)
    reports = []
    for ranks in args.ranks or [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]:
        case = Case(
            shape,
            batch,
            REGIMES[args.regime],
            args.optimizer,
            ranks,
            args.gradient_reduce,
            args.bucket_mib,
            backend=args.backend or "cuda",
        )
        if batch.rows < ranks:
            print(f"{ranks} ranks: a step has {batch.rows} rows only", file=sys.stderr)
            continue
        reports.append(report(case, H100))
    print(json.dumps(reports, indent=1)) if args.json else print_reports(reports)
    return 0
