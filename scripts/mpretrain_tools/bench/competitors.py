"""Programs that take the same training step: how each is started with the settings that suit it
best, what a run gives.

A run gives counters: `tokens/s`, and `peak MiB`, the most memory the whole process had. What fails
says `failed`.
"""

import json
import pathlib
import random
import re
import struct
import tempfile
import typing

from ..repository import ROOT
from . import child
from .disturbance import is_disturbed, least_disturbed
from .shapes import SHAPES, configuration, planned_bytes, write_configuration, write_tokens

BLIS = "/usr/lib/x86_64-linux-gnu/blis-openmp"
MIB = 2**20
# Memory goes back to the system and comes again at every step otherwise: measured to be the
# allocator's best settings.
ALLOCATOR = {
    "GLIBC_TUNABLES": (
        "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"
    )
}
MEMORY_STEPS = 3
LLMC_STEPS = 1  # after the first, which does not count: of the large vocabulary each takes a minute
LLMC_FLAGS = [
    "-Ofast",
    "-march=native",
    "-fopenmp",
    "-DOMP",
    "-w",
]  # those of its Makefile where OpenMP is found


class Competitor(typing.NamedTuple):
    key: str
    label: str
    run: typing.Callable  # of a shape's name; the counters of one run
    repeated: bool = True  # when it is disturbed


def threads_settings(threads):
    return {"OMP_NUM_THREADS": str(threads), "BLIS_NUM_THREADS": str(threads)}


def benchmarked(program, pattern, seconds):
    """Counters of the first benchmark that the pattern finds, run in a process of its own."""
    command = [
        program,
        f"--benchmark_filter={pattern}",
        "--benchmark_format=json",
        f"--benchmark_min_time={seconds}",
    ]
    finished = child.run(command, child.WAITING)
    found = json.loads(finished.output)["benchmarks"]
    if not found:
        raise child.Failed(f"{pathlib.Path(program).name}: no benchmark matches {pattern}")
    return {"tokens/s": found[0]["tokens/s"], "peak MiB": finished.peak_bytes / MIB}


def trained(program, shape):
    """The program itself for a few steps: its peak, and what `plan` says it will be."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tokens = write_tokens(
            scratch / "train.bin", 4 * MEMORY_STEPS * SHAPES[shape].tokens, SHAPES[shape].vocab
        )
        path = write_configuration(
            scratch / "run.json", configuration(SHAPES[shape], "run", tokens, scratch, MEMORY_STEPS)
        )
        plan = json.loads(child.run([program, "plan", "--config", path, "--json"]).output)
        finished = child.run([program, "train", "--config", path])
    return {"peak MiB": finished.peak_bytes / MIB, "plan MiB": planned_bytes(plan) / MIB}


def pytorch(python, shape, threads, settings, steps, *options):
    command = [
        python,
        ROOT / "scripts/bench.py",
        "pytorch_step",
        "--shape",
        shape,
        "--threads",
        threads,
        "--steps",
        steps,
        *options,
    ]
    finished = child.run(command, {**threads_settings(threads), **settings})
    return {
        "tokens/s": float(finished.output.strip().split("\n")[-1]),
        "peak MiB": finished.peak_bytes / MIB,
    }


def gpt2_parameters(shape):
    """(values, how many) of each tensor of train_gpt2.c's checkpoint, in its order."""
    c, layers, vocab = shape.hidden, shape.layers, padded(shape.vocab)
    of_layers = (
        (1, c),
        (0, c),
        (None, 3 * c * c),
        (0, 3 * c),
        (None, c * c),
        (0, c),
        (1, c),
        (0, c),
        (None, 4 * c * c),
        (0, 4 * c),
        (None, 4 * c * c),
        (0, c),
    )
    return [
        (None, vocab * c),
        (None, shape.length * c),
        *((value, layers * count) for value, count in of_layers),
        (1, c),
        (0, c),
    ]


def padded(vocab):
    return (vocab + 127) // 128 * 128


def write_gpt2(path, shape):
    """Random weights of a deviation of 0.02, uniform: what they are does not change how long a step
    takes.
    """
    draw = random.Random(1)
    block = struct.pack("<65536f", *(draw.uniform(-0.035, 0.035) for _ in range(65536)))
    with open(path, "wb") as file:
        file.write(
            struct.pack(
                "<256i",
                20240326,
                3,
                shape.length,
                shape.vocab,
                shape.layers,
                shape.heads,
                shape.hidden,
                padded(shape.vocab),
                *[0] * 248,
            )
        )
        for value, count in gpt2_parameters(shape):
            if value is not None:
                file.write(struct.pack("<f", value) * count)
                continue
            for begin in range(0, count, 65536):
                file.write(block[: 4 * min(65536, count - begin)])


