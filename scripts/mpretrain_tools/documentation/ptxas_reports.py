"""What ptxas said of each kernel when it was built: <object>.ptxas (cmake/keep_ptxas_report.sh)."""

import dataclasses
import re
import shutil
import subprocess


class BadReport(Exception):
    """There are no reports, or they are not of what was asked for."""


@dataclasses.dataclass
class Kernel:
    symbol: str
    registers: int
    shared: int = 0  # bytes, static
    outside: int = 0  # bytes of stack frame, spill stores and spill loads
    name: str = ""

    @property
    def in_registers(self):
        return self.outside == 0


_COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\w+)")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read(text, architecture):
    """Kernels of a report that were compiled for an architecture. ptxas also lists the properties
    of functions that kernels call; their stack counts for the kernel.
    """
    kernels, current, outside = [], None, 0
    for line in text.splitlines():
        if compiling := _COMPILING.search(line):
            current, outside = compiling, 0
        elif memory := _MEMORY.search(line):
            outside += sum(map(int, memory.groups()))
        elif (used := _USED.search(line)) and current is not None:
            if current[2] == architecture:
                shared = _SHARED.search(line)
                kernels.append(
                    Kernel(current[1], int(used[1]), int(shared[1]) if shared else 0, outside)
                )
            current = None
    return kernels


def objects_of(build):
    """Objects with kernels, of a build directory."""
    reports = sorted(build.glob("CMakeFiles/mpt_cuda*.dir/**/*.o.ptxas"))
    if not reports:
        raise BadReport(f"{build} has no reports of ptxas; build the preset cuda first")
    return [report.with_suffix("") for report in reports]


def kernels_of(build, architecture):
    """All kernels of a build, each once: some are in several objects."""
    found = {}
    for path in objects_of(build):
        report = path.with_name(path.name + ".ptxas").read_text(encoding="utf-8")
        for kernel in read(report, architecture):
            found[kernel.symbol] = kernel
    if not found:
        raise BadReport(f"{build} has no kernel for {architecture}")
    return list(found.values())


def demangled(kernels):
    """The kernels with the names that C++ gives them."""
    if shutil.which("c++filt") is None:
        raise BadReport("c++filt (binutils) is missing")
    symbols = "\n".join(kernel.symbol for kernel in kernels)
    done = subprocess.run(["c++filt"], input=symbols, capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()
    return [dataclasses.replace(k, name=n) for k, n in zip(kernels, names, strict=True)]
