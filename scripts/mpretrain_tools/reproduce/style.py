"""How figures look: one colour and marker an optimizer, one line a regime, everywhere the same.

The colours are Okabe and Ito's, which differ for colour-blind readers too; markers and lines tell
the same in grey.
"""

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW, GREY = "#E69F00", "#56B4E9", "#F0E442", "#7F7F7F"

# optimizer: colour and marker. A rounding keeps its marker with either rule.
OPTIMIZERS = {
    "AdamW": (BLUE, "o"),
    "M+Adam": (VERMILLION, "s"),
    "AdamW + SR": (GREEN, "^"),
    "AdamW + Kahan": (PURPLE, "D"),
    "M+Adam + SR": (VERMILLION, "^"),
    "M+Adam + Kahan": (VERMILLION, "D"),
}
# Of names that are not above, in the order in which they are first asked for.
_COLOURS = (ORANGE, SKY, GREEN, PURPLE, GREY, BLUE, VERMILLION)
_MARKERS = ("v", "P", "X", "*", "<", ">", "o", "s", "^", "D")
CYCLE = [  # both change from one to the next; 7 and 10 have no common divisor, so all pairs come
    pair
    for index in range(len(_COLOURS) * len(_MARKERS))
    if (pair := (_COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)]))
    not in OPTIMIZERS.values()
]
_given = {}  # name: its place in the cycle
# weights/compute: line
REGIMES = {"FP32/TF32": "-", "BF16/BF16": "-", "BF16/FP8": "--", "FP8/FP8": ":", "NVFP4/FP8": "-."}

LOOK = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "errorbar.capsize": 2,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}


def optimizer(name):
    """Keyword arguments of plot and errorbar. A name that is new has a pair of its own from then
    on.
    """
    colour, marker = (
        OPTIMIZERS.get(name) or CYCLE[_given.setdefault(name, len(_given)) % len(CYCLE)]
    )
    return {"color": colour, "marker": marker}


def regime(name):
    """Keyword arguments of plot; variants of a regime ("FP8/FP8, fp16 scales") share its line."""
    return {"linestyle": REGIMES[name.split(",")[0]]}


def mark_diverged(axes, places, colour):
    """Crosses at the top edge: there is a point here, and it is not on the scale."""
    if places:
        axes.plot(
            places,
            [0.97] * len(places),
            "x",
            color=colour,
            markersize=6,
            markeredgewidth=1.5,
            label="diverged",
            transform=axes.get_xaxis_transform(),
        )


def pyplot():
    """matplotlib's, with this look. Imported when something is drawn: tables need no matplotlib."""
    from ..plots.pyplot import plt  # pylint: disable=import-outside-toplevel

    plt.rcParams.update(LOOK)
    return plt
