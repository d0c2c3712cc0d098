"""Writes the tables and figures of docs/scaling.md anew, from what `mpretrain plan`
counts, what step.py predicts, and what measured.py measured.

scripts/tools.py rank_scaling             # the tables of docs/scaling.md; docs/scaling/*.svg
scripts/tools.py rank_scaling --verify    # changes nothing; exits 1 if a table is out of step
"""

import argparse
import dataclasses
import json
import sys

from .. import markdown
from .. import rank_model as m
from ..markdown import table
from ..repository import ROOT
from ..sweeps import options
from ..sweeps.configuration import BadConfig

MISTAKES = (BadConfig,)

PAGE = ROOT / "docs" / "scaling.md"
FIGURES = ROOT / "docs" / "scaling"
SIZES = ["60m", "130m", "350m", "1b", "7b", "13b", "70b"]
LABELS = {
    "fp32": "FP32/FP32",
    "bf16": "BF16/BF16",
    "bf16_fp8": "BF16/FP8",
    "fp8": "FP8/FP8",
    "nvfp4": "NVFP4/FP8",
}
RANKS = [2**k for k in range(11)]
WEAK_TOKENS = 16384  # of a GPU and step


@dataclasses.dataclass(frozen=True)
class Cases:
    """Of the page, counted by a program."""

    program: str

    def strong(self, size, regime="nvfp4", ranks=1, **changes):
        """The batch of the configuration, which more ranks cut into smaller parts."""
        shape, batch = m.model(size)
        return m.Case(self.program, shape, batch, regime, ranks=ranks, **changes)

    def weak(self, size, regime, ranks, **changes):
        """The batch grows with the ranks, so that each has as many tokens."""
        case = self.strong(size, regime, ranks, **changes)
        rows = WEAK_TOKENS // case.batch.seq_len * ranks
        return dataclasses.replace(case, batch=dataclasses.replace(case.batch, rows=rows))


def gigabytes(bytes_):
    return f"{bytes_ / 1e9:.3g}" if bytes_ < 1e11 else f"{bytes_ / 1e9:.0f}"


def persistent(case):
    """Bytes a parameter: weights, what GEMMs read, gradients, states."""
    memory, p = case.counted.memory, case.shape.parameters
    return [memory[k] / p for k in ("weights", "compute weights", "gradients", "optimizer state")]


# --- tables ---------------------------------------------------------------------------------------


def bytes_table(cases):
    """Of the 7B model, where embedding and head weigh little."""
    rows = []
    for label, regime, optimizer in [
        ("FP32, AdamW", "fp32", "adamw"),
        ("BF16, AdamW", "bf16", "adamw"),
        ("BF16, AdamW + Kahan", "bf16", "adamw_kahan"),
        ("BF16, M+Adam", "bf16", "m_plus_adam"),
        ("BF16, M+Adam, Apollo-E", "bf16", "apollo_e"),
        ("BF16/FP8, M+Adam", "bf16_fp8", "m_plus_adam"),
        ("FP8/FP8, M+Adam", "fp8", "m_plus_adam"),
        ("NVFP4/FP8, M+Adam", "nvfp4", "m_plus_adam"),
    ]:
        one, many = (
            persistent(cases.strong("7b", regime, ranks, optimizer=optimizer)) for ranks in (1, 64)
        )
        rows.append(
            [
                label,
                *(f"{x:.2f}" for x in one[:3]),
                f"{one[3]:.2f}",
                f"{many[3]:.3f}",
                f"{sum(one):.2f}",
                f"{sum(many):.2f}",
            ]
        )
    head = [
        "bytes a parameter (7B)",
        "weights",
        "read by FP8 GEMMs",
        "gradients",
        "states, 1 GPU",
        "states, 64",
        "all, 1 GPU",
        "all, 64",
    ]
    return table(head, rows)


def memory_table(cases):
    shown = [1, 8, 64, 1024]
    rows = []
    for size in SIZES:
        for regime in ("bf16", "nvfp4"):
            totals = [
                case.counted.total if case.fits_the_batch else None
                for case in (cases.strong(size, regime, ranks) for ranks in shown)
            ]
            limits = [fewest_ranks(cases, size, regime, most) for most in (80e9, 141e9)]
            rows.append(
                [
                    size,
                    LABELS[regime],
                    *("" if t is None else gigabytes(t) for t in totals),
                    *limits,
                ]
            )
    return table(
        [
            "model",
            "regime",
            *(f"{n} GPU{'s' * (n > 1)}" for n in shown),
            "fits 80 GB from",
            "fits 141 GB from",
        ],
        rows,
    )


