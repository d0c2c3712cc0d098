"""What a study compares: arms, each a configuration with changes and knobs, one by one or as cross
products of axes.

An arm's name may have axes in braces: "{optimizer}_{format}" stands for one arm a combination of
their choices. A choice has the same keys as an arm; of a combination, the choices count in the
order in which the axes stand in the file, and the arm's own keys last. {axis} in a config or a
label stands for the choice's name or label, {scale} for the scale.
"""

import difflib
import fnmatch
import itertools
import pathlib
import re
from dataclasses import dataclass, field

from .. import repository
from ..sweeps import configuration
from ..sweeps.cell import LENGTHS
from ..sweeps.configuration import BadConfig
from .knobs import Knob

CHOICE_KEYS = ("config", "pieces", "set", "knobs", "label", "style")
ARM_KEYS = (*CHOICE_KEYS, "tuned_as", "only", "except")
KNOB_KEYS = ("low", "high", "scale", "step", "count", "values", "ratio_of", "limits")
STYLE_KEYS = ("color", "marker", "linestyle")
BRACES = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Arm:
    """One of the things compared."""

    name: str
    config: str  # as in the file, {scale} not yet replaced
    changes: dict = field(hash=False)
    knobs: tuple = field(hash=False)
    label: str = ""
    style: dict = field(default_factory=dict, hash=False, compare=False)
    tuned_as: str = ""
    of_pieces: frozenset = frozenset()  # keys of changes that a piece says


