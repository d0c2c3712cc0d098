#!/usr/bin/env python3
"""Training steps of this program against PyTorch on the same machine, in turn (A B A B ...), as a Markdown table.

  bench/peers/compare_step.py --bench build/cpu/bench/step_bench [--shapes AE] [--rounds 5] [--python /usr/bin/python3]

PyTorch runs twice: as it is installed, and tuned: BLIS-OpenMP in the place of its BLAS and allocator thresholds raised
(measured to be its best settings with Debian's build). Each figure is the median of the rounds; the ratio is taken
round by round, then its median and range.
"""
import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

PEER = Path(__file__).with_name("pytorch_step.py")
BLIS = "/usr/lib/x86_64-linux-gnu/blis-openmp"
TUNED = {
    "LD_LIBRARY_PATH": BLIS,
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296",
}


def ours(bench, shape, regime):
    command = [bench, f"--benchmark_filter=^{shape}/{regime}/adamw", "--benchmark_format=json", "--benchmark_min_time=2"]
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")  # as the program sets it for itself
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(result.stdout)["benchmarks"][0]["tokens/s"]


def peer(python, shape, threads, settings):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), BLIS_NUM_THREADS=str(threads), **settings)
    command = [python, str(PEER), "--shape", shape, "--threads", str(threads)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def ratio_text(numerators, denominators):
    ratios = [a / b for a, b in zip(numerators, denominators)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the built step_bench")
    parser.add_argument("--shapes", default="ABCDE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter with torch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    print("| shape | ours FP32 | ours BF16 | PyTorch tuned | PyTorch as installed | FP32 / tuned | FP32 / installed | BF16 / FP32 |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in args.shapes:
        rows = []
        for _ in range(args.rounds):
            rows.append((ours(args.bench, shape, "fp32"), peer(args.python, shape, args.threads, TUNED),
                         peer(args.python, shape, args.threads, {}), ours(args.bench, shape, "bf16")))
        fp32, tuned, installed, bf16 = zip(*rows)
        medians = [f"{statistics.median(x):.0f}" for x in (fp32, bf16, tuned, installed)]
        ratios = [ratio_text(fp32, tuned), ratio_text(fp32, installed), ratio_text(bf16, fp32)]
        print("| " + " | ".join([shape, *medians, *ratios]) + " |", flush=True)


if __name__ == "__main__":
    main()
