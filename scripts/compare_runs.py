#!/usr/bin/env python3
"""Prints runs side by side: last validation loss, perplexity, and speed, beside the unigram entropy of the text.

    scripts/compare_runs.py --manifest tokens/manifest.json "AdamW=runs/adamw" "M+Adam=runs/m_plus_adam"

Exits 1 if a run has no finite validation loss or has not learned more than how frequent each token is.
"""

import argparse
import math
import sys

from run_metrics import BadRun, Run, unigram_entropy


def row(label, run, entropy):
    loss = run.last("val_loss")
    return [label, f"{max(run.steps)}", f"{loss:.4f}", f"{math.exp(loss):.2f}", f"{entropy:.4f}",
            f"{run.median('tokens_per_second'):,.0f}"]


def print_table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    for index, cells in enumerate(rows):
        print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))))
        if index == 0:
            print("  ".join("-" * width for width in widths))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="LABEL=RUN")
    parser.add_argument("--manifest", required=True, help="manifest.json of the tokens")
    args = parser.parse_args()
    entropy = unigram_entropy(args.manifest)
    runs = [(label, Run(path)) for label, _, path in (text.rpartition("=") for text in args.runs)]
    header = ["optimizer", "steps", "val loss", "perplexity", "unigram entropy", "tokens/s"]
    print_table([header] + [row(label, run, entropy) for label, run in runs])
    failed = [label for label, run in runs if not run.last("val_loss") < entropy]
    if failed:
        raise BadRun(f"{', '.join(failed)}: validation loss is not below the unigram entropy of the text, {entropy:.4f} nats")


if __name__ == "__main__":
    try:
        main()
    except BadRun as problem:
        sys.exit(f"compare_runs.py: error: {problem}")
