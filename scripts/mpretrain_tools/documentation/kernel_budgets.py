"""What each kernel may take, by family; kernel_budgets.json beside this is the one place where it
is stated.

A budget of registers is the most that leaves as many blocks of 256 threads resident: a
multiprocessor has 65,536 registers, so up to 32 leave eight blocks, 40 six, 48 five, 64 four, 80
three, 128 two and 255 one. Versions of nvcc may differ within it.
"""

import json
import pathlib
import re
from typing import NamedTuple


class Budget(NamedTuple):
    registers: int  # of a thread, at most
    load: int | None = None  # bits of the widest loads, where the code claims them
    divisions: int | None = None  # slow divisions in the code, at most


SURVEY = "CountUpdates"  # counts updates for statistics, seldom; it may spill

_FUNCTOR = re.compile(r"^(?:groups|elements)_kernel<(\w+)(?:<(\w+)(?:<(.*))?)?")
_RULE = re.compile(r"(\w+)::(?:\w*Step\b|EagerKahan)")


def family_of(name):
    """The name that instances of one template share: that of the kernel, or of what
    groups_kernel<> and elements_kernel<> run; updates also by rule, as "TensorUpdate, AdamW".
    """
    name = re.sub(r"\(anonymous namespace\)::", "", name.removeprefix("void ").replace("mpt::", ""))
    functor = _FUNCTOR.match(name)
    if functor is None:
        return re.match(r"\w+", name)[0]
    if functor[1] != "TensorTable" or not functor[2].endswith("Update"):
        return functor[1]
    rule = _RULE.search(name)
    return f"{functor[2]}, {rule[1]}" if rule else functor[2]


_FILE = pathlib.Path(__file__).with_suffix(".json")
BUDGETS = {
    family: Budget(**limits)
    for family, limits in json.loads(_FILE.read_text(encoding="utf-8")).items()
}
