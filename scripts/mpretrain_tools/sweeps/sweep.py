"""Cells of a sweep's JSON file, in which // comments are allowed: a base config, what is set in it,
axes and seeds.

    {
      "base": "{scale}_bf16.json",
      "set": {"train.chinchilla": 0.25},
      "axes": {
        "optimizer.lr_additive": [2e-3, 4e-3],
        "optimizer": [
          {"label": "M+Adam"},
          {"label": "AdamW", "base": "{scale}_bf16_adamw.json", "set": {"optimizer.eps": 1e-6}}
        ]
      },
      "baseline": {"optimizer": "AdamW"},
      "seeds": [1, 2, 3]
    }

An axis is a key of configurations with values, or any name with objects that have a label and, as
they need, a base and a set of their own. A combination takes one choice of every axis; where they
disagree, the later axis counts. {scale} stands for --scale. A sweep that sets no length takes that
of --budget. With a baseline, every combination is compared with the one that has these labels on
these axes and its own on the others.
"""

import difflib
import itertools
import json
import pathlib
from dataclasses import dataclass

from .. import repository
from . import configuration
from .cell import LENGTHS, Cell
from .configuration import BadConfig

SWEEP_KEYS = ("name", "base", "set", "axes", "baseline", "seeds")
CHOICE_KEYS = ("label", "base", "set")


@dataclass(frozen=True)
class Choice:
    """A point on an axis."""

    label: str
    base: str  # "": that of the sweep
    changes: tuple  # ((key, value), ...)


@dataclass(frozen=True)
class Combination:
    """One choice of every axis."""

    labels: tuple
    base: str
    changes: tuple

    def cell(self, seed, budget, quick=1.0, more=()):
        """Its run with a seed; budget: its length in multiples of 20 tokens a parameter, where the
        sweep sets none.
        """
        cell = Cell.of(
            self.base, {"train.chinchilla": budget, "seed": seed}, dict(self.changes), dict(more)
        )
        return cell if quick == 1.0 else cell.with_changes(_scaled_length(cell, quick))


def _scaled_length(cell, factor):
    key = next(key for key in LENGTHS if cell.value(key) is not None)
    value = cell.value(key) * factor
    return {key: value if key == "train.chinchilla" else max(1, round(value))}