def fewest_ranks(cases, size, regime, most):
    for case in (cases.strong(size, regime, ranks) for ranks in RANKS):
        if case.fits_the_batch and case.counted.total <= most:
            return f"{case.ranks}"
    return "never"


def traffic_table(cases):
    rows = []
    for size in SIZES:
        nvfp4, bf16, fp8 = (
            cases.strong(size, regime, 64).counted.sent for regime in ("nvfp4", "bf16", "fp8")
        )
        least = cases.strong(size, "nvfp4", 64, gradient_reduce="bf16").counted.sent
        gradients = [nvfp4["gradients"], least["gradients"]]
        weights = [sent["weights"] for sent in (bf16, fp8, nvfp4)]
        small = [nvfp4["norm"], nvfp4["scales"]]
        most = gradients[0] + weights[0]
        rows.append(
            [
                size,
                *(gigabytes(n) for n in (*gradients, *weights)),
                f"{weights[2] / weights[0]:.2f}",
                *(f"{n / 1e6:.2g}" for n in small),
                f"{most / (least['gradients'] + least['weights']):.2f}",
            ]
        )
    return table(
        [
            "model",
            "gradients, FP32 (GB)",
            "in BF16",
            "weights, BF16 (GB)",
            "FP8",
            "NVFP4",
            "NVFP4 / BF16",
            "norm (MB)",
            "amaxes (MB)",
            "most / least",
        ],
        rows,
    )


def efficiency_rows(make):
    shown = [8, 16, 32, 64, 128, 256, 512, 1024]
    for size in SIZES:
        for regime in ("bf16", "nvfp4"):
            cells = []
            for ranks in shown:
                case = make(size, regime, ranks)
                cells.append(f"{m.efficiency(case, m.H100):.2f}" if case.fits_the_batch else "")
            yield [size, LABELS[regime], *cells]


def efficiency_table(make):
    return table(
        ["model", "regime", *(str(n) for n in (8, 16, 32, 64, 128, 256, 512, 1024))],
        efficiency_rows(make),
    )


# Model, regime, ranks.
BROKEN = [
    ("350m", "bf16", 64),
    ("350m", "nvfp4", 64),
    ("1b", "bf16", 128),
    ("1b", "nvfp4", 128),
    ("7b", "bf16", 1024),
    ("7b", "nvfp4", 1024),
    ("70b", "nvfp4", 1024),
]


def exposed_table(cases):
    rows = []
    for size, regime, ranks in BROKEN:
        case = cases.strong(size, regime, ranks)
        now = m.simulate(case, m.H100)
        less = [
            m.simulate(case, change(m.H100))
            for change in (m.without_launches, m.without_latency, m.without_bytes)
        ]
        rows.append(
            [
                size,
                LABELS[regime],
                str(ranks),
                str(len(case.counted.buckets)),
                f"{now.launches:,}",
                f"{1e3 * now.computing:.1f}",
                f"{1e3 * now.total:.1f}",
                *(f"{1e3 * step.total:.1f}" for step in less),
            ]
        )
    return table(
        [
            "model",
            "regime",
            "GPUs",
            "buckets",
            "copies",
            "computing (ms)",
            "step (ms)",
            "without launches",
            "without latency",
            "without bytes",
        ],
        rows,
    )


def sensitivity_table(cases):
    def changed(**figures):
        return dataclasses.replace(m.H100, **figures)

    machines = [
        ("as assumed", m.H100),
        ("GEMMs at 25 % of the peak", changed(achieved=0.25)),
        ("GEMMs at 55 %", changed(achieved=0.55)),
        ("copies of 1 µs", changed(copy_launch=1e-6)),
        ("copies of 5 µs", changed(copy_launch=5e-6)),
        ("adapters of 200 Gbit/s", changed(inter=20e9)),
        ("adapters of 800 Gbit/s", changed(inter=80e9)),
    ]
    shown = [("350m", 32), ("1b", 64), ("7b", 512), ("7b", 1024)]
    rows = [
        [
            label,
            *(
                f"{m.efficiency(cases.strong(size, 'nvfp4', ranks), machine):.2f}"
                for size, ranks in shown
            ),
        ]
        for label, machine in machines
    ]
    return table(
        [
            "NVFP4/FP8, batch of the configuration",
            *(f"{size}, {ranks} GPUs" for size, ranks in shown),
        ],
        rows,
    )


