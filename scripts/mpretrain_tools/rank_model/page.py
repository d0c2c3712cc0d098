"""Writes the tables and figures of docs/scaling.md anew, from scripts/rank_model and what
rank_scaling_measured.py measured.

scripts/rank_scaling.py              # the tables of docs/scaling.md; docs/scaling/*.svg
scripts/rank_scaling.py --verify     # changes nothing; exits 1 if a table is not what it should be
"""

import argparse
import dataclasses
import json
import re
import sys

from .. import rank_model as m
from ..repository import ROOT

PAGE = ROOT / "docs" / "scaling.md"
FIGURES = ROOT / "docs" / "scaling"
SIZES = ["60m", "130m", "350m", "1b", "7b", "13b", "70b"]
REGIMES = ["bf16", "bf16_fp8", "fp8", "nvfp4"]
LABELS = {
    "fp32": "FP32/FP32",
    "bf16": "BF16/BF16",
    "bf16_fp8": "BF16/FP8",
    "fp8": "FP8/FP8",
    "nvfp4": "NVFP4/FP8",
}
RANKS = [2**k for k in range(11)]
WEAK_TOKENS = 16384  # of a GPU and step


def case_of(size, regime="nvfp4", ranks=1, **changes):
    shape, batch = m.model(size)
    return m.Case(shape, batch, m.REGIMES[regime], ranks=ranks, **changes)


def weak(size, regime, ranks, **changes):
    """The batch grows with the ranks, so that each has as many tokens."""
    case = case_of(size, regime, ranks, **changes)
    rows = WEAK_TOKENS // case.batch.seq_len * ranks
    return dataclasses.replace(case, batch=dataclasses.replace(case.batch, rows=rows))


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def gigabytes(bytes_):
    return f"{bytes_ / 1e9:.3g}" if bytes_ < 1e11 else f"{bytes_ / 1e9:.0f}"


def persistent(case):
    """Bytes a parameter: weights, what products read, gradients, states."""
    memory, p = m.memory_of(case).bytes, case.shape.parameters
    return [memory[k] / p for k in ("weights", "compute weights", "gradients", "optimizer state")]


# --- tables
# ----------------------------------------------------------------------------------------------


def bytes_table():
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
            persistent(case_of("7b", regime, ranks, optimizer=optimizer)) for ranks in (1, 64)
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
        "read by FP8 products",
        "gradients",
        "states, 1 GPU",
        "states, 64",
        "all, 1 GPU",
        "all, 64",
    ]
    return table(head, rows)


def memory_table():
    shown = [1, 8, 64, 1024]
    rows = []
    for size in SIZES:
        for regime in ("bf16", "nvfp4"):
            totals = [
                m.memory_of(case).total if case.batch.rows >= case.ranks else None
                for case in (case_of(size, regime, ranks) for ranks in shown)
            ]
            limits = [fewest_ranks(size, regime, most) for most in (80e9, 141e9)]
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


def fewest_ranks(size, regime, most):
    rows = m.model(size)[1].rows
    for ranks in (n for n in RANKS if n <= rows):
        if m.memory_of(case_of(size, regime, ranks)).total <= most:
            return f"{ranks}"
    return "never"


