"""The machine code of kernels: how wide they load and store, and where they divide slowly."""

import collections
import dataclasses
import importlib.util
import pathlib
import re
import shutil
import subprocess
import tempfile

from .ptxas_reports import objects_of


class MissingTools(Exception):
    """cuobjdump or nvdisasm is not there."""


@dataclasses.dataclass
class Code:
    loads: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # of bits
    stores: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    divisions: int = 0  # places with a call for what the fast path cannot divide, 1 / x included
    roots: int = 0


_TEXT = re.compile(r"^\s*\.section\s+\.text\.(\w+)")
# Without the G where nvcc does not see which memory a pointer is to, as with pointers from memory.
_ACCESS = re.compile(r"\b(LD|ST)G?\.E((?:\.\w+)*)")
_CALL = re.compile(r"\bCALL\.\S+ `\((\$\S+?)\)")
_DIVIDES = re.compile(r"_(div|rcp)_rn\w*_f32")
_ROOTS = re.compile(r"_sqrt_rn\w*_f32")
_WIDTHS = {"128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}


def width(modifiers):
    """Bits of an access with these modifiers, such as ".128.CONSTANT"."""
    named = [_WIDTHS[part] for part in modifiers.split(".") if part in _WIDTHS]
    return named[0] if named else 32


def read(listing):
    """{symbol: Code} of the kernels in a listing by nvdisasm -c."""
    codes, current = {}, None
    for line in listing:
        if line.lstrip().startswith(".section"):
            section = _TEXT.match(line)
            current = codes.setdefault(section[1], Code()) if section else None
        elif current is None:
            continue
        elif access := _ACCESS.search(line):
            counter = current.loads if access[1] == "LD" else current.stores
            counter[width(access[2])] += 1
        elif call := _CALL.search(line):
            current.divisions += bool(_DIVIDES.search(call[1]))
            current.roots += bool(_ROOTS.search(call[1]))
    return codes


def _places():
    """Directories where the tools may lie besides PATH: CUDA's, and those of Python's packages."""
    yield pathlib.Path("/usr/local/cuda/bin")
    nvidia = importlib.util.find_spec("nvidia")
    for location in nvidia.submodule_search_locations if nvidia else ():
        yield from sorted(pathlib.Path(location).glob("*/bin"))


def _tool(name, directory):
    places = [directory] if directory else [None, *_places()]
    for place in places:
        if path := shutil.which(name, path=place and str(place)):
            return path
    raise MissingTools(f"{name} is missing: pip install nvidia-cuda-{name}")


@dataclasses.dataclass
class Tools:
    cuobjdump: str
    nvdisasm: str

    @classmethod
    def found(cls, directory=None):
        return cls(_tool("cuobjdump", directory), _tool("nvdisasm", directory))

    def codes_of(self, build, architecture):
        """{symbol: Code} of all kernels of a build."""
        codes = {}
        for path in objects_of(build):
            with tempfile.TemporaryDirectory() as scratch:
                subprocess.run(
                    [self.cuobjdump, "-xelf", architecture, path.resolve()],
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                )
                for cubin in sorted(pathlib.Path(scratch).iterdir()):
                    codes |= self._codes_in(cubin)
        return codes

    def _codes_in(self, cubin):
        command = [self.nvdisasm, "-c", cubin]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            codes = read(process.stdout)
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, command)
        return codes