def stored_spans(case):
    """Parts of tensors that a checkpoint's state.json names: where a rank has less than all of a
    tensor, of its codes, scales and BF16 states.
    """
    states = round(case.counted.state_bytes_a_parameter / m.SIZE["bf16"])
    return sum(
        bucket["gathered"]["cut_spans"] + states * bucket["reduced"]["cut_spans"]
        for bucket in case.counted.buckets
    )


def bookkeeping_table(cases):
    rows = []
    for size, ranks in [("60m", 128), ("60m", 1024), ("1b", 128), ("7b", 1024), ("70b", 1024)]:
        case = cases.weak(size, "nvfp4", ranks)
        counted = case.counted
        sums, smallest = counted.norm_sums, min(b["norm_sums"] for b in counted.buckets)
        rows.append(
            [
                size,
                str(ranks),
                f"{sums:,}",
                f"{8 * sums / 1e6:.2f}",
                f"{smallest / ranks:.1f}",
                f"{counted.most_elements * ranks / case.shape.parameters:.3f}",
                f"{stored_spans(case):,}",
            ]
        )
    return table(
        [
            "model",
            "GPUs",
            "sums of the norm",
            "MB of them",
            "pieces a rank, smallest bucket",
            "elements of a rank, most / mean",
            "spans in a checkpoint",
        ],
        rows,
    )


def next_table(cases):
    rows = []
    for size, ranks in [("7b", 64), ("13b", 64), ("70b", 64), ("70b", 256), ("70b", 1024)]:
        for regime in ("bf16", "nvfp4"):
            case = cases.strong(size, regime, ranks)
            counted = case.counted
            two, three = (m.sharded_further(case, weights) for weights in ("whole", "sharded"))
            rows.append(
                [
                    size,
                    LABELS[regime],
                    str(ranks),
                    *(gigabytes(x) for x in (counted.total, two.memory, three.memory)),
                    str(counted.micro_batches),
                    *(
                        gigabytes(x)
                        for x in (
                            counted.sent_bytes,
                            two.gathers + two.reductions,
                            three.gathers,
                            three.reductions,
                        )
                    ),
                ]
            )
    return table(
        [
            "model",
            "regime",
            "GPUs",
            "GB now",
            "ZeRO-2",
            "ZeRO-3",
            "micro-batches",
            "GB sent now",
            "ZeRO-2",
            "ZeRO-3 weights",
            "ZeRO-3 gradients",
        ],
        rows,
    )


def tensor_table(cases):
    rows = []
    for size in ("7b", "13b", "70b"):
        for regime in ("bf16", "nvfp4"):
            exchanging, computing = m.tensor_parallel(cases.strong(size, regime), m.H100, 8)
            rows.append(
                [
                    size,
                    LABELS[regime],
                    f"{1e3 * computing:.0f}",
                    f"{1e3 * exchanging:.0f}",
                    f"{computing / (computing + exchanging):.2f}",
                ]
            )
    return table(
        ["model", "regime", "computing (ms)", "all-reduces (ms)", "efficiency if nothing overlaps"],
        rows,
    )


def measured_table(_):
    path = FIGURES / "measured.json"
    if not path.exists():
        return ["Not measured yet."]
    measured = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for r in measured["steps"]:
        cells = []
        for clock in (r["processor"], r["fastest"]):
            spread = (
                "{:.2f}-{:.2f}".format(*clock["ratio_range"])
                if len(r["rounds"]) > 1
                else "one round"
            )
            cells += [
                f"{clock['predicted_ms']:.1f} ({clock['predicted_exchange_ms']:.1f})",
                f"{clock['measured_ms']:.1f}",
                f"{clock['ratio']:.2f} ({spread})",
            ]
        rows.append([LABELS[r["regime"]], str(r["rows"]), *cells])
    head = [
        "regime",
        "rows of a step",
        "processor ms of a rank, predicted (of it exchange)",
        "measured",
        "measured / predicted",
        "ms of the fastest step, predicted (of it exchange)",
        "measured",
        "measured / predicted",
    ]
    about = (
        f"{measured['processor']}, {measured['date']}, {measured['steps_a_run']} steps a run; "
        f"load average {measured['load_average']:.1f} on two cores."
    )
    return [*table(head, rows), "", about]


TABLES = {
    "bytes": bytes_table,
    "memory": memory_table,
    "traffic": traffic_table,
    "strong": lambda cases: efficiency_table(cases.strong),
    "weak": lambda cases: efficiency_table(cases.weak),
    "exposed": exposed_table,
    "sensitivity": sensitivity_table,
    "bookkeeping": bookkeeping_table,
    "next": next_table,
    "tensor": tensor_table,
    "measured": measured_table,
}


