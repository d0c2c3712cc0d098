"""One training run that a table needs, and what identifies it."""

import functools
import hashlib
import json
import pathlib
from dataclasses import dataclass

from .. import repository
from . import configuration

# What the result of a run does not depend on: where it lies, how often it is saved, what it logs,
# which machine it is on. Other keys of `device` and `distributed` change the order of sums.
INCIDENTAL_SECTIONS = ("$schema", "name", "output_dir", "checkpoint", "log")
INCIDENTAL_KEYS = (
    "device.type",
    "device.threads",
    "device.gpu",
    "device.cuda_graph",
    "device.autotune_gemms",
    "device.tune_products",
    "device.fp8_weight_codes",
    "distributed.sharding",
    "distributed.bucket_mib",
    "distributed.check_every_steps",
    "distributed.timeout_seconds",
    "data.train",
    "data.validation",
    "data.tokenizer",
    "data.prefetch_steps",
    "eval.every_steps",
)
LENGTHS = ("train.steps", "train.tokens", "train.chinchilla")
ALL_HELD_OUT = "val_*.bin"


def canonical(value):
    """The same for the same value however it is spelled: 1, 1.0 and 1e0 are one number; null is a
    key not set.
    """
    if isinstance(value, dict):
        return {key: canonical(inner) for key, inner in sorted(value.items()) if inner is not None}
    if isinstance(value, list):
        return [canonical(inner) for inner in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@functools.cache
def tokens_identity(directory):
    """What identifies the text and its tokenizer: the hashes of all shards of the directory's
    manifest.
    """
    path = pathlib.Path(directory) / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        shards = [
            shard["hash"]
            for name in sorted(manifest["splits"])
            for shard in manifest["splits"][name]["shards"]
        ]
        return " ".join([manifest["tokenizer"]["hash"], *shards])
    except OSError as problem:
        raise configuration.BadConfig(
            f"{path}: {problem.strerror}; expected the manifest that `mpretrain tokenize` writes"
        ) from problem
    except (json.JSONDecodeError, KeyError, TypeError) as problem:
        raise configuration.BadConfig(
            f"{path}: not the manifest that `mpretrain tokenize` writes: {problem!r}"
        ) from problem


@dataclass(frozen=True)
class Cell:
    """A run: a file of configs/ and the keys changed in it, ((section.key, value), ...), seed and
    length among them.
    """

    config: str
    changes: tuple = ()

    @staticmethod
    def of(config, *changes):
        """From dictionaries {section.key: value}, later ones first in rank."""
        together = {}
        for change in changes:
            if any(change.get(key) is not None for key in LENGTHS):  # one length replaces another
                together.update(dict.fromkeys(LENGTHS))
            together.update(change)
        return Cell(config, tuple(sorted(together.items())))

    def with_changes(self, *changes):
        return Cell.of(self.config, dict(self.changes), *changes)

    @property
    def seed(self):
        return self.value("seed", 1)

    def value(self, key, default=None):
        """What the run has under section.key."""
        return configuration.get_key(self.configuration(), key, default)

    @property
    def held_out(self):
        """The shards that are evaluated, in the directory of the text: data.validation, if it is
        changed.
        """
        return dict(self.changes).get("data.validation", ALL_HELD_OUT)

    def configuration(self):
        return _resolved(self)

    def fingerprint(self, tokens):
        """16 hex digits, of everything that the result depends on but the program."""
        return _digest(f"{self._meaning()}\0{tokens_identity(str(tokens))}")

    def identity(self):
        """16 hex digits, of everything but the program and the text."""
        return _digest(self._meaning())

    def _meaning(self):
        config = json.loads(json.dumps(self.configuration()))
        for section in INCIDENTAL_SECTIONS:
            config.pop(section, None)
        for key in INCIDENTAL_KEYS:
            section, name = key.split(".")
            config.get(section, {}).pop(name, None)
        for section in ("device", "distributed"):
            if not config.get(section, True):  # nothing is left of it
                del config[section]
        part = "" if self.held_out == ALL_HELD_OUT else f"\0{self.held_out}"
        return json.dumps(canonical(config), sort_keys=True) + part

    def name(self, tokens):
        """Of the run's directory: the same for every table that needs this run."""
        return f"{pathlib.Path(self.config).stem}_seed{self.seed}_{self.fingerprint(tokens)}"

    def described_changes(self):
        """For people: what differs from the file, without seed and length."""
        return " ".join(
            f"{key.split('.')[-1]}={value}"
            for key, value in self.changes
            if value is not None and key != "seed" and key not in LENGTHS
        )


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _resolved(cell):
    config = configuration.load(repository.CONFIGS / cell.config)
    for key, value in cell.changes:
        configuration.set_key(config, key, value)
    return config
