"""Draws which updates survived rounding, from the metrics of a run with log.update_statistics set.

    scripts/tools.py plot_survival --output survival.png runs/nano_fp8
    scripts/tools.py plot_survival --output survival.png --tensors mlp --step 500 runs/nano_fp8

Six panels: the share of updates that vanished by magnitude of the weight, for both branches
together and each alone; that share over the run; sign changes and zeros over the run; what
scales did: drag of weights (scaled formats) or the amaxes of FP8 GEMMs; how large updates were
before and after rounding; and how much of them was left. The last two are left out where the run
did not record them. Lines that lie on one another are all seen: a wide pale one below narrower
ones.
"""

import argparse
import math

from ..runs.metrics import BadRun, Run

MISTAKES = (BadRun, OSError, ValueError)

BRANCHES = {
    "both": "whole update",
    "additive": "additive alone",
    "multiplicative": "multiplicative alone",
}
# Of the lines of a panel in the order in which they are drawn. The colours differ for colour-blind
# readers, too.
STYLES = (
    {
        "color": "#0072B2",
        "linewidth": 5,
        "alpha": 0.45,
        "linestyle": "-",
        "marker": "o",
        "markersize": 8,
    },
    {"color": "#D55E00", "linewidth": 2, "linestyle": "--", "marker": "s", "markersize": 4.5},
    {"color": "#000000", "linewidth": 1, "linestyle": ":", "marker": "^", "markersize": 3},
    {"color": "#009E73", "linewidth": 0.8, "linestyle": "-.", "marker": "x", "markersize": 3},
)


def surveys(run, part):
    """{step: {tensor: counts}} of the tensors whose name contains `part`."""
    found = {}
    for step, record in sorted(run.steps.items()):
        tensors = record.get("update_survival", {}).get("tensors", {})
        chosen = {name: counts for name, counts in tensors.items() if part in name}
        if chosen:
            found[step] = chosen
    if not found:
        raise BadRun(
            f"{run.path}: no update_survival of tensors named *{part}* in it; set"
            " log.update_statistics=STEPS"
        )
    return found


def total(tensors, *path):
    """Sum over tensors of the counts by bucket at a path such as ("both", "vanished")."""
    sums = []
    for counts in tensors.values():
        for key in path:
            counts = counts.get(key, {})
        sums = [a + b for a, b in zip(sums, counts)] if sums else list(counts or [])
    return sums


def share(part, whole):
    return part / whole if whole else math.nan


def has_branch(tensors, branch):
    return any(branch in counts for counts in tensors.values())


def draw_by_magnitude(axes, tensors, edges, step):
    weights = total(tensors, "weights")
    places = range(1, len(weights))  # without the zeros
    labels = ["0"] + [f"$2^{{{round(math.log2(edge))}}}$" for edge in edges[1:]]
    axes.bar(
        places,
        [share(weights[i], sum(weights)) for i in places],
        color="lightgrey",
        label="share of weights",
    )
    for (branch, label), style in zip(BRANCHES.items(), STYLES):
        if has_branch(tensors, branch):
            vanished = total(tensors, branch, "vanished")
            axes.plot(
                places, [share(vanished[i], weights[i]) for i in places], label=label, **style
            )
    axes.set_xticks(list(places))
    axes.set_xticklabels(labels, fontsize=7)
    axes.set(xlabel="|weight| from", ylabel="share of updates that vanished", title=f"step {step}")
    axes.legend(fontsize=7)


def draw_lines(axes, lines):
    """Of {label: (steps, values)}, in the order of STYLES."""
    for (label, (steps, values)), style in zip(lines.items(), STYLES):
        axes.plot(steps, values, label=label, **style)


def share_over_run(found, branch, fate):
    """([step...], [share of weights...]) of the steps that surveyed the branch."""
    steps = [step for step, tensors in found.items() if has_branch(tensors, branch)]
    return steps, [
        share(sum(total(found[s], branch, fate)), sum(total(found[s], "weights"))) for s in steps
    ]


def draw_vanished(axes, found):
    draw_lines(
        axes,
        {
            label: share_over_run(found, branch, "vanished")
            for branch, label in BRANCHES.items()
            if any(has_branch(tensors, branch) for tensors in found.values())
        },
    )
    axes.set(xlabel="step", ylabel="share of weights", title="updates that vanished")
    axes.legend(fontsize=7)


def draw_crossings(axes, found):
    draw_lines(
        axes,
        {
            fate.replace("_", " "): share_over_run(found, "both", fate)
            for fate in ("sign_changed", "left_zero", "entered_zero")
        },
    )
    axes.set(xlabel="step", ylabel="share of weights", title="whole update")
    axes.legend(fontsize=7)


def largest_amaxes(slots, kind):
    """Over the GEMMs of each step, of one operand of theirs."""
    return [
        max(
            (slot["amax"] for name, slot in scaling.items() if name.endswith("." + kind)),
            default=math.nan,
        )
        for _, scaling in slots
    ]


