#!/usr/bin/env python3
"""The paper's matrix-fitting diagnostic: loss over steps, a sweep of rates, and whether its claims hold.

    scripts/reproduce/toy_figures.py --output docs/results/pico

Numbers stored in BF16 are fitted to targets by `mpretrain toy`; no model and no tokens, the scale makes no difference.
Exits 1 if a claim does not hold at the full length.
"""

import json
import math
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from experiments import configuration, style
from experiments.artefact import Artefact, exit_status
from experiments.compare import table
from experiments.launch import ending
from experiments.runner import complaint

sys.path.insert(0, str(configuration.ROOT / "scripts"))

# What `mpretrain toy` takes; the rest is its default: a batch of 4096, entry_quartic, BF16, rates of 2^-12 to 2^24.
FULL = {"steps": 1000, "log2_rate_from": -12, "log2_rate_to": 24}
QUICK = {"steps": 100, "log2_rate_from": 4, "log2_rate_to": 8}
LEAST_RATIO, MOST_RATIO = 100, 10  # of the claims

# By regime: initial, best of additive, multiplicative, M+Adam, and M+Adam at the shared rate 2^6. From an independent
# calculation with other random numbers, so orders of magnitude only; the paper draws curves and prints nothing.
REFERENCE = {
    "sign_flip": ("16", "1.3e-3", "1", "7.5e-4", "7.5e-4"),
    "zero_revival": ("1", "1.8e-4", "exactly 1", "9e-5", "6.8e-4"),
    "small": ("3.3e-8", "1.2e-11", "no change", "1.2e-11", "1.2e-11"),
    "large": ("1.7e5", "145", "0.026", "0.026", "0.52"),
    "mixed": ("8.9e4", "1.0e3", "0.035", "0.26", "0.26"),
}
RULES = ("additive", "multiplicative", "m_plus_adam")


def add_arguments(parser):
    parser.add_argument("--seed", type=int, default=2, help="of targets and draws (the notes say why 2)")


def run_toy(artefact):
    """Directory of the fits, made unless they are there with the same options."""
    options = {**(QUICK if artefact.args.quick else FULL), "seed": artefact.args.seed}
    directory = artefact.args.work / ("toy_quick" if artefact.args.quick else "toy")
    if artefact.args.report_only or options.items() <= options_of(directory).items():
        return directory
    artefact.args.work.mkdir(parents=True, exist_ok=True)
    log = directory.with_suffix(".log")
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with open(log, "w", encoding="utf-8") as output:
        done = subprocess.run([artefact.args.program, "toy", "--output", str(directory), "--overwrite", *words],
                              stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"toy_figures: error: {complaint(log, 0, ending(done.returncode))}")
    return directory


def options_of(directory):
    """Of finished fits, {} where there are none."""
    try:
        return json.loads((pathlib.Path(directory) / "summary.json").read_text(encoding="utf-8"))["options"]
    except (OSError, KeyError, json.JSONDecodeError):
        return {}


@dataclass(frozen=True)
class Claim:
    """What the paper says and what was found."""

    text: str
    found: str
    holds: bool


def best(toy, regime, rule):
    """Entry of the summary at the rule's best rate; the loss inf where all diverged."""
    return toy.summary["regimes"][regime].get(rule) or {"loss": float("inf"), "rate": None, "sign_changes": 0, "zeros_left": 0}


def shared_loss(toy, regime):
    return best(toy, regime, "m_plus_adam_shared")["loss"]


def claims(toy):
    """All of them, checked."""
    return [no_sign_changes(toy), no_zero_revived(toy),
            *(additive_stalls(toy, regime) for regime in ("large", "mixed")),
            *(close_to_additive(toy, regime) for regime in ("sign_flip", "zero_revival", "small"))]


def no_sign_changes(toy):
    """Counted at the best rates; at the others no weight of a sign flip comes closer to its target than 0 is: loss 1."""
    changes = sum(best(toy, regime, "multiplicative")["sign_changes"] for regime in toy.regimes)
    least = min(loss for loss in toy.finals("sign_flip", "multiplicative")[1] if not math.isnan(loss))
    return Claim("multiplicative steps change no sign", f"{changes} changes; least loss of sign flip {least:g}",
                 changes == 0 and least >= 1)