def traffic_table():
    rows = []
    for size in SIZES:
        ranks = 64
        fp32 = m.volume(case_of(size, "nvfp4", ranks))
        bf16 = m.volume(case_of(size, "nvfp4", ranks, gradient_reduce="bf16"))
        weights = [
            m.volume(case_of(size, regime, ranks)).weights for regime in ("bf16", "fp8", "nvfp4")
        ]
        rows.append(
            [
                size,
                *(gigabytes(v) for v in (fp32.gradients, bf16.gradients, *weights)),
                f"{weights[2] / weights[0]:.2f}",
                f"{fp32.norm / 1e6:.2g}",
                f"{fp32.amaxes / 1e6:.2g}",
                f"{(fp32.gradients + weights[0]) / (bf16.gradients + weights[2]):.2f}",
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
                cells.append(
                    f"{m.efficiency(case, m.H100):.2f}" if case.batch.rows >= ranks else ""
                )
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


def exposed_table():
    rows = []
    for size, regime, ranks in BROKEN:
        case = case_of(size, regime, ranks)
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
                str(len(m.buckets(case))),
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


def sensitivity_table():
    def changed(**figures):
        return dataclasses.replace(m.H100, **figures)

    machines = [
        ("as assumed", m.H100),
        ("products at 25 % of the peak", changed(achieved=0.25)),
        ("products at 55 %", changed(achieved=0.55)),
        ("copies of 1 µs", changed(copy_launch=1e-6)),
        ("copies of 5 µs", changed(copy_launch=5e-6)),
        ("adapters of 200 Gbit/s", changed(inter=20e9)),
        ("adapters of 800 Gbit/s", changed(inter=80e9)),
    ]
    cases = [("350m", 32), ("1b", 64), ("7b", 512), ("7b", 1024)]
    rows = [
        [
            label,
            *(
                f"{m.efficiency(case_of(size, 'nvfp4', ranks), machine):.2f}"
                for size, ranks in cases
            ),
        ]
        for label, machine in machines
    ]
    return table(
        [
            "NVFP4/FP8, batch of the configuration",
            *(f"{size}, {ranks} GPUs" for size, ranks in cases),
        ],
        rows,
    )


def stored_stretches(case):
    """Parts of tensors that a checkpoint's state.json names: where a rank has less than all of a
    tensor.
    """
    moments, residuals = m.OPTIMIZERS[case.optimizer]
    cut = (s.spec for bucket in m.partition(case) for s in bucket if s.count < s.spec.units)
    return sum(
        len(m.pieces_of(case.regime.weights_of(s.kind), s.cols, s.cols)) + moments + residuals
        for s in cut
    )


def bookkeeping_table():
    rows = []
    for size, ranks in [("60m", 128), ("60m", 1024), ("1b", 128), ("7b", 1024), ("70b", 1024)]:
        case = weak(size, "nvfp4", ranks)
        owned = m.own_elements(case)
        pieces = [
            sum(m.ceil_div(s.units, 16) for g in b for s in case.groups[g]) for b in m.buckets(case)
        ]
        rows.append(
            [
                size,
                str(ranks),
                f"{m.norm_pieces(case):,}",
                f"{8 * m.norm_pieces(case) / 1e6:.2f}",
                f"{min(pieces) / ranks:.1f}",
                f"{max(owned) * ranks / sum(owned):.3f}",
                f"{stored_stretches(case):,}",
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
            "stretches in a checkpoint",
        ],
        rows,
    )


def next_table():
    rows = []
    for size, ranks in [("7b", 64), ("13b", 64), ("70b", 64), ("70b", 256), ("70b", 1024)]:
        for regime in ("bf16", "nvfp4"):
            case = case_of(size, regime, ranks)
            sent, now = m.volume(case), m.memory_of(case).total
            two, three = (m.sharded_further(case, weights) for weights in ("whole", "sharded"))
            rows.append(
                [
                    size,
                    LABELS[regime],
                    str(ranks),
                    *(gigabytes(x) for x in (now, two.memory, three.memory)),
                    str(case.micro_batches),
                    *(
                        gigabytes(x)
                        for x in (
                            sum(sent),
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


def tensor_table():
    rows = []
    for size in ("7b", "13b", "70b"):
        for regime in ("bf16", "nvfp4"):
            exchanging, computing = m.tensor_parallel(case_of(size, regime), m.H100, 8)
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


def measured_table():
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
    "strong": lambda: efficiency_table(case_of),
    "weak": lambda: efficiency_table(weak),
    "exposed": exposed_table,
    "sensitivity": sensitivity_table,
    "bookkeeping": bookkeeping_table,
    "next": next_table,
    "tensor": tensor_table,
    "measured": measured_table,
}


def filled(page):
    for name, rows in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(page):
            sys.exit(f"rank_scaling.py: error: {PAGE} has no <!-- {name} -->")
        text = "\n".join(rows())
        page = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


# --- figures
# ---------------------------------------------------------------------------------------------

STYLES = {"bf16": "--", "nvfp4": "-"}


def draw_memory(plt):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3))
    for axis, size in zip(axes, ("1b", "7b")):
        bars = [(regime, ranks) for regime in ("bf16", "nvfp4") for ranks in (1, 8, 64)]
        bottom = [0.0] * len(bars)
        for purpose in m.PURPOSES[:-1]:
            heights = [m.memory_of(case_of(size, r, n)).bytes[purpose] / 1e9 for r, n in bars]
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


def draw_efficiency(plt):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
    for axis, make, title in [
        (axes[0], case_of, "the batch of the configuration"),
        (axes[1], weak, f"{WEAK_TOKENS:,} tokens a GPU"),
    ]:
        for k, size in enumerate(SIZES):
            for regime, style in STYLES.items():
                cases = [
                    c for c in (make(size, regime, n) for n in RANKS) if c.batch.rows >= c.ranks
                ]
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


def draw_traffic(plt):
    figure, axis = plt.subplots(figsize=(5.2, 3.0))
    bars = [("bf16", "fp32"), ("bf16", "bf16"), ("fp8", "bf16"), ("nvfp4", "bf16")]
    case = [case_of("7b", regime, 64, gradient_reduce=wire) for regime, wire in bars]
    p = case[0].shape.parameters
    bottom = [0.0] * len(bars)
    for kind in ("gradients", "weights"):
        heights = [getattr(m.volume(c), kind) / p for c in case]
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


def draw():
    from ..plots.pyplot import plt

    plt.rcParams.update(
        {"svg.hashsalt": "scaling", "svg.fonttype": "none"}
    )  # the same bytes every time; letters as text
    for name, make in [
        ("memory", draw_memory),
        ("efficiency", draw_efficiency),
        ("traffic", draw_traffic),
    ]:
        figure = make(plt)
        figure.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
        print(f"wrote {FIGURES / name}.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--verify", action="store_true", help="only compare the tables")
    parser.add_argument("--no-figures", action="store_true")
    args = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    new = filled(old)
    if args.verify:
        print(
            "the tables are what the model gives"
            if new == old
            else "tables differ: run scripts/rank_scaling.py"
        )
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    print(f"wrote {PAGE}")
    if not args.no_figures:
        draw()
    return 0
