"""Starts one of the smaller tools by its name:

plot_survival, plot_toy      the survival of updates, and the matrix-fitting diagnostic
plot_front_page              the figures of README.md
ranks_check                  trains by 1, 2 and 3 ranks and compares
scaling_model                what training over ranks takes
rank_scaling, rank_scaling_measured   docs/scaling.md, and what it says of two ranks
reference_pages, gpu_kernels   the generated parts of docs/reference and docs/benchmarks

Those that an installed program does not come with are not among its names.
"""

import pathlib
import sys

from . import command

MODULES = {
    "plot_survival": "plots.survival",
    "plot_toy": "plots.toy",
    "plot_front_page": "plots.front_page",
    "ranks_check": "runs.ranks_check",
    "scaling_model": "rank_model.command",
    "rank_scaling": "rank_model.page",
    "rank_scaling_measured": "rank_model.measured",
    "reference_pages": "documentation.reference",
    "gpu_kernels": "documentation.gpu_kernels",
}
HERE = pathlib.Path(__file__).parent
NAMES = tuple(
    name
    for name, path in MODULES.items()
    if (HERE / path.replace(".", "/")).with_suffix(".py").exists()
)


def main():
    return command.of_several(sys.modules[__name__])