def no_zero_revived(toy):
    """Counted at the best rates; at the others the loss of weights that begin at 0 stays what it was."""
    left = sum(best(toy, regime, "multiplicative")["zeros_left"] for regime in toy.regimes)
    losses = set(toy.finals("zero_revival", "multiplicative")[1])
    return Claim("multiplicative steps leave zeros at 0", f"{left} left it; losses of zero revival "
                 f"{', '.join(f'{loss:g}' for loss in sorted(losses))}", left == 0 and losses == {1.0})


def additive_stalls(toy, regime):
    ratio = best(toy, regime, "additive")["loss"] / shared_loss(toy, regime)
    return Claim(f"{spelled(regime)}: tuned additive steps are at least {LEAST_RATIO} times as bad as M+Adam at its shared "
                 "rate", f"{ratio:.0f} times", ratio >= LEAST_RATIO)


def close_to_additive(toy, regime):
    ratio = shared_loss(toy, regime) / best(toy, regime, "additive")["loss"]
    return Claim(f"{spelled(regime)}: M+Adam at its shared rate is within {MOST_RATIO} times tuned additive steps",
                 f"{ratio:.2g} times", ratio <= MOST_RATIO)


def spelled(regime):
    return regime.replace("_", " ")


def loss_table(toy):
    from plot_toy import LABELS  # pylint: disable=import-outside-toplevel
    shared = toy.summary["shared_rate"]
    rows = []
    for regime in toy.regimes:
        initial, *references = REFERENCE[regime]
        entries = [f"{of_rate(best(toy, regime, rule))} ({reference})" for rule, reference in zip(RULES, references)]
        rows.append([spelled(regime), f"{toy.summary['regimes'][regime]['initial_loss']:.3g} ({initial})", *entries,
                     f"{shared_loss(toy, regime):.3g} ({references[-1]})"])
    return table(["regime", "initial", *(LABELS[rule] for rule in RULES), f"M+Adam at {power(shared)} for all"], rows)


def of_rate(found):
    return f"{found['loss']:.3g} at {power(found['rate'])}"


def power(rate):
    if rate is None:
        return "no rate"
    return f"2^{math.log2(rate):g}"


def main(arguments=None):
    artefact = Artefact("toy_figures", __doc__, arguments, add_arguments)
    style.pyplot()
    import plot_toy  # pylint: disable=import-outside-toplevel
    toy = plot_toy.Toy(run_toy(artefact))
    found = claims(toy)
    rows = [[claim.text, claim.found, "holds" if claim.holds else "**does not hold**"] for claim in found]
    options = toy.summary["options"]
    lines = ["![loss over steps](toy_figures.png)", "![final loss over learning rates](toy_figures_sweep.png)", "",
             f"{artefact.version()}. 4096 numbers in BF16, {options['steps']} steps, a batch of {options['batch']}, "
             f"`{options['loss']}`, seed {options['seed']}. Loss of all entries at the end, at the best of the rates "
             f"2^{options['log2_rate_from']} to 2^{options['log2_rate_to']} by doublings. In brackets: an independent "
             "calculation at 1000 steps, orders of magnitude only; the paper prints no figures.", "",
             *loss_table(toy), "", *table(["claim of the paper", "found", ""], rows)]
    if artefact.args.quick:
        lines.append("\n**A quick run: too short to tell whether the claims hold.**")
    artefact.write_figure(plot_toy.draw_curves(toy))
    artefact.write_figure(plot_toy.draw_sweep(toy), "_sweep")
    artefact.write_csv(list(toy.rows[0]), [list(row.values()) for row in filter(toy.is_drawn, toy.rows)])
    artefact.write_markdown("Matrix fitting with weights stored in BF16", lines, of="")
    missed = [claim for claim in found if not claim.holds and not artefact.args.quick]
    for claim in missed:
        print(f"toy_figures: error: {claim.text}: {claim.found}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