def draw_scales(axes, run, found):
    drags = {
        s: sum(c.get("drag_log2", 0.0) for c in t.values()) / max(1, sum(total(t, "weights")))
        for s, t in found.items()
    }
    slots = [(s, r["fp8_scaling"]) for s, r in sorted(run.steps.items()) if "fp8_scaling" in r]
    if any(drags.values()) or not slots:
        draw_lines(
            axes,
            {"mean log2 growth of a weight by drag, one step": (list(drags), list(drags.values()))},
        )
        axes.set(xlabel="step", title="scale drag")
    else:
        draw_lines(
            axes,
            {
                f"largest amax: {kind.replace('_', ' ')}": (
                    [step for step, _ in slots],
                    largest_amaxes(slots, kind),
                )
                for kind in ("input", "weight", "output_gradient")
            },
        )
        axes.set(xlabel="step", title="FP8 operands", yscale="log")
    axes.legend(fontsize=7)


def number(counts, *path):
    """A tensor's number at a path such as ("asked_rms", "both"); None where there is none."""
    for key in path:
        counts = (counts or {}).get(key)
    return counts


def square_terms(*path):
    """Of a tensor with a root mean square at the path: (sum of squares, weights)."""

    def terms(counts):
        rms, weights = number(counts, *path), sum(counts["weights"])
        return None if rms is None else (rms * rms * weights, weights)

    return terms


def edq_terms(*path):
    """Of a tensor with a ratio at the path: (<d, e>, <d, d>) of the update d and what is left."""

    def terms(counts):
        ratio, asked = number(counts, *path), square_terms("asked_rms", "both")(counts)
        return None if ratio is None or asked is None else (ratio * asked[0], asked[0])

    return terms


def quotients_over_run(found, terms):
    """([step...], [quotient...]) of the sums over tensors of both terms, where there are any."""
    steps, values = [], []
    for step, tensors in found.items():
        pairs = [pair for pair in map(terms, tensors.values()) if pair]
        if pairs:
            steps.append(step)
            values.append(share(sum(a for a, _ in pairs), sum(b for _, b in pairs)))
    return steps, values


def rms_over_run(found, *path):
    steps, means = quotients_over_run(found, square_terms(*path))
    return steps, [math.sqrt(mean) for mean in means]


def recorded(lines):
    """Those of {label: (steps, values)} that have a step."""
    return {label: line for label, line in lines.items() if line[0]}


def draw_sizes(axes, found):
    lines = {
        f"asked for: {label}": rms_over_run(found, "asked_rms", branch)
        for branch, label in BRANCHES.items()
    }
    lines["made by stored weights"] = rms_over_run(found, "effective_rms")
    draw_lines(axes, recorded(lines))
    axes.set(xlabel="step", ylabel="root mean square", title="updates", yscale="log")
    axes.legend(fontsize=7)


def draw_edq(axes, found):
    lines = {
        "stored weights": quotients_over_run(found, edq_terms("edq_ratio")),
        "with residuals": quotients_over_run(found, edq_terms("with_residuals", "edq_ratio")),
    }
    draw_lines(axes, recorded(lines))
    axes.set(xlabel="step", ylabel="EDQ / |update|", title="part of the update that is left")
    axes.legend(fontsize=7)


def has_sizes(found):
    """False for runs of versions that did not record them."""
    return bool(rms_over_run(found, "asked_rms", "both")[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", help="run directory or its metrics.jsonl")
    parser.add_argument("--output", required=True, help="PNG to write")
    parser.add_argument(
        "--tensors",
        default="proj",
        metavar="PART",
        help="tensors whose name contains this; default: linear layers",
    )
    parser.add_argument(
        "--step", type=int, help="step of the panel by magnitude; default: the last recorded one"
    )
    args = parser.parse_args()
    from .pyplot import plt

    run = Run(args.run)
    found = surveys(run, args.tensors)
    step = max(found) if args.step is None else args.step
    if step not in found:
        raise BadRun(
            f"{run.path}: step {step} was not surveyed; surveyed are {min(found)} to {max(found)}"
        )
    edges = run.steps[step]["update_survival"]["bucket_edges"]
    rows = 3 if has_sizes(found) else 2
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3.5 * rows), dpi=110)
    draw_by_magnitude(axes[0][0], found[step], edges, step)
    draw_vanished(axes[0][1], found)
    draw_crossings(axes[1][0], found)
    draw_scales(axes[1][1], run, found)
    if rows == 3:
        draw_sizes(axes[2][0], found)
        draw_edq(axes[2][1], found)
    for panel in axes.flat:
        panel.grid(alpha=0.3)
    figure.suptitle(run.name)
    figure.tight_layout()
    figure.savefig(args.output)
    print(f"wrote {args.output}")
