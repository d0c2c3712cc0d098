"""The pages of a study: results, tests and provenance on one, tuning on another; and their CSVs."""

import math
import statistics
from collections import Counter

from ..markdown import table
from ..reproduce.compare import SHOWN, probability
from . import hypotheses, protocol
from .knobs import shown


def number(value, digits=4):
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


class Report:
    """What both pages say, from a Study, what is Known and how far it was Walked."""

    def __init__(self, study, known, walked):
        self.study, self.known, self.walked = study, known, walked
        self.tested = hypotheses.adjusted([self._tested(one) for one in study.comparisons])

    # --- losses

    def losses(self, part, arm):
        """{seed: loss} of the finished runs, inf of a diverged one."""
        rows = self.walked.rows[part, arm]
        return {seed: row.val_loss for seed, row in rows.items() if row is not None}

    def _tested(self, one):
        if not one.results:
            return hypotheses.tested(one, hypotheses.Sample())
        arms = list(dict.fromkeys(arm for _, arm in hypotheses.signs(one)))
        losses = {arm: self.losses(one.results, arm) for arm in arms}
        wanted = {arm: self.walked.rows[one.results, arm] for arm in arms}
        missing = ", ".join(
            f"{arm} {len(losses[arm])} of {len(wanted[arm])} seeds"
            for arm in arms
            if len(losses[arm]) < len(wanted[arm])
        )
        vocabulary = self.study.cell(arms[0], 1, 1).value("model.vocab_size")
        sample = hypotheses.sample_of(one, losses, math.log(vocabulary))
        return hypotheses.tested(one, sample, missing)

    # --- results

    def results_page(self, figures):
        study = self.study
        lines = [f"# {study.title}", "", *self._how_made(), ""]
        for part in study.results:
            lines += [f"## {part.name}", "", *self._results_table(part), ""]
            lines += [line for name, text in figures if name == part.name for line in (text, "")]
        if self.tested:
            lines += ["## Hypotheses", "", *self._hypotheses(), ""]
        lines += ["## Provenance", "", *self._provenance()]
        return lines

    def _how_made(self):
        cells = [row for rows in self.walked.rows.values() for row in rows.values()]
        done = sum(row is not None for row in cells)
        missing = "" if done == len(cells) else " What is missing is said in the tables."
        quick = self.study.quick
        trial = [
            f"**A trial with {quick:g} of all budgets: it shows that the path works, and says"
            " nothing about the arms.**",
            "",
        ]
        return [
            f"    scripts/study.py report {self.study.path.name}"
            + ("" if quick == 1 else f" --quick {quick:g}"),
            "",
            *([] if quick == 1 else trial),
            f"{done} of {len(cells)} runs of the results are finished.{missing}"
            " How the values were found: [tuning](tuning.md).",
        ]

    def _results_table(self, part):
        header = ["arm", "validation loss", "seeds", "perplexity", "diverged", "tokens/s", "values"]
        rows = [self._result(part, arm) for arm in part.arms]
        seeds = ", ".join(map(str, part.seeds))
        return [
            *table(header, rows),
            "",
            f"Budget {part.budget:g} times 20 tokens a parameter; seeds {seeds}. Losses in nats per"
            " token, mean ± standard deviation over the seeds that did not diverge.",
        ]

    def _result(self, part, arm):
        losses = self.losses(part.name, arm)
        finite = [loss for loss in losses.values() if math.isfinite(loss)]
        rows = [row for row in self.walked.rows[part.name, arm].values() if row]
        speed = statistics.median(row.tokens_per_second for row in rows) if rows else math.nan
        mean = statistics.fmean(finite) if finite else math.nan
        deviation = f" ± {statistics.stdev(finite):.4f}" if len(finite) > 1 else ""
        return [
            self.study.arm(arm).label,
            f"{mean:.4f}{deviation}" if finite else "diverged" if losses else "not run",
            f"{len(losses)} of {len(part.seeds)}",
            f"{math.exp(mean):.3f}" if finite else "",
            len(losses) - len(finite) or "",
            "" if math.isnan(speed) else f"{speed:,.0f}",
            self._values(part.name, arm),
        ]

    def _values(self, part, arm):
        """Where the hyperparameters of an arm are from."""
        if why := self.walked.waiting.get((part, arm)):
            return why
        other = self.study.arm(arm).tuned_as
        if self.study.tuned_in(arm) is None:
            return "of the configuration, not tuned"
        return f"tuned as {self.study.arm(other).label}" if other else "tuned"

    # --- hypotheses

    HEADER = ("hypothesis", "n", "difference", "95 % interval", "test", "p", "p, Holm", "verdict")

    def _hypotheses(self):
        lines = []
        for family in dict.fromkeys(one.comparison.family for one in self.tested):
            found = [one for one in self.tested if one.comparison.family == family]
            lines += [f"Family {family}, hypotheses: {len(found)}.", ""]
            lines += [*table(self.HEADER, [self._hypothesis(one) for one in found]), ""]
            lines += [f"* {note}" for one in found for note in self._notes(one)]
            lines += [""] if lines[-1].startswith("*") else []
        lines += [*self._power(), "", HOW]
        return lines

    def _hypothesis(self, one):
        interval = f"[{one.interval[0]:+.4f}, {one.interval[1]:+.4f}]" if one.interval else ""
        testable = one.sample.is_testable
        return [
            f"{one.comparison.name}: {self._formula(one.comparison)}",
            one.sample.count if not math.isnan(one.mean) else "0",
            "" if math.isnan(one.mean) else f"{one.mean:+.4f}",
            interval,
            one.test,
            probability(one.p) if testable else "",
            probability(one.adjusted) if testable else "",
            one.verdict,
        ]

    def _formula(self, comparison):
        label = {name: arm.label for name, arm in self.study.arms.by_name.items()}
        if comparison.kind == "interaction":
            (a1, a2), (b1, b2) = comparison.arms
            return f"({label[a1]} − {label[a2]}) − ({label[b1]} − {label[b2]})"
        text = " − ".join(label[name] for name in comparison.arms)
        return f"\\|{text}\\| < {comparison.margin:g}" if comparison.margin else text

    @staticmethod
    def _notes(one):
        """What must not be overlooked about a hypothesis."""
        name, sample = one.comparison.name, one.sample
        if one.missing:
            yield f"{name}: {one.missing}."
        if sample.unpaired:
            yield f"{name}: {sample.unpaired} runs without a partner of their seed are left out."
        if sample.diverged:
            said = (
                f"{name}: diverged: {', '.join(sample.diverged)}; counted as the loss"
                f" {sample.worst:.4f}, the worst."
            )
            if sample.is_testable:
                said += (
                    f" The verdict is by ranks; t test p {probability(one.p_t)}"
                    + (f", sign test p {probability(one.p_sign)}" if sample.pairs else "")
                    + "."
                )
            yield said

    def _power(self):
        """What so many seeds could have shown."""
        rows = [
            [
                one.comparison.name,
                one.sample.count,
                number(one.smallest(SHOWN)),
                number(one.smallest(SHOWN / hypotheses.family_size(self.tested, one))),
            ]
            for one in self.tested
            if not math.isnan(one.smallest(SHOWN))
        ]
        if not rows:
            return ["No hypothesis has enough runs yet to say what they could show."]
        head = ["hypothesis", "n", "smallest difference", "as the first of its family"]
        return [
            "Power: the smallest true difference (nats) that a t test with so many runs, at the"
            f" spread seen, finds in {hypotheses.POWER:.0%} of studies at p < {SHOWN:g}, by itself"
            " and at Holm's strictest threshold:",
            "",
            *table(head, rows),
        ]

    # --- provenance

    def _provenance(self):
        rows = self._used()
        lines = protocol.described(self.study, rows)
        lines += ["", *self._programs(rows), "", *self._text(rows)]
        machines = Counter(row.machine for row in rows)
        lines += ["", "Machines: " + "; ".join(f"{n} cells on {m}" for m, n in machines.items())]
        lines[-1] += "." if machines else "none."
        if others := self._of_no_cell():
            lines += [
                "",
                f"**{others} finished cells of the ledger are none of the study: its file, or the"
                " configurations that it names, were other ones when they were run.**",
            ]
        return [*lines, *self._drift()]

    def _of_no_cell(self):
        """How many rows of the ledger no part of the study asks for."""
        asked = {cell.identity() for cell in self.walked.all_cells()}
        return sum(row.cell not in asked for row in self.known.rows)

    def _used(self):
        """Rows that the pages are made of."""
        cells = self.walked.all_cells()
        found = {row.key: row for cell in cells if (row := self.known.get(cell))}
        return list(found.values())

    def _programs(self, rows):
        counts = Counter((row.program, row.version) for row in rows)
        listed = [[f"`{hash}`", version, count] for (hash, version), count in counts.items()]
        accepted = "any program" if not self.study.programs else "the programs of the study's file"
        lines = [
            f"Accepted: {accepted}. The hash is of what a program computes: its sources without"
            " comments and without the command line's; `binary:` of the executable, where the"
            " sources are not known by a commit.",
            "",
            *table(["program", "version", "cells"], listed),
        ]
        if refused := self.known.refused:
            programs = Counter(row.program for row in refused)
            told = ", ".join(f"{count} of `{name}`" for name, count in programs.items())
            lines += ["", f"**Not used, of programs that are not accepted: {told}.**"]
        return lines

    def _text(self, rows):
        found = sorted({row.corpus for row in rows})
        pinned = " (pinned by the study's file)" if self.study.corpus else ""
        told = ", ".join(f"`{one}…`" for one in found) or "none yet"
        lines = [f"Text: SHA-256 of the token shards {told}{pinned}."]
        if self.known.other_text:
            lines.append(f"**{self.known.other_text} cells of other texts are not used.**")
        return lines

    def _drift(self):
        rows = self.drift()
        if not rows:
            return []
        largest = max(abs(row[-1]) for row in rows)
        head = ["cell", "arm", "seed", "program", "loss", "other program", "loss", "difference"]
        return [
            "",
            "### Same cell, two programs",
            "",
            *table(head, [[*row[:-1], f"{row[-1]:+.6f}"] for row in rows]),
            "",
            f"Largest difference: {largest:.6f} nats.",
        ]

    def drift(self):
        """Rows of cells that two programs computed."""
        found = []
        for (_, arm), cells in self.walked.cells.items():
            for seed, cell in cells.items():
                rows = self.known.all_of(cell)
                for other in rows[1:]:
                    one = rows[0]
                    first = [f"`{cell.identity()}`", self.study.arm(arm).label, seed]
                    first += [f"`{one.program}`", f"{one.val_loss:.6f}"]
                    second = [f"`{other.program}`", f"{other.val_loss:.6f}"]
                    same = one.val_loss == other.val_loss  # also where both diverged
                    difference = 0.0 if same else other.val_loss - one.val_loss
                    found.append([*first, *second, difference])
        return found

    # --- tuning

    def tuning_page(self, figures):
        lines = [f"# Tuning of {self.study.title}", "", *self._warnings(), ""]
        for found in self.walked.shared:
            lines += [f"## {found.shared.name}", "", *self._shared(found), ""]
        for group in self.study.tuning:
            lines += [f"## {group.name}", "", *self._group(group), ""]
            lines += [line for name, text in figures if name == group.name for line in (text, "")]
            for arm in group.arms:
                lines += [f"### {self.study.arm(arm).label}", "", *self._arm(arm), ""]
        if not (self.study.tuning or self.study.shared):
            lines += ["Nothing is tuned."]
        return lines

    def _warnings(self):
        """Lines about arms whose best value lies at an edge, and about unequal numbers of runs."""
        lines = []
        for arm, tuned in self.walked.tuned.items():
            for key, side in tuned.edges.items():
                knob = next(knob for knob in tuned.knobs if knob.key == key)
                value = shown(tuned.best.point[key])
                times = len({wave for wave, moved, *_ in tuned.moved if moved == key})
                widened = f"widened {_times(times)}" if times else "not widened"
                if (knob.low if side == "low" else knob.high) == (
                    knob.least if side == "low" else knob.most
                ):
                    widened += ", this end is its limit"
                lines.append(
                    f"* **At an edge: {self.study.arm(arm).label}, {key} = {value}, the {side} end"
                    f" of {knob.described()} ({widened}).**"
                )
        for group in self.study.tuning:
            counts = {self.walked.tuned[arm].done for arm in group.arms}
            if len(counts) > 1:
                told = f"from {min(counts)} to {max(counts)}"
                lines.append(f"* **{group.name}: the arms have {told} runs so far.**")
        return lines or ["No tuned value lies at an edge, and arms of a group have as many runs."]

    def _shared(self, found):
        shared = found.shared
        rows = []
        for values, best in found.scores:
            losses = list(best.values())
            known = None not in losses
            mean = "not finished"
            if known:
                finite = all(map(math.isfinite, losses))
                mean = f"{statistics.fmean(losses):.4f}" if finite else "diverged"
            text = ", ".join(f"{key} = {_text(value)}" for key, value in values.items())
            chosen = "chosen" if values == found.chosen else ""
            rows.append([text, *(_loss(loss) for loss in losses), mean, chosen])
        labels = [self.study.arm(arm).label for arm in shared.arms]
        targets = ", ".join(self.study.arm(arm).label for arm in shared.targets)
        at = "; ".join(f"{key} in {', '.join(map(_text, v))}" for key, v in shared.at.items())
        return [
            *table(["values", *labels, "mean", ""], rows),
            "",
            f"Seed {shared.seed}, budget {shared.budget:g}"
            + (f", of each arm the best of {at}" if at else "")
            + f". Taken by: {targets}.",
        ]

    def _group(self, group):
        keys = list(dict.fromkeys(k.key for arm in group.arms for k in self.study.arm(arm).knobs))
        rows = []
        for arm in group.arms:
            tuned = self.walked.tuned[arm]
            best = tuned.best
            values = [_text(best.settings.get(key, "")) if best else "" for key in keys]
            loss = _loss(best.loss) if best else "not finished"
            edge = ", ".join(f"{key}: {side}" for key, side in tuned.edges.items())
            rows.append([self.study.arm(arm).label, tuned.done, *values, loss, edge])
        rungs = ", ".join(f"{_points(rung)} at budget {rung.budget:g}" for rung in group.rungs)
        widened = (
            f" Where the best point of the first rung lies within {group.edge:g} of an end of its"
            f" range, the range is widened by the factor {group.widen_factor:g}, at most"
            f" {_times(group.widen_times)}; every arm then tries {group.widen_points} points more."
            if group.widen_times
            else ""
        )
        return [
            *table(["arm", "runs", *keys, "loss", "at an edge"], rows),
            "",
            f"Sampler {group.sampler}, seed {group.seed}, which no result has: {rungs}.{widened}",
        ]

    def _arm(self, arm):
        tuned = self.walked.tuned[arm]
        keys = [knob.key for knob in self.study.arm(arm).knobs]
        ranges = (f"{knob.key} in {knob.described()}" for knob in self.study.arm(arm).knobs)
        lines = [f"Ranges: {'; '.join(ranges)}."]
        for wave, key, old, new in tuned.moved:
            lines.append(f"Widened, {wave}: {key} from {old.described()} to {new.described()}.")
        others = [other.label for other in self._taking(arm)]
        if others:
            lines.append(f"Also taken by {', '.join(others)}.")
        rows = [
            [
                trial.rung + 1,
                trial.wave or "",
                *(_text(trial.point[key]) for key in keys),
                _loss(trial.loss),
                "best" if trial is tuned.best else "",
            ]
            for trial in tuned.trials
        ]
        return [" ".join(lines), "", *table(["rung", "widened", *keys, "loss", ""], rows)]

    def _taking(self, arm):
        return [other for other in self.study.arms.by_name.values() if other.tuned_as == arm]

    # --- CSVs

    def results_csv(self):
        rows = [
            [part, arm, seed, *_record(row), cell.described_changes(), cell.identity()]
            for (part, arm), cells in self.walked.cells.items()
            for seed, cell in cells.items()
            for row in [self.walked.rows[part, arm][seed]]
        ]
        head = ["results", "arm", "seed", "val_loss", "train_loss", "state", "tokens", "program"]
        return [[*head, "changes", "cell"], *rows]

    def tuning_csv(self):
        rows = [
            [
                tuned.group.name,
                arm,
                trial.rung + 1,
                trial.wave,
                knob.key,
                trial.point[knob.key],
                trial.settings[knob.key],
                "" if trial.loss is None else trial.loss,
                int(trial is tuned.best),
                trial.cell.identity(),
            ]
            for arm, tuned in self.walked.tuned.items()
            for trial in tuned.trials
            for knob in self.study.arm(arm).knobs
        ]
        head = ["tuning", "arm", "rung", "widened", "key", "searched", "value", "val_loss", "best"]
        return [[*head, "cell"], *rows]

    def hypotheses_csv(self):
        rows = [
            [
                one.comparison.family,
                one.comparison.name,
                one.comparison.kind,
                one.comparison.results,
                one.sample.count,
                one.mean,
                *(one.interval or ("", "")),
                one.test,
                one.p_t,
                one.p_rank,
                one.p_sign,
                one.adjusted,
                len(one.sample.diverged),
                one.smallest(SHOWN),
                one.verdict,
            ]
            for one in self.tested
        ]
        head = "family name kind results n difference low high test p_t p_rank p_sign p_holm"
        return [[*head.split(), "diverged", "smallest_difference", "verdict"], *rows]


HOW = (
    f"Verdicts follow p adjusted by Holm's method within a family: below {SHOWN:g} a difference is"
    " called lower or higher, or equivalence shown. n counts pairs of runs of the same seed, or the"
    " runs of each arm where no seed is shared. Intervals are of 95 %, by the t distribution. A"
    " diverged run counts as the worst value, and then an exact test by ranks decides. A hypothesis"
    " that is not run yet counts in its family with p = 1."
)


def _record(row):
    if row is None:
        return ["", "", "not run", "", ""]
    return [row.val_loss, row.train_loss, row.state, row.tokens, row.program]


def _times(number):
    return "once" if number == 1 else f"{number} times"


def _points(rung):
    return f"{rung.keep} kept" if rung.keep else f"{rung.points or 'all'} points"


def _loss(loss):
    if loss is None:
        return "not run"
    return f"{loss:.4f}" if math.isfinite(loss) else "diverged"


def _text(value):
    return shown(value)
