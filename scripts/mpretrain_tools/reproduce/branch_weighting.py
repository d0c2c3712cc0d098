"""The paper's diagnostic of NVFP4: additive rates weighted by the scale of their block, against
rates that are global.

    scripts/reproduce.py branch_weighting --tokens data/tokens --work runs

With w = q s the spacing of the grid is proportional to the block's scale s, so an additive step
could be, too; the ratio of neighbours, which a multiplicative step crosses, does not depend on s.
`optimizer.nvfp4_additive_scale = block` multiplies eta_a by a block's scale over the tensor's mean.
That moves the best eta_a, so both ways are tried at half, once and twice the tuned one.
"""

import sys

from .. import markdown
from ..sweeps.configuration import BadConfig
from ..sweeps.plan import plan
from . import compare
from .artefact import Artefact, spread
from .rows import BY_KEY

ROW = BY_KEY["nvfp4"]
ETA_A, SCALE = "optimizer.lr_additive", "optimizer.nvfp4_additive_scale"
FACTORS = (0.5, 1, 2)
WAYS = {"off": {}, "block": {SCALE: "block"}}  # off is what the main table has


def cells_of(artefact):
    """{(way, factor): [cell of each seed]}"""
    tuned = artefact.cell(ROW, artefact.seeds[0]).value(ETA_A)
    return {
        (way, factor): [
            artefact.cell(ROW, seed, changes={**changes, **eta_a(tuned, factor)})
            for seed in artefact.seeds
        ]
        for factor in FACTORS
        for way, changes in WAYS.items()
    }


def eta_a(tuned, factor):
    """Nothing at 1, so that the cell is the main table's."""
    return {} if factor == 1 else {ETA_A: tuned * factor}


def refusal(program, scale):
    """Why the program does not take block scales, "" if it does."""
    try:
        plan(program, ROW.file(scale), f"{SCALE}=block")
        return ""
    except BadConfig as problem:
        return str(problem).split("; valid keys")[0]


def best_factor(losses, way):
    """The factor of the lowest mean loss, None where no run has finished."""
    means = {
        factor: mean[0] for factor in FACTORS if (mean := compare.finite_mean(losses[way, factor]))
    }
    return min(means, key=means.get, default=None)


def tables(losses, tuned):
    """Markdown lines from {(way, factor): {seed: loss}}."""
    rows = [
        [way, *(spread(list(losses[way, factor].values())) for factor in FACTORS)] for way in WAYS
    ]
    differences = {
        (f"{factor:g}",): compare.difference(losses["block", factor], losses["off", factor])
        for factor in FACTORS
    }
    header = [
        f"`{SCALE.rsplit('.', maxsplit=1)[-1]}`",
        *(f"{factor:g} × η_a" for factor in FACTORS),
    ]
    return [
        f"Validation loss of {ROW.label}; tuned η_a {tuned:g}:",
        "",
        *markdown.table(header, rows),
        "",
        "block - off:",
        "",
        *compare.tested_table(["multiple of the tuned η_a"], differences),
        "",
        compare.HOW,
        "",
        *verdict(losses),
    ]


def verdict(losses):
    """Best against best."""
    best = {way: best_factor(losses, way) for way in WAYS}
    if None in best.values():
        return []
    found = compare.difference(losses["block", best["block"]], losses["off", best["off"]])
    if found is None:
        return []
    test = compare.tested({"": found})[""]
    return [
        f"Each at its best η_a ({best['off']:g} and {best['block']:g} times the tuned one), block -"
        f" off is {found}, n = {found.count}: {OUTCOMES[test.outcome]}. The paper says that it does"
        " not improve."
    ]


OUTCOMES = {
    "lower": "weighting by block scales improves on one rate for all",
    "diverged": "a run diverged",
    "higher": "weighting by block scales is worse than one rate for all",
    "no difference shown": "no difference shown",
    "one seed, no test": "one seed, no test, so an improvement is neither shown nor excluded",
}


def label(key, cell):
    return *key, cell.value(ETA_A)


def main(arguments=None):
    artefact = Artefact("branch_weighting", __doc__, arguments)
    cells = cells_of(artefact)
    refused = "" if artefact.args.report_only else refusal(artefact.args.program, artefact.scale)
    if refused:
        print(f"branch_weighting: error: {refused}", file=sys.stderr)
    every = [cell for of_seeds in cells.values() for cell in of_seeds]
    accepted = [cell for (way, _), found in cells.items() if way == "off" for cell in found]
    header = ["additive_scale", "factor", "eta_a"]
    losses = artefact.losses(header, cells, label, accepted if refused else every)
    lines = tables(losses, cells["off", 1][0].value(ETA_A))
    if refused:
        lines.append(f"The program refused block scales: {refused}")
    title = "Block-scale branch weighting in NVFP4"
    status = artefact.finish(title, lines, every)
    return 1 if refused else status