def llmc(checkout, shape, threads, steps):
    if not (pathlib.Path(checkout) / "train_gpt2.c").exists():
        raise child.Failed(f"{checkout}: no train_gpt2.c in it; expected a checkout of llm.c")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        child.run(
            [
                "cc",
                *LLMC_FLAGS,
                "-I",
                checkout,
                "-o",
                scratch / "llmc_step",
                ROOT / "bench/llmc_step.c",
                "-lm",
            ]
        )
        write_gpt2(scratch / "gpt2.bin", SHAPES[shape])
        command = [
            scratch / "llmc_step",
            scratch / "gpt2.bin",
            SHAPES[shape].batch,
            SHAPES[shape].length,
            steps,
        ]
        finished = child.run(command, threads_settings(threads))
    return {
        "tokens/s": float(finished.output.strip().split("\n")[-1]),
        "peak MiB": finished.peak_bytes / MIB,
    }


def torch_version(python):
    """Of an interpreter; None where it has no torch."""
    try:
        return re.sub(
            r"\+.*",
            "",
            child.run([python, "-c", "import torch; print(torch.__version__)"]).output.strip(),
        )
    except child.Failed:
        return None


def competitors(
    build, threads, python="/usr/bin/python3", python2=None, llmc_checkout=None, quick=False
):
    """All that are there, in the order in which they take turns; and what is missing, in words."""
    seconds, steps = (0.1, 1) if quick else (2, 5)
    bench = build / "bench" / "step_bench"
    found = [
        Competitor(
            "ours_fp32",
            "ours, FP32",
            lambda s: benchmarked(bench, f"^{s}/fp32/adamw(/real_time)?$", seconds),
        ),
        Competitor(
            "ours_bf16",
            "ours, BF16",
            lambda s: benchmarked(bench, f"^{s}/bf16/adamw(/real_time)?$", seconds),
        ),
        Competitor("mpretrain", "mpretrain train", lambda s: trained(build / "mpretrain", s)),
    ]
    missing = []
    version = torch_version(python)
    if version:
        tuned = {**ALLOCATOR, "LD_LIBRARY_PATH": BLIS}
        found += [
            Competitor(
                "pytorch_blis",
                f"PyTorch {version}, tuned: BLIS and allocator",
                lambda s: pytorch(python, s, threads, tuned, steps),
            ),
            Competitor(
                "pytorch_allocator",
                f"PyTorch {version}, tuned: allocator",
                lambda s: pytorch(python, s, threads, ALLOCATOR, steps),
            ),
            Competitor(
                "pytorch_installed",
                f"PyTorch {version}, as installed",
                lambda s: pytorch(python, s, threads, {}, steps),
            ),
        ]
    else:
        missing.append(
            f"the distribution's PyTorch: {pathlib.Path(python).name} has no torch (package"
            " python3-torch)"
        )
    version = torch_version(python2) if python2 else None
    if version:
        found += [
            Competitor(
                "pytorch2_eager",
                f"PyTorch {version}, eager",
                lambda s: pytorch(python2, s, threads, ALLOCATOR, steps),
            ),
            Competitor(
                "pytorch2_compiled",
                f"PyTorch {version}, compiled",
                lambda s: pytorch(python2, s, threads, ALLOCATOR, steps, "--compile"),
            ),
            *(
                pytorch_bf16(version, python2, threads, steps, precision, options)
                for precision in ("autocast", "bf16")
                for options in ((), ("--compile",))
            ),
        ]
    else:
        missing.append(
            "PyTorch 2.x: "
            + (
                "its interpreter has no torch that can be imported"
                if python2
                else "--python2 was not given"
            )
        )
    if llmc_checkout:
        found.append(
            Competitor(
                "llmc",
                "llm.c, GPT-2 (another model)",
                lambda s: llmc(llmc_checkout, s, threads, LLMC_STEPS),
                repeated=False,
            )
        )  # takes minutes
    else:
        missing.append("llm.c: --llmc was not given")
    return found, missing


def pytorch_bf16(version, python, threads, steps, precision, options):
    weights = {"autocast": "BF16 by autocast", "bf16": "BF16 weights"}[precision]
    how = "compiled" if options else "eager"
    return Competitor(
        f"pytorch2_{precision}_{how}",
        f"PyTorch {version}, {weights}, {how}",
        lambda s: pytorch(python, s, threads, ALLOCATOR, steps, "--precision", precision, *options),
    )


def counters_of(competitor, shape):
    try:
        return competitor.run(shape)
    except child.Failed as problem:
        return {"failed": str(problem)}


def run_round(found, shapes, attempts, say):
    """One run of each with each shape, in turn, repeated while it is disturbed: [{name: shape/key,
    counters, others}].
    """
    benchmarks = []
    for shape in shapes:
        for competitor in found:
            counters, others = least_disturbed(
                lambda: counters_of(competitor, shape), attempts if competitor.repeated else 1
            )
            benchmarks.append(
                {
                    "name": f"{shape}/{competitor.key}",
                    "label": competitor.label,
                    "counters": counters,
                    "others": round(others, 3),
                }
            )
            say(
                f"{shape} {competitor.label}: "
                + ", ".join(
                    f"{value:.0f} {key}" if isinstance(value, float) else value
                    for key, value in counters.items()
                )
                + (f", while others used {others:.2f} cores" if is_disturbed(others) else "")
            )
    return benchmarks
