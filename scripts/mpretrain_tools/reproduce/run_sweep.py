"""Runs the sweep of a JSON file and writes a table of its cells, one row a combination, over the
seeds.

    scripts/reproduce.py run_sweep scripts/reproduce/sweeps/learning_rate.json --tokens data/tokens

What the file may say: mpretrain_tools/sweeps/sweep.py. What is finished is not run again, and what
was interrupted goes on from its last checkpoint: stop it at any time and start it with the same
arguments.
"""

import argparse
import pathlib
import statistics

from .. import markdown
from ..sweeps import sweep
from ..sweeps.configuration import BadConfig
from ..sweeps.progress import common_changes, label
from . import compare
from .artefact import QUICK_BUDGET, QUICK_CHANGES, Artefact, perplexity, spread

COLUMNS = ("val loss, mean ± sd", "seeds", "perplexity", "tokens", "tokens/s")
# Mean and deviation are of the seeds that did not diverge.
NUMBERS = (
    "val_loss_mean",
    "val_loss_sd",
    "finished",
    "diverged",
    "tokens",
    "tokens_per_second",
    "fingerprints",
)


class SweepTable(Artefact):
    """A table of a sweep's combinations."""

    def __init__(self):
        super().__init__("run_sweep", __doc__, add_arguments=self._add_arguments)
        if self.args.tuned:
            raise BadConfig(
                f"--tuned {self.args.tuned}: a sweep states all its values itself; put them into"
                f' "set" of {self.args.sweep}'
            )
        self.sweep = sweep.Sweep(self.args.sweep, self.scale)
        self.name = self.sweep.name
        self.tuned_from = None  # a sweep says its values itself
        seeds = self.args.seeds or self.sweep.seeds
        self.seeds = seeds[:1] if self.args.quick else seeds
        quick, more = (QUICK_BUDGET, QUICK_CHANGES) if self.args.quick else (1.0, {})
        self.rows = [
            (
                combination,
                [combination.cell(seed, self.args.budget, quick, more) for seed in self.seeds],
            )
            for combination in self.sweep.combinations()
        ]
        self.cells = [cell for _, cells in self.rows for cell in cells]

    @staticmethod
    def _add_arguments(parser):
        parser.add_argument("sweep", type=pathlib.Path, help="JSON file, described below")
        parser.set_defaults(seeds=[])  # then those of the file
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = f"{sweep.__doc__}Without --seeds, those of the file count."

    def write(self):
        axes = [name.split(".")[-1] for name in self.sweep.axes]
        lines, table = [], []
        for combination, cells in self.rows:
            results = [result for cell in cells if (result := self.result(cell))]
            lines.append([*combination.labels, *shown(results)])
            table.append([*combination.labels, *numbers(results)])
        self.write_csv([*axes, *NUMBERS], table)
        self.write_markdown(
            f"Sweep {self.name}",
            markdown.table([*axes, *COLUMNS], lines) + self.comparisons(axes) + self._failures(),
            self.cells,
        )

    def comparisons(self, axes):
        """Lines of tests against the baseline, none where the sweep names none."""
        losses = {
            combination.labels: compare.losses_by_seed(self, cells)
            for combination, cells in self.rows
        }
        differences = {
            combination.labels: compare.difference(losses[combination.labels], losses[other])
            for combination, _ in self.rows
            if (other := self.sweep.labels_of_baseline(combination))
        }
        if not differences:
            return []
        against = ", ".join(
            f"{axis.split('.')[-1]} = {chosen}" for axis, chosen in self.sweep.baseline.items()
        )
        return [
            "",
            f"Loss against {against}, the rest the same:",
            "",
            *compare.tested_table(axes, differences),
            "",
            compare.HOW,
        ]

    def _failures(self):
        failed = {
            cell: status.error
            for cell, status in self.runner.statuses.items()
            if status.state == "failed"
        }
        common = common_changes(self.cells)
        return (
            ["", *(f"* failed: {label(cell, common)}: {error}" for cell, error in failed.items())]
            if failed
            else []
        )


def shown(results):
    """Columns of the Markdown, of one combination over its seeds."""
    losses = [result.val_loss for result in results]
    tokens = f"{max(result.tokens for result in results):,}" if results else ""
    speed = (
        f"{statistics.fmean(result.tokens_per_second for result in results):,.0f}"
        if results
        else ""
    )
    return [spread(losses), str(len(losses)), perplexity(losses), tokens, speed]


def numbers(results):
    """Columns of the CSV, as NUMBERS calls them."""
    losses = [result.val_loss for result in results if result.state == "finished"]
    mean = f"{statistics.fmean(losses):.6f}" if losses else ""
    deviation = f"{statistics.stdev(losses):.6f}" if len(losses) > 1 else ""
    tokens = max((result.tokens for result in results), default="")
    speed = (
        f"{statistics.fmean(result.tokens_per_second for result in results):.0f}" if results else ""
    )
    return [
        mean,
        deviation,
        len(losses),
        len(results) - len(losses),
        tokens,
        speed,
        " ".join(result.fingerprint for result in results),
    ]


def main():
    table = SweepTable()
    table.run(table.cells)
    table.write()
    return 1 if table.failed else 0