class Sweep:
    """What a file says, checked."""

    def __init__(self, path, scale="pico"):
        self.path, self.scale = pathlib.Path(path), scale
        self._keys = known_keys()
        found = self._object(configuration.parse(path), "the file", SWEEP_KEYS)
        self.name = self._text(found.get("name", self.path.stem), "name")
        if "base" not in found:
            raise self._bad(
                "base", "nothing", "the name of a file of configs/, such as pico_bf16.json"
            )
        self.base = self._base(found["base"], "base")
        self.changes = self._changes(found.get("set", {}), "set")
        axes = self._object(found.get("axes", {}), "axes")
        self.axes = {name: self._axis(name, choices) for name, choices in axes.items()}
        self.baseline = self._baseline(found.get("baseline", {}))
        self.seeds = self._seeds(found.get("seeds", [1, 2, 3]))

    def labels_of_baseline(self, combination):
        """Of what the combination is compared with, None where there is no baseline or it is itself
        one.
        """
        labels = tuple(
            self.baseline.get(axis, own) for axis, own in zip(self.axes, combination.labels)
        )
        return None if labels == combination.labels else labels

    def combinations(self):
        """In order, the last axis changing fastest."""
        return [self._combination(choices) for choices in itertools.product(*self.axes.values())]

    def _combination(self, choices):
        base = next((choice.base for choice in reversed(choices) if choice.base), self.base)
        changes = Cell.of(
            base, dict(self.changes), *(dict(choice.changes) for choice in choices)
        ).changes
        return Combination(tuple(choice.label for choice in choices), base, changes)

    # --- reading

    def _baseline(self, value):
        """{axis: label}"""
        for axis, chosen in self._object(value, "baseline").items():
            if axis not in self.axes:
                raise self._bad("baseline", f"axis {axis}", f"one of axes: {', '.join(self.axes)}")
            labels = [choice.label for choice in self.axes[axis]]
            if label_of(chosen) not in labels:
                raise self._bad(
                    f"baseline.{axis}",
                    label_of(chosen),
                    f"a choice of that axis: {', '.join(labels)}",
                )
        return {axis: label_of(chosen) for axis, chosen in value.items()}

    def _axis(self, name, choices):
        where = f"axes.{name}"
        if not isinstance(choices, list) or not choices:
            raise self._bad(where, choices, "a list of values, or of objects with a label")
        if any(isinstance(choice, dict) for choice in choices):
            found = [
                self._choice(choice, f"{where}[{index}]") for index, choice in enumerate(choices)
            ]
        else:
            self._check_key(name, where)
            found = [
                Choice(label_of(self._scalar(choice, f"{where}[{index}]")), "", ((name, choice),))
                for index, choice in enumerate(choices)
            ]
        for index, choice in enumerate(found):
            if choice.label in [other.label for other in found[:index]]:
                raise self._bad(f"{where}[{index}]", choice.label, "a label not used yet")
        return found

    def _choice(self, choice, where):
        choice = self._object(choice, where, CHOICE_KEYS)
        if "label" not in choice:
            raise self._bad(f"{where}.label", "nothing", "a label of this choice for the table")
        return Choice(
            self._text(choice["label"], f"{where}.label"),
            self._base(choice["base"], f"{where}.base") if "base" in choice else "",
            tuple(self._changes(choice.get("set", {}), f"{where}.set").items()),
        )

    def _changes(self, value, where):
        for key, inner in self._object(value, where).items():
            self._check_key(key, f"{where}.{key}")
            self._scalar(inner, f"{where}.{key}")
        return value

    def _seeds(self, value):
        if (
            not isinstance(value, list)
            or not value
            or not all(type(seed) is int and seed >= 0 for seed in value)
        ):
            raise self._bad("seeds", value, "a list of whole numbers, such as [1, 2, 3]")
        return value

    def _base(self, value, where):
        name = self._text(value, where).replace("{scale}", self.scale)
        if not (repository.CONFIGS / name).is_file():
            names = sorted(
                path.name for path in repository.CONFIGS.glob(f"{name.split('_')[0]}_*.json")
            )
            raise self._bad(
                where,
                name,
                f"a file of {repository.CONFIGS}{': ' if names else ''}{', '.join(names)}",
            )
        return name

    def _check_key(self, key, where):
        if key not in self._keys:
            near = difflib.get_close_matches(key, self._keys, n=1)
            raise self._bad(
                where,
                f"key {key}",
                f"a key of configurations{f', such as {near[0]}' if near else ''}; "
                "`mpretrain schema` lists them",
            )

    def _object(self, value, where, keys=None):
        if not isinstance(value, dict):
            raise self._bad(where, value, "an object")
        for key in value:
            if keys and key not in keys:
                raise self._bad(where, f"key {key}", ", ".join(keys))
        return value

    def _text(self, value, where):
        if not isinstance(value, str) or not value:
            raise self._bad(where, value, "a text")
        return value

    def _scalar(self, value, where):
        if isinstance(value, (dict, list)):
            raise self._bad(where, value, "a number, a text, true, false or null")
        return value

    def _bad(self, where, found, accepted):
        shown = found if isinstance(found, str) else json.dumps(found)
        return BadConfig(f"{self.path}: {where}: found {shown}, expected {accepted}")


def label_of(value):
    """A value as tables show it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:g}" if isinstance(value, (int, float)) else value


def known_keys():
    """All section.key that a configuration may have."""
    return sorted(_keys_of(configuration.parse(repository.CONFIGS / "schema.json"), ""))


def _keys_of(schema, prefix):
    for name, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from _keys_of(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
