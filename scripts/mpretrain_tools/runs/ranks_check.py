"""Trains every configuration of one size with 1, 2 and 3 ranks under mpirun and compares the
losses, step by step.

    scripts/tools.py ranks_check --tokens data/tokens --work runs --output docs/results/ranks.md

Every rank's weights are compared bit for bit after each step (distributed.check_every_steps=1): a
run in which they differ fails. The losses of several ranks may differ from one rank's by the order
of sums; as a measure of that, one rank also makes the same steps in smaller micro-batches. FP8
scales are updated once a step, so that nothing else differs. Exit status 1 if a run fails or strays
further than that measure allows.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys

from .. import markdown
from ..repository import CONFIGS, ROOT
from .metrics import Run

RANKS = (1, 2, 3)
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
# FP32 sums of some thousand terms, in a loss of up to 16.
LEAST_BOUND = 4096 * 16 * 2.0**-24


def configs_of(scale):
    names = sorted(path.stem for path in (CONFIGS).glob(f"{scale}_*.json"))
    return [
        name for name in names if name != f"{scale}_fp32"
    ]  # the same as fp32_adamw but for its optimizer


def computes_in_fp8(name):
    return any(part in name for part in ("_fp8", "_nvfp4"))


def losses(arguments, name, ranks, micro_batch_rows):
    run = pathlib.Path(arguments.work) / f"{name}_r{ranks}_m{micro_batch_rows}"
    settings = {
        "name": run.name,
        "output_dir": arguments.work,
        "data.train": f"{arguments.tokens}/train_*.bin",
        "data.validation": "null",
        "data.tokenizer": "null",
        "train.steps": arguments.steps,
        "train.chinchilla": "null",
        "batch.seq_len": 128,
        "batch.tokens_per_step": 128 * 12,
        "batch.micro_batch_rows": micro_batch_rows,
        "checkpoint.every_steps": 0,
        "device.type": "cpu",
        "device.threads": 1,
        "distributed.check_every_steps": 1,
        "distributed.bucket_mib": 1,
    }
    if computes_in_fp8(name):
        settings["precision.fp8_amax_update"] = "step"
    command = [] if ranks == 1 else ["mpirun", "-np", str(ranks)]
    command += [
        arguments.program,
        "--log-level",
        "warning",
        "--config",
        str(CONFIGS / f"{name}.json"),
    ]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(["rm", "-rf", str(run)], check=True)
    done = subprocess.run(
        command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return [record["loss"] for record in Run(run).steps.values()]


def largest_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


HEAD = ("configuration", "loss at the end", "other micro-batches", "2 ranks", "3 ranks")
PAGE = """# One rank and several

`scripts/tools.py ranks_check --scale {scale} --steps {steps}`:
the same {steps} steps of 1,536 tokens
by 1, 2 and 3 ranks under mpirun, rows of 128 tokens, micro-batches of 4 rows a rank, buckets of 1
MiB, FP8 scales updated once a step. After each step all ranks' weights were compared by hash:
equal in every run below. The last three columns are largest differences of the loss over all
steps from one rank's: of one rank with micro-batches of 2 or 12 rows, which is another order of
the same sums, and of 2 and 3 ranks.

"""


def page(arguments, lines):
    return PAGE.format(scale=arguments.scale, steps=arguments.steps) + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", default="nano")
    parser.add_argument("--tokens", required=True, help="directory of train_*.bin")
    parser.add_argument("--program", default=str(ROOT / "build/cpu/mpretrain"))
    parser.add_argument("--work", default="runs/ranks")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--output", help="Markdown file")
    arguments = parser.parse_args()
    rows, strayed = [], []
    for name in configs_of(arguments.scale):
        one = losses(arguments, name, 1, 4)
        other = max(largest_difference(one, losses(arguments, name, 1, rows)) for rows in (2, 12))
        several = [
            largest_difference(one, losses(arguments, name, ranks, 4)) for ranks in RANKS[1:]
        ]
        if max(several) > 4 * other + LEAST_BOUND:
            strayed.append(name)
        rows.append([name, f"{one[-1]:.4f}", f"{other:.1e}", *(f"{d:.1e}" for d in several)])
        print(markdown.table(HEAD, rows)[-1], flush=True)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(page(arguments, markdown.table(HEAD, rows)))
    if strayed:
        sys.exit(
            "further from one rank than a different order of summation explains:"
            f" {', '.join(strayed)}"
        )
