"""Compares training steps of this program and of others on the same machine, in turn
(A B C A B C ...), as a Markdown table.

  scripts/bench.py compare_step --build build/cpu [--shapes AE] [--rounds 5] [--python2 PATH]
                                [--llmc DIR]

Debian's PyTorch runs as installed, and tuned: with raised allocator thresholds, with its own BLAS
and with BLIS-OpenMP instead; which is faster depends on the processor. PyTorch 2.x (--python2: an
interpreter that has it) runs eagerly with scaled_dot_product_attention and with torch.compile;
llm.c (--llmc: a checkout) trains GPT-2 of the same shape, which is a different model. Each figure
is the median of the rounds; the ratio is taken round by round, then its median and range.
scripts/bench.py report does the same as one of its parts.
"""

import argparse
import os
import pathlib
import sys

from . import page
from .parts import Missing, Options, measure_peers


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build",
        required=True,
        type=pathlib.Path,
        help="where mpretrain and bench/step_bench were built",
    )
    parser.add_argument("--shapes", default="ABCDE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="an interpreter with the distribution's torch"
    )
    parser.add_argument("--python2", help="an interpreter with PyTorch 2.x")
    parser.add_argument("--llmc", help="a checkout of llm.c")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--quick", action="store_true", help="a step or two each, to check that everything runs"
    )
    args = parser.parse_args()
    options = Options(
        args.build,
        args.rounds,
        args.quick,
        args.shapes,
        args.python,
        args.python2,
        args.llmc,
        args.threads,
    )
    try:
        rounds = [
            {"benchmarks": measure_peers(options, lambda text: print(text, file=sys.stderr))}
            for _ in range(args.rounds)
        ]
    except Missing as problem:
        sys.exit(f"compare_step.py: error: {problem}")
    print("\n".join(page.peer_lines({"rounds": rounds})))
