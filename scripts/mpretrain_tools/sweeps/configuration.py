"""A configuration file with all that it includes, as one JSON object, the way mpretrain merges
it.
"""

import json
import pathlib
import re

from .. import repository


class BadConfig(Exception):
    """A configuration cannot be read."""


def parse(path):
    """The object in a file in which // comments are allowed."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise BadConfig(f"{path}: {problem.strerror}") from problem
    # A string, which may hold slashes, or a comment: only the latter goes.
    text = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as problem:
        raise BadConfig(f"{path}:{problem.lineno}: {problem.msg}") from problem
    except KeyError as problem:
        raise BadConfig(f"{path}: found the key {problem} twice, expected it once") from problem


def _unique(pairs):
    """An object; JSON lets a key stand there twice, and the first value would be lost."""
    found = {}
    for key, value in pairs:
        if key in found:
            raise KeyError(key)
        found[key] = value
    return found


def merged(below, above):
    """`above` over `below`: objects are merged key by key, everything else is replaced."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


def load(path):
    """The whole configuration of a file, its includes beneath it from left to right."""
    path = pathlib.Path(path)
    own = parse(path)
    whole = {}
    for name in own.pop("include", []):
        whole = merged(whole, load(path.parent / name))
    return merged(whole, own)


def set_key(config, dotted, value):
    """Sets section.key in place."""
    *sections, key = dotted.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[key] = value


def get_key(config, dotted, default=None):
    """The value of section.key, or the default."""
    for key in dotted.split("."):
        if not isinstance(config, dict) or key not in config:
            return default
        config = config[key]
    return config


def known_keys():
    """All section.key that a configuration may have."""
    return sorted(_keys_of(parse(repository.CONFIGS / "schema.json"), ""))


def _keys_of(schema, prefix):
    for name, inner in schema.get("properties", {}).items():
        if "properties" in inner:
            yield from _keys_of(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
