"""What the scripts of tables and figures have in common: arguments, cells at tuned values,
provenance, and files.

    with Artefact("main_table", __doc__) as artefact: ...

A script states its cells, has them run, and writes <output>/<name>.md, .csv and figures. It writes
the same from whatever is finished, so it may be stopped at any time; what is missing is shown as
not run.
"""

import argparse
import csv
import math
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

from .. import repository
from ..sweeps import configuration, options
from ..sweeps.cell import Cell, tokens_identity
from ..sweeps.launch import launcher_of
from ..sweeps.ledger import Ledger
from ..sweeps.progress import LiveTable
from ..sweeps.runner import Place, Runner, machine
from ..sweeps.stop import Stop
from . import compare
from .redraw import Page, fingerprints
from .rows import BUDGETS, SCALES

# Of a budget's length, with --quick: it shows that the path works, and nothing else.
QUICK_BUDGET = float(os.environ.get("MPT_QUICK_BUDGET", "0.02"))
# What results do not depend on: options with a value, and flags.
RUNNING_OPTIONS, RUNNING_FLAGS = (
    ("--jobs", "--retry", "--launcher"),
    ("--report-only", "--no-wait", "--redraw"),
)
RECORD = (
    "seed",
    "val_loss",
    "val_loss_family",
    "steps",
    "tokens",
    "state",
    "fingerprint",
)  # of a CSV of cells
QUICK_CHANGES = {"eval.tokens": int(1e6 * QUICK_BUDGET)}


def parser(description):
    """Arguments that all scripts take."""
    found = argparse.ArgumentParser(description=description.split("\n\n")[0])
    found.add_argument(
        "--scale",
        choices=SCALES,
        default="pico",
        help="size of the model, as in configs/<scale>_*.json",
    )
    found.add_argument(
        "--budget",
        type=float,
        default=1,
        metavar="{1,2,4,8}",
        help="length of runs in multiples of 20 tokens per parameter",
    )
    found.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_place(found)
    found.add_argument(
        "--output",
        type=pathlib.Path,
        help="directory for tables and figures; default: results/<scale>",
    )
    options.add_program(found)
    found.add_argument(
        "--tuned",
        type=pathlib.Path,
        help=(
            "hyperparameters by row, written by tune.py; default: "
            "<output>/tuned.json, then docs/results/<scale>/tuned.json, then the configs' values"
        ),
    )
    options.add_running(found)
    found.add_argument(
        "--quick",
        action="store_true",
        help=f"runs of {QUICK_BUDGET:g} of their length and one seed: a check that all works",
    )
    found.add_argument(
        "--report-only", action="store_true", help="run nothing; write the finished results"
    )
    found.add_argument(
        "--redraw",
        action="store_true",
        help=(
            "run nothing and write <output>/<script>.md and its figures again from"
            " <output>/<script>.csv and runs.csv, with the arguments in the page; needs no tokens"
        ),
    )
    return found


