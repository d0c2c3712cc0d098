"""Prints runs side by side: last validation loss, perplexity, and speed, beside the unigram entropy
of the text.

    scripts/compare_runs.py "AdamW=runs/adamw" "M+Adam=runs/m_plus_adam"
    scripts/compare_runs.py --manifest tokens/manifest.json runs/adamw runs/m_plus_adam
    scripts/compare_runs.py --differences runs/whole runs/resumed

Without the manifest of the tokens there is no column of the entropy. --differences compares the
training loss of every step with the first run's: how many are equal, and the largest difference. A
run without a step is named and left out. Exits 1 if none has a step, if one has no finite
validation loss, or has not learned more than how frequent each token is.
"""

import argparse
import math

from .metrics import BadRun, labelled_runs, unigram_entropy


def perplexity(loss):
    """exp(loss); infinite where no number is large enough."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def differences(run, first):
    """Of the training losses of the first run's steps: how many are equal, the largest
    difference.
    """
    losses, expected = dict(zip(*run.series("loss"))), dict(zip(*first.series("loss")))
    apart = [abs(losses[step] - expected[step]) for step in expected if step in losses]
    return [f"{apart.count(0.0)} of {len(expected)}", f"{max(apart, default=math.nan):.1e}"]


def row(label, run, entropy):
    loss = run.last("val_loss")
    shared = [f"{entropy:.4f}"] if entropy is not None else []
    return [
        label,
        f"{max(run.steps)}",
        f"{loss:.4f}",
        f"{perplexity(loss):.2f}",
        *shared,
        f"{run.median('tokens_per_second'):,.0f}",
    ]


def check(runs, entropy):
    """Throws where a run has nothing to compare by, or has learned nothing."""
    without = [label for label, run in runs if not math.isfinite(run.last("val_loss"))]
    if without:
        raise BadRun(f"{', '.join(without)}: no finite validation loss")
    failed = [
        label for label, run in runs if entropy is not None and run.last("val_loss") >= entropy
    ]
    if failed:
        raise BadRun(
            f"{', '.join(failed)}: validation loss is not below the unigram entropy of the text,"
            f" {entropy:.4f} nats"
        )


def print_table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    for index, cells in enumerate(rows):
        print(
            "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))
            )
        )
        if index == 0:
            print("  ".join("-" * width for width in widths))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "runs", nargs="+", metavar="[LABEL=]RUN", help="run directory or its metrics.jsonl"
    )
    parser.add_argument("--manifest", help="manifest.json of the tokens, for their unigram entropy")
    parser.add_argument(
        "--differences",
        action="store_true",
        help="compare the training loss of every step with the first run's",
    )
    args = parser.parse_args()
    entropy = unigram_entropy(args.manifest) if args.manifest else None
    runs = labelled_runs(args.runs)
    shared = ["unigram entropy"] if entropy is not None else []
    rows = [["run", "steps", "val loss", "perplexity", *shared, "tokens/s"]]
    rows += [row(label, run, entropy) for label, run in runs]
    if args.differences:
        rows[0] += ["equal losses", "largest difference"]
        for cells, (_, run) in zip(rows[1:], runs):
            cells += differences(run, runs[0][1])
    print_table(rows)
    check(runs, entropy)