class Arms:
    """Reads axes and arms of a study's file."""

    def __init__(self, checker, directory, found):
        self.checker, self.directory = checker, directory
        self.keys = configuration.known_keys()
        self.scale = checker.of(found, "scale", "", checker.text, "")
        self.axes = self._axes(found.get("axes", {}))
        self.by_name, self._configs = {}, {}
        for name, value in checker.object(found.get("arms", {}), "arms").items():
            self._add(name, value)
        if not self.by_name:
            checker.bad("arms", found.get("arms", "nothing"), "an object with at least one arm")
        for name, arm in self.by_name.items():
            self._check_tuned_as(name, arm)

    # --- names

    def combinations(self, text, where, only, excepted):
        """[{axis: choice}] of the axes in braces in a text, [{}] where there is none."""
        axes = [axis for axis in self.axes if axis in BRACES.findall(text)]
        for axis in BRACES.findall(text):
            if axis not in self.axes and axis != "scale":
                self.checker.bad(where, f"{{{axis}}}", f"an axis: {', '.join(self.axes) or 'none'}")
        excepted = self.checker.list(excepted, f"{where}.except", self.checker.text, least=0)
        only = self.checker.object(only or {}, f"{where}.only", axes)
        choices = []
        for axis in axes:
            chosen = only.get(axis, list(self.axes[axis]))
            chosen = chosen if isinstance(chosen, list) else [chosen]
            chosen = self.checker.list(chosen, f"{where}.only.{axis}", self.checker.text)
            for choice in chosen:
                if choice not in self.axes[axis]:
                    self.checker.bad(
                        f"{where}.only.{axis}", choice, f"one of {', '.join(self.axes[axis])}"
                    )
            choices.append([choice for choice in chosen if choice in self.axes[axis]])
        found = [dict(zip(axes, chosen)) for chosen in itertools.product(*choices)]
        return [one for one in found if not matches(_filled(text, one), excepted)]

    def chosen(self, patterns, where):
        """Names of arms that are named or match a pattern such as "adamw_*", in the file's
        order.
        """
        patterns = [patterns] if isinstance(patterns, str) else patterns
        found = set()
        for index, pattern in enumerate(self.checker.list(patterns, where, self.checker.text)):
            matching = [name for name in self.by_name if fnmatch.fnmatchcase(name, pattern)]
            if not matching:
                self.checker.bad(f"{where}[{index}]", pattern, self._accepted(pattern))
            found.update(matching)
        return [name for name in self.by_name if name in found]

    def one(self, name, where):
        """The name of an arm, None if there is no such arm."""
        if not isinstance(name, str) or name not in self.by_name:
            self.checker.bad(where, name, self._accepted(name))
            return None
        return name

    def _accepted(self, name):
        near = difflib.get_close_matches(str(name), self.by_name, n=3, cutoff=0.5)
        return f"an arm, such as {', '.join(near or list(self.by_name)[:5])}"

    def check_reaches(self, changes, where):
        """Pieces stand above the keys of all arms, which therefore must not say something else."""
        for key, value in changes.items():
            for name, arm in self.by_name.items():
                if key in arm.of_pieces and arm.changes[key] != value:
                    self.checker.bad(
                        f"{where}.{key}",
                        value,
                        f"{arm.changes[key]}, which a piece of {name} says, "
                        "or the key in that arm's set",
                    )

    # --- reading

    def _axes(self, value):
        found = {}
        for axis, choices in self.checker.object(value, "axes").items():
            found[axis] = {
                name: self.checker.object(choice, f"axes.{axis}.{name}", CHOICE_KEYS)
                for name, choice in self.checker.object(choices, f"axes.{axis}").items()
            }
        return found

    def _add(self, template, value):
        where = f"arms.{template}"
        found = self.checker.object(value, where, ARM_KEYS)
        excepted = found.get("except", [])
        for combination in self.combinations(template, where, found.get("only"), excepted):
            name = _filled(template, combination)
            if name in self.by_name:
                self.checker.bad(where, f"the arm {name} again", "each name once; see except")
            parts = [
                (f"axes.{axis}.{choice}", self.axes[axis][choice])
                for axis, choice in combination.items()
            ]
            self.by_name[name] = self._arm(name, [*parts, (where, found)], combination)

    def _arm(self, name, parts, combination):
        config, label = "", ""
        changes, knobs, style, labels, of_pieces = {}, {}, {}, [], set()
        for where, part in parts:
            if "config" in part:
                config = self.checker.text(part["config"], f"{where}.config") or ""
            pieces = self._pieces(part, where, combination)
            own = self.settings(part.get("set", {}), f"{where}.set")
            changes.update({**pieces, **own})
            of_pieces = (of_pieces | set(pieces)) - set(own)
            knobs.update(self._knobs(part.get("knobs", {}), f"{where}.knobs"))
            given = self.checker.object(part.get("style", {}), f"{where}.style", STYLE_KEYS)
            style.update(given)
            label = part.get("label", "")
            if not isinstance(label, str):
                self.checker.bad(f"{where}.label", label, "a text")
                label = ""
            if where.startswith("axes.") and label:
                labels.append(label)
        label = self._label(label, combination) if parts[-1][1].get("label") else " ".join(labels)
        config = self._config(_filled(config, combination), f"arms.{name}.config")
        tuned_as = parts[-1][1].get("tuned_as", "")
        if tuned_as and "knobs" in parts[-1][1]:
            self.checker.bad(f"{parts[-1][0]}.tuned_as", "tuned_as and knobs", "one of them")
        knobs = () if tuned_as else self._checked_ratios(name, knobs)
        return Arm(
            name,
            config,
            changes,
            knobs,
            label or name,
            style,
            _filled(str(tuned_as), combination),
            frozenset(of_pieces),
        )

    def _label(self, text, combination):
        labels = {
            axis: str(self.axes[axis][choice].get("label", choice))
            for axis, choice in combination.items()
        }
        return _filled(str(text), labels)

    def _config(self, config, where):
        """The config; what is wrong with it is told once, and not for every combination."""
        if config not in self._configs:
            self._configs[config] = self._checked_config(config, where)
        return self._configs[config]

    def _checked_config(self, config, where):
        if not config:
            self.checker.bad(where, "nothing", "a file beside the study or of configs/")
            return ""
        if "{scale}" in config and not self.scale:
            self.checker.bad("scale", "nothing", f"a text, for {where} is {config}")
        try:
            configuration.load(self.path_of(config, self.scale))
        except BadConfig as problem:
            near = _files_like(config.replace("{scale}", self.scale))
            self.checker.bad(where, str(problem), f"a configuration, such as {', '.join(near)}")
        return config

    def path_of(self, config, scale):
        """Of a configuration: beside the study's file, else of configs/."""
        return repository.CONFIGS / self.config_of(config, scale)

    def config_of(self, config, scale):
        """The same as cells have it: of configs/ the name alone."""
        name = config.replace("{scale}", scale)
        beside = self.directory / name
        return str(beside.resolve()) if beside.is_file() else name

    def check_scale(self, names, scale, where):
        """Whether the arms' configurations are there at a scale, where one is given."""
        for config in dict.fromkeys(self.by_name[name].config for name in names if scale):
            if "{scale}" not in config:
                self.checker.bad(
                    where, f"{scale} for {config}", "arms with {scale} in their config"
                )
            elif not self.path_of(config, scale).is_file():
                file = config.replace("{scale}", scale)
                self.checker.bad(where, f"{scale}, but no {file}", "a scale that has this file")

    def _pieces(self, part, where, combination):
        """What files such as base/stochastic.json set, merged from left to right."""
        found = {}
        pieces = self.checker.of(part, "pieces", where, self.checker.list, [])
        for index, piece in enumerate(pieces):
            here = f"{where}.pieces[{index}]"
            if self.checker.text(piece, here) is None:
                continue
            name = _filled(piece, combination)
            try:
                loaded = configuration.load(self.path_of(name, self.scale))
            except BadConfig as problem:
                self.checker.bad(here, str(problem), "a file such as base/stochastic.json")
                continue
            flat = {key: inner for key, inner in _flat(loaded) if key not in ("$schema", "name")}
            found.update(self.settings(flat, here))
        return found

    def settings(self, value, where):
        """{section.key: value} of configurations."""
        found = self.checker.object(value, where)
        for key, inner in found.items():
            self._check_key(key, f"{where}.{key}")
            self.checker.scalar(inner, f"{where}.{key}")
            if key in LENGTHS or key == "seed":
                self.checker.bad(
                    f"{where}.{key}", "a length or seed", "budget and seeds of tuning and results"
                )
        return found

    def _check_key(self, key, where):
        if key not in self.keys:
            near = difflib.get_close_matches(str(key), self.keys, n=1)
            self.checker.bad(
                where,
                "a key that configurations do not have",
                f"{near[0] if near else 'section.key'}; configs/schema.json has all",
            )

    def _knobs(self, value, where):
        """{key: Knob}; null takes away a knob that an axis gave."""
        return {
            key: self.knob(key, inner, f"{where}.{key}") if inner is not None else None
            for key, inner in self.checker.object(value, where).items()
        }

    def knob(self, key, value, where):
        """A Knob, None where it is wrong."""
        checker = self.checker
        self._check_key(key, where)
        found = checker.object(value, where, KNOB_KEYS)
        values = checker.of(found, "values", where, checker.list, [], each=checker.scalar)
        if values:
            others = [name for name in found if name not in ("values", "ratio_of")]
            if others:
                checker.bad(where, f"values and {', '.join(others)}", "either values or a range")
            return Knob(key, values=tuple(values), ratio_of=found.get("ratio_of", ""))
        if not all(checker.needed(found, end, where, "a number") for end in ("low", "high")):
            return None
        scale = checker.of(found, "scale", where, checker.text, "log", among=("log", "linear"))
        above = 0 if scale == "log" else None
        low = checker.of(found, "low", where, checker.number, above=above)
        high = checker.of(found, "high", where, checker.number, above=low)
        least = 1 if scale == "log" else 0
        step = checker.of(found, "step", where, checker.number, 0.0, above=least)
        count = checker.of(found, "count", where, checker.whole, 0, least=2)
        if step and count:
            checker.bad(where, "step and count", "one of them")
        limits = self._limits(found, where, above)
        ratio_of = checker.of(found, "ratio_of", where, checker.text, "")
        if low is None or high is None:
            return None
        return Knob(
            key,
            float(low),
            float(high),
            scale,
            step=float(step),
            count=count,
            ratio_of=ratio_of,
            least=limits[0],
            most=limits[1],
        )

    def _limits(self, found, where, above):
        """[least, most]; null is none."""
        limits = self.checker.of(found, "limits", where, self.checker.list, [None, None], least=2)
        if len(limits) != 2:
            self.checker.bad(f"{where}.limits", limits, "[least, most], null where there is none")
            return [above or -float("inf"), float("inf")]
        return [
            float("inf") * (-1) ** (index + 1)
            if limit is None or self.checker.number(limit, f"{where}.limits[{index}]") is None
            else float(limit)
            for index, limit in enumerate(limits)
        ]

    def _checked_ratios(self, name, knobs):
        found = {key: knob for key, knob in knobs.items() if knob is not None}
        for key, knob in found.items():
            if not knob.ratio_of:
                continue
            where = f"arms.{name}.knobs.{key}.ratio_of"
            self._check_key(knob.ratio_of, where)
            if knob.ratio_of == key or (found.get(knob.ratio_of) and found[knob.ratio_of].ratio_of):
                self.checker.bad(where, knob.ratio_of, "another key, which is no ratio itself")
        return tuple(found.values())

    def _check_tuned_as(self, name, arm):
        if not arm.tuned_as:
            return
        where = f"arms.{name}.tuned_as"
        if self.one(arm.tuned_as, where) and (
            arm.tuned_as == name or self.by_name[arm.tuned_as].tuned_as
        ):
            self.checker.bad(where, arm.tuned_as, "another arm, which is tuned itself")


def _filled(text, choices):
    return BRACES.sub(lambda match: str(choices.get(match[1], match[0])), text)


def filled(text, choices):
    """{axis} replaced by choices, in a text or in lists of texts."""
    if isinstance(text, list):
        return [filled(inner, choices) for inner in text]
    return _filled(text, choices) if isinstance(text, str) else text


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _flat(value, prefix=""):
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner


def _files_like(config):
    names = [path.name for path in repository.CONFIGS.glob("*.json")]
    return difflib.get_close_matches(pathlib.Path(config).name, names, n=3) or names[:3]