def filled(page, cases):
    for name, rows in TABLES.items():
        page = markdown.filled(page, f"<!-- {name} -->", "<!-- end -->", rows(cases))
        if page is None:
            sys.exit(f"tools.py rank_scaling: error: {PAGE} has no <!-- {name} -->")
    return page


# --- figures --------------------------------------------------------------------------------------

STYLES = {"bf16": "--", "nvfp4": "-"}
DRAWN_PURPOSES = [
    "weights",
    "compute weights",
    "gradients",
    "optimizer state",
    "activations",
    "logits",
    "scratch",
]


def draw_memory(plt, cases):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    for axis, size in zip(axes, ("1b", "7b")):
        bars = [(regime, ranks) for regime in ("bf16", "nvfp4") for ranks in (1, 8, 64)]
        bottom = [0.0] * len(bars)
        for purpose in DRAWN_PURPOSES:
            heights = [cases.strong(size, r, n).counted.memory[purpose] / 1e9 for r, n in bars]
            axis.bar(range(len(bars)), heights, bottom=bottom, label=purpose, width=0.75)
            bottom = [b + h for b, h in zip(bottom, heights)]
        axis.set_xticks(
            range(len(bars)), [f"{LABELS[r].split('/')[0]}\n{n}" for r, n in bars], fontsize=8
        )
        axis.set_title(f"{size.upper()}: GB a GPU, by number of GPUs", fontsize=9)
        axis.grid(axis="y", alpha=0.3)
    axes[1].axhline(80, color="grey", linestyle=":", linewidth=1)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=7, loc="center right")
    figure.subplots_adjust(left=0.06, right=0.83, bottom=0.16, top=0.9, wspace=0.18)
    return figure


def draw_efficiency(plt, cases):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
    for axis, make, title in [
        (axes[0], cases.strong, "the batch of the configuration"),
        (axes[1], cases.weak, f"{WEAK_TOKENS:,} tokens a GPU"),
    ]:
        for k, size in enumerate(SIZES):
            for regime, style in STYLES.items():
                cases = [c for c in (make(size, regime, n) for n in RANKS) if c.fits_the_batch]
                axis.plot(
                    [c.ranks for c in cases],
                    [m.efficiency(c, m.H100) for c in cases],
                    style,
                    color=f"C{k}",
                    linewidth=1.2,
                    label=size if regime == "nvfp4" else None,
                )
        axis.set_xscale("log", base=2)
        axis.set_xticks(RANKS[::2], [str(n) for n in RANKS[::2]], fontsize=8)
        axis.set_xlabel("GPUs")
        axis.set_title(f"predicted efficiency, {title}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7, title="NVFP4/FP8; dashed: BF16", title_fontsize=6.5)
    figure.tight_layout()
    return figure


def draw_traffic(plt, cases):
    figure, axis = plt.subplots(figsize=(5.2, 3.0))
    bars = [("bf16", "fp32"), ("bf16", "bf16"), ("fp8", "bf16"), ("nvfp4", "bf16")]
    case = [cases.strong("7b", regime, 64, gradient_reduce=wire) for regime, wire in bars]
    p = case[0].shape.parameters
    bottom = [0.0] * len(bars)
    for kind in ("gradients", "weights"):
        heights = [c.counted.sent[kind] / p for c in case]
        axis.barh(range(len(bars)), heights, left=bottom, label=kind, height=0.6)
        bottom = [b + h for b, h in zip(bottom, heights)]
    axis.set_yticks(
        range(len(bars)), [f"{LABELS[r]}, gradients {w.upper()}" for r, w in bars], fontsize=8
    )
    axis.invert_yaxis()
    axis.set_xlabel("bytes that a rank sends for a parameter and step (7B, 64 ranks)", fontsize=8)
    axis.legend(fontsize=7)
    axis.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    return figure


def draw(cases):
    from ..plots.pyplot import plt

    for name, make in [
        ("memory", draw_memory),
        ("efficiency", draw_efficiency),
        ("traffic", draw_traffic),
    ]:
        figure = make(plt, cases)
        figure.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
        print(f"wrote {FIGURES / name}.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--verify", action="store_true", help="only check the tables")
    parser.add_argument("--no-figures", action="store_true")
    options.add_program(parser)
    args = parser.parse_args()
    cases = Cases(args.program)
    old = PAGE.read_text(encoding="utf-8")
    new = filled(old, cases)
    if args.verify:
        print(
            "the tables are up to date"
            if new == old
            else "tables differ: run scripts/tools.py rank_scaling"
        )
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    print(f"wrote {PAGE}")
    if not args.no_figures:
        draw(cases)
    return 0
