"""Tables of a study's findings as CSV: results, what tuning tried, hypotheses."""

from ..reproduce.compare import SHOWN
from .updates import FIELDS


def results(findings):
    rows = [
        [part, arm, seed, *_record(row), findings.study.described(arm, cell), cell.identity()]
        for (part, arm), cells in findings.walked.cells.items()
        for seed, cell in cells.items()
        for row in [findings.walked.rows[part, arm][seed]]
    ]
    head = ["results", "arm", "seed", "val_loss", "train_loss", "state", "tokens", "program"]
    return [[*head, "changes", "cell"], *rows]


def tuning(findings):
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
        for arm, tuned in findings.walked.tuned.items()
        for trial in tuned.trials
        for knob in findings.study.arm(arm).knobs
    ]
    head = ["tuning", "arm", "rung", "widened", "key", "searched", "value", "val_loss", "best"]
    return [[*head, "cell"], *rows]


def hypotheses(findings):
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
        for one in findings.tested
    ]
    head = "family name kind results n difference low high test p_t p_rank p_sign p_holm"
    return [[*head.split(), "diverged", "smallest_difference", "verdict"], *rows]


def differences(findings):
    """Those that are described and not tested; [] if there are none."""
    rows = [
        [
            one.comparison.name,
            one.comparison.kind,
            one.comparison.results,
            one.sample.count,
            one.mean,
            *(one.interval or ("", "")),
            len(one.sample.diverged),
        ]
        for one in findings.described
    ]
    return (
        [["name", "kind", "results", "n", "difference", "low", "high", "diverged"], *rows]
        if rows
        else []
    )


def updates(findings):
    """A line a record of the update statistics that the page shows the middle of; [] if none."""
    rows = []
    for arm, (part, seed, found) in findings.updates().items():
        records = found["records"]
        for place in range(len(records["step"])):
            values = [records[field][place] if field in records else None for field in FIELDS]
            rows.append([part, arm, seed, *("" if v is None else v for v in values)])
    return [["results", "arm", "seed", *FIELDS], *rows] if rows else []


def _record(row):
    if row is None:
        return ["", "", "not run", "", ""]
    return [row.val_loss, row.train_loss, row.state, row.tokens, row.program]