class Artefact:
    """One table or figure: its arguments, cells, results and files."""

    def __init__(self, name, description, arguments=None, add_arguments=None):
        found = parser(description)
        if add_arguments:
            add_arguments(found)
        self.name = name
        self.page = None
        self.args = found.parse_args(arguments)
        if self.args.redraw:
            self.page = Page(self._output() / f"{name}.md")
            given = sys.argv[1:] if arguments is None else arguments
            self.args = found.parse_args([*self.page.arguments, *given, "--report-only"])
        self.scale, self.output = self.args.scale, self._output()
        self.seeds = self.args.seeds[:1] if self.args.quick else self.args.seeds
        self.tuned, self.tuned_from = self._tuned()
        self._runner, self._fingerprints = None, None
        self.stop = Stop().listen()
        self.failed = False

    def _output(self):
        return self.args.output or pathlib.Path("results") / self.args.scale

    # --- cells

    def cell(self, row, seed, budget=None, changes=None):
        """A row at its tuned values, budget in multiples of 20 tokens a parameter; `changes` on top
        of all.
        """
        budget = self.args.budget if budget is None else budget
        return self.untuned_cell(
            row, seed, budget, {**row.changes, **self.tuned_values(row, budget), **(changes or {})}
        )

    def untuned_cell(self, row, seed, budget, changes):
        """A row with these changes to its config, and no others."""
        length = {
            "train.chinchilla": budget * (QUICK_BUDGET if self.args.quick else 1),
            "seed": seed,
        }
        return Cell.of(
            row.file(self.scale), length, QUICK_CHANGES if self.args.quick else {}, changes
        )

    def tuned_values(self, row, budget):
        """{key: value}; of a budget of its own where it was tuned at it, else of budget 1."""
        row = row.tuned_as or row.key
        return self.tuned.get(f"{row}@{budget:g}", self.tuned.get(row, {}))

    def run(self, cells):
        """Brings all cells to their end, unless only a report is wanted. Failed ones are named and
        make the exit status 1.
        """
        if not self.args.report_only and not self.runner.run(cells):
            self.failed = True

    def losses(self, header, cells, label, in_order=()):
        """{key: {seed: loss}} of {key: [cell of each seed]}, which are run before, `in_order` where
        that is not theirs, and written to the CSV, under what label(key, cell) calls them.
        """
        labelled = [(label(key, cell), cell) for key, found in cells.items() for cell in found]
        self.name_cells(header, labelled)
        self.run(in_order or [cell for _, cell in labelled])
        self.write_cells()
        return {key: compare.losses_by_seed(self, found) for key, found in cells.items()}

    def name_cells(self, header, labelled):
        """Says what the CSV calls the cells, [(values of header, cell), ...]: with --redraw, they
        are found by that.
        """
        self._header, self._labelled = header, labelled
        if self.page:
            self._fingerprints = fingerprints(self.path(".csv"), header, labelled)
            self._ledger = Ledger(self.output / "runs.csv")

    def fingerprint(self, cell):
        return self._fingerprints[cell] if self.page else cell.fingerprint(self.args.tokens)

    def result(self, cell):
        """What a cell came to, None if it is not finished."""
        return self._ledger.get(self.fingerprint(cell)) if self.page else self.runner.result(cell)

    def check_tokens(self):
        """Ends the script with what is missing where --tokens is no directory of tokens."""
        if self.page:
            return
        if self.args.tokens is None:
            sys.exit(
                f"{self.name}: error: --tokens is missing; expected a directory that `mpretrain"
                " tokenize` wrote (scripts/reproduce/prepare_text.sh makes one for pico and nano,"
                " scripts/prepare_c4.sh for the rest)"
            )
        tokens_identity(str(self.args.tokens))

    @property
    def runner(self):
        """Made when it is first needed: tables that train nothing need no tokens."""
        if self._runner is None:
            args = self.args
            self.check_tokens()
            launcher = launcher_of(args.launcher, args.program, args.threads, wait=not args.no_wait)
            jobs = args.jobs or launcher.default_jobs
            place = Place(args.program, args.tokens, args.work, args.threads, jobs, args.retry)
            self._runner = Runner(
                place,
                Ledger(self.output / "runs.csv"),
                launcher,
                self.version(),
                LiveTable(self.name, jobs),
                self.stop,
            )
        return self._runner

    def _tuned(self):
        """({row: {key: value}}, where from)"""
        shipped = repository.ROOT / "docs/results" / self.scale / "tuned.json"
        if self.args.tuned and not self.args.tuned.exists():
            sys.exit(
                f"{self.name}: error: {self.args.tuned}: no such file; expected the file that"
                " tune.py writes"
            )
        for path in (self.args.tuned, self.output / "tuned.json", shipped):
            if path and path.exists():
                return configuration.parse(path), path
        return {}, None

    # --- files

    def path(self, suffix):
        self.output.mkdir(parents=True, exist_ok=True)
        return self.output / f"{self.name}{suffix}"

    def write_markdown(self, title, lines, cells=(), of=None):
        """<name>.md: title, command, provenance, the lines, and <name>.notes.md behind them if
        there is one.

        The title says of what scale it is, or `of` what; "" where that makes no difference.
        """
        notes = self.path(".notes.md")
        tail = ["", notes.read_text(encoding="utf-8").strip()] if notes.exists() else []
        heading = ", ".join(filter(None, [title, self.scale if of is None else of]))
        text = [
            f"# {heading}",
            "",
            f"    {self.command()}",
            "",
            *self.provenance(cells),
            "",
            *lines,
            *tail,
            "",
        ]
        self.path(".md").write_text("\n".join(text), encoding="utf-8")
        print("\n".join(lines))
        print(f"written: {self.path('.md')}")

    def finish(self, title, lines, cells, figure=None):
        """Writes page and figure. Returns the exit status."""
        self.write_markdown(title, lines, cells)
        if figure:
            self.write_figure(figure)
        return 1 if self.failed else 0

    def write_cells(self):
        """<name>.csv: a line for each of the named cells, finished or not. What is drawn again
        stays.
        """
        if not self.page:
            self.write_csv(
                [*self._header, *RECORD],
                [[*values, *self._record(cell)] for values, cell in self._labelled],
            )

    def _record(self, cell):
        """As RECORD names it."""
        result, fingerprint = self.result(cell), self.fingerprint(cell)
        if result is None:
            return [cell.seed, "", "", "", "", "not run", fingerprint]
        family = "" if math.isnan(result.val_loss_family) else f"{result.val_loss_family:.6f}"
        return [
            cell.seed,
            f"{result.val_loss:.6f}",
            family,
            result.steps,
            result.tokens,
            result.state,
            fingerprint,
        ]

    def write_csv(self, header, rows):
        with open(self.path(".csv"), "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    def write_figure(self, figure, suffix=""):
        for kind in (".png", ".pdf"):
            figure.savefig(
                self.path(suffix + kind),
                dpi=120,
                bbox_inches="tight",
                metadata={"CreationDate": None} if kind == ".pdf" else None,
            )
        with_few_colours(self.path(suffix + ".png"))

    # --- provenance

    def command(self):
        """What regenerates this; paths of the machine left out, and what only says how runs are
        carried out.
        """
        if self.page:
            return self.page.command
        shown = {"--tokens": "TOKENS", "--work": "RUNS", "--program": "PROGRAM"}
        given = [part for word in sys.argv[1:] for part in halves(word)]
        words = [
            shown.get(before, word)
            for before, word in zip(["", *given], given)
            if word not in RUNNING_OPTIONS + RUNNING_FLAGS and before not in RUNNING_OPTIONS
        ]
        return shlex.join(["scripts/reproduce.py", self.name, *words])

    def version(self):
        """Of the program, and the commit that its scripts are of."""
        found = output_of(self.args.program, "--version")
        if not found and not self.args.report_only:
            sys.exit(
                f"{self.name}: error: {self.args.program}: not the program mpretrain; build it or"
                " give --program"
            )
        commit = output_of(
            "git", "-C", str(repository.ROOT), "describe", "--always", "--dirty", "--abbrev=7"
        )
        return " ".join([*found.splitlines()[:1], commit]).strip()

    def provenance(self, cells):
        """Lines: lengths, seeds, configs, machines and versions of the finished cells."""
        results = [result for cell in cells if (result := self.result(cell))]
        if not cells:
            return self.page.provenance if self.page else [f"{machine()}."]
        if not results:
            return ["No cell is finished."]
        tokens = sorted({result.tokens for result in results if result.state == "finished"})
        length = (
            f"{tokens[0]:,}" + (f" to {tokens[-1]:,}" if len(tokens) > 1 else "")
            if tokens
            else "no"
        )
        seeds = " ".join(map(str, sorted({result.seed for result in results})))
        tuned = (
            f"Hyperparameters of `{self.tuned_from.name}`"
            if self.tuned_from
            else "Rates of the configs, not tuned"
        )
        quick = (
            " **A quick run: it shows that the path works and says nothing about optimizers.**"
            if self.args.quick
            else ""
        )
        return [
            f"{len(results)} of {len(set(cells))} runs, {length} tokens each, seeds {seeds}."
            f" {tuned}. Configs and their fingerprints: `runs.csv`."
            f" {'; '.join(sorted({r.machine for r in results}))}."
            f" {'; '.join(sorted({r.version for r in results}))}.{quick}"
        ]


def with_few_colours(path):
    """Lines and text need no more than a palette, which takes a third of the bytes."""
    from PIL import Image  # pylint: disable=import-outside-toplevel  (matplotlib brings it)

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(96, dither=Image.NONE)
    small.save(path, optimize=True)


def halves(word):
    """--option and its value of --option=value; another word as it is."""
    return word.split("=", 1) if re.match(r"--[\w-]+=", word) else [word]


def output_of(*command):
    """What a command prints, nothing where it fails or is not there; nobody needs git to reproduce
    a table.
    """
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


# --- numbers


def by_seed(cells):
    """Of {key: [cell of each seed]}: all of the first seed before those of the next, each once."""
    return list(dict.fromkeys(cell for of_one_seed in zip(*cells.values()) for cell in of_one_seed))


def spread(losses, digits=4):
    """mean ± standard deviation over seeds; no deviation of one."""
    if not losses:
        return "not run"
    if any(math.isinf(loss) for loss in losses):
        return f"diverged ({sum(map(math.isinf, losses))} of {len(losses)})"
    deviation = f" ± {statistics.stdev(losses):.{digits}f}" if len(losses) > 1 else ""
    return f"{statistics.fmean(losses):.{digits}f}{deviation}"


def perplexity(losses):
    """exp of the mean loss, as text."""
    return (
        f"{math.exp(statistics.fmean(losses)):.3f}"
        if losses and all(map(math.isfinite, losses))
        else ""
    )


def budgets_up_to(largest):
    return [budget for budget in BUDGETS if budget <= largest] or [largest]
