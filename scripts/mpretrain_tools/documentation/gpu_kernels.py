"""Writes the table of docs/benchmarks/gpu_kernels.md: what nvcc made of every kernel, beside what
it may take.

scripts/tools.py gpu_kernels             # of build/cuda, after `cmake --build build/cuda`
scripts/tools.py gpu_kernels --verify    # changes nothing; exits 1 if a kernel is over its budget,
                                         # or the table out of step

Registers, stack and spills are what ptxas said (<object>.ptxas beside each object). Loads, stores
and slow divisions are read from the machine code with cuobjdump and nvdisasm, which belong to CUDA
and come from PyPI as well (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm); without them --verify
leaves these out.
"""

import argparse
import pathlib
import sys

from .. import markdown
from ..repository import ROOT
from .kernel_budgets import BUDGETS, SURVEY, family_of
from .kernel_code import MissingTools, Tools
from .ptxas_reports import BadReport, demangled, kernels_of

MISTAKES = (BadReport, MissingTools, OSError)

PAGE = ROOT / "docs" / "benchmarks" / "gpu_kernels.md"
SCRIPT = "scripts/tools.py gpu_kernels"
BEGIN, END = f"<!-- begin: {SCRIPT} -->", f"<!-- end: {SCRIPT} -->"
HEAD = (
    "kernels",
    "instances",
    "registers",
    "budget",
    "shared memory",
    "stack, spills",
    "loads",
    "stores",
    "divisions",
    "roots",
)
# Columns that another version of nvcc fills alike.
STABLE = ("kernels", "instances", "budget", "stack, spills")


def spread(values):
    """One number, or the least and the greatest."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}–{high}"


def families(kernels):
    """Kernels by the family that their names belong to, the survey's left out."""
    found = {}
    for kernel in kernels:
        family = family_of(kernel.name)
        if family != SURVEY:
            found.setdefault(family, []).append(kernel)
    return dict(sorted(found.items()))


def widths(codes, name):
    """Bits of the accesses that occur, the widest first."""
    found = sorted({bits for code in codes for bits in getattr(code, name)}, reverse=True)
    return " ".join(map(str, found)) or "–"


def of_code(codes):
    """Cells about machine code; nothing is known of none."""
    if not codes:
        return ("?",) * 4
    return (
        widths(codes, "loads"),
        widths(codes, "stores"),
        spread([code.divisions for code in codes]),
        spread([code.roots for code in codes]),
    )


def row(family, kernels, codes):
    """A row of the table; codes is empty where the machine code was not read."""
    return (
        f"`{family}`",
        len(kernels),
        spread([kernel.registers for kernel in kernels]),
        BUDGETS[family].registers if family in BUDGETS else "none stated",
        spread([kernel.shared for kernel in kernels]),
        spread([kernel.outside for kernel in kernels]),
        *of_code([codes[kernel.symbol] for kernel in kernels if kernel.symbol in codes]),
    )


def resource_faults(found):
    """Kernels over their budgets, one line each."""
    for family, kernels in found.items():
        if family not in BUDGETS:
            yield f"{family}: no budget is stated in kernel_budgets.json"
            continue
        for kernel in kernels:
            if not kernel.in_registers:
                yield f"{kernel.name}: {kernel.outside} bytes of stack and spills"
            if kernel.registers > BUDGETS[family].registers:
                yield (
                    f"{kernel.name}: {kernel.registers} registers, "
                    f"budget {BUDGETS[family].registers}"
                )
    for family in BUDGETS.keys() - found.keys():
        yield f"{family}: has a budget, but no kernel"


def code_faults(found, codes):
    """Kernels whose machine code is not what their families claim, one line each."""
    for family, kernels in found.items():
        budget = BUDGETS.get(family)
        for kernel in kernels if budget else ():
            code = codes[kernel.symbol]
            if budget.load is not None and budget.load not in code.loads:
                yield f"{kernel.name}: no load of {budget.load} bits"
            if budget.divisions is not None and code.divisions > budget.divisions:
                yield f"{kernel.name}: {code.divisions} divisions, budget {budget.divisions}"


def stable(lines):
    """The columns of a table's rows that every nvcc fills alike."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    rows = [cells for cells in rows if len(cells) == len(HEAD)]
    return [tuple(cells[HEAD.index(name)] for name in STABLE) for cells in rows]


def shown_table():
    """Lines of the table as committed."""
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


def table_faults(lines):
    """Rows of the committed table that another run would write differently."""
    shown, built = stable(shown_table()), stable(lines)
    for cells in built:
        if cells not in shown:
            yield f"{PAGE.name} lacks the row {' | '.join(cells)}"
    for cells in shown:
        if cells not in built:
            yield f"{PAGE.name} has a row that no kernel has: {' | '.join(cells)}"


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Of the architecture that --architecture names.",
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda")
    parser.add_argument("--architecture", default="sm_90a", help="default: %(default)s")
    parser.add_argument(
        "--tools", type=pathlib.Path, help="directory of cuobjdump and nvdisasm, if not found"
    )
    parser.add_argument("--verify", action="store_true", help="compare, and write nothing")
    return parser.parse_args()


def main():
    options = arguments()
    kernels = demangled(kernels_of(options.build, options.architecture))
    found = families(kernels)
    try:
        codes = Tools.found(options.tools).codes_of(options.build, options.architecture)
    except MissingTools as missing:
        if not options.verify:
            raise
        print(f"{SCRIPT}: {missing}; the machine code is not looked at", file=sys.stderr)
        codes = {}
    lines = markdown.table(HEAD, (row(name, own, codes) for name, own in found.items()))
    if not options.verify:
        text = markdown.filled(PAGE.read_text(encoding="utf-8"), BEGIN, END, lines)
        if text is None:
            raise BadReport(f"{PAGE} has no lines {BEGIN} and {END}")
        PAGE.write_text(text, encoding="utf-8")
    faults = [*resource_faults(found), *table_faults(lines)]
    faults += code_faults(found, codes) if codes else []
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0
