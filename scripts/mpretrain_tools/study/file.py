"""The file of a study, read and checked: every mistake is found at once and told with file, key,
what was found and what is accepted.
"""

import difflib
import hashlib
import json
import pathlib
import re

from ..sweeps import configuration
from ..sweeps.configuration import BadConfig

SUFFIXES = (".json", ".yaml", ".yml")


def parse(path):
    """The object in a file of JSON with // comments, or of YAML."""
    path = pathlib.Path(path)
    if path.suffix not in SUFFIXES:
        raise BadConfig(
            f"{path}: found {path.suffix or 'no ending'}, expected {', '.join(SUFFIXES)}"
        )
    found = configuration.parse(path) if path.suffix == ".json" else _parse_yaml(path)
    if not isinstance(found, dict):
        raise BadConfig(f"{path}: found {json.dumps(found)}, expected an object")
    return found


def _parse_yaml(path):
    try:
        import yaml  # pylint: disable=import-outside-toplevel  (not of the standard library)
    except ModuleNotFoundError as problem:
        raise BadConfig(
            f"{path}: YAML needs PyYAML, which is not installed: apt-get install python3-yaml, or"
            " pip install pyyaml; a study in JSON needs nothing"
        ) from problem
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadConfig(f"{path}: {problem.strerror}") from problem
    except yaml.YAMLError as problem:
        raise BadConfig(f"{path}: {problem}") from problem


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Checker:
    """Reads values of a file and remembers what is wrong with them. A value that is wrong is read
    as the default, so that the rest can be read as well.
    """

    def __init__(self, path):
        self.path, self.problems = path, []

    def bad(self, where, found, accepted):
        shown = found if isinstance(found, str) else json.dumps(found, default=str)
        self.problems.append(f"{self.path}: {where}: found {shown}, expected {accepted}")

    def done(self):
        """Raises what was found."""
        if self.problems:
            raise BadConfig("\n".join(dict.fromkeys(self.problems)))

    def object(self, value, where, keys=None):
        """{} if it is none; keys that are not known are named."""
        if not isinstance(value, dict):
            self.bad(where, value, "an object")
            return {}
        for key in value:
            if keys is not None and key not in keys:
                near = difflib.get_close_matches(str(key), keys, n=1)
                hint = f"{near[0]}? All: " if near else ""
                self.bad(f"{where}.{key}", "a key that is not known", f"{hint}{', '.join(keys)}")
        return {key: inner for key, inner in value.items() if keys is None or key in keys}

    def of(self, found, key, where, read, default=None, **more):
        """found[key] by one of the readers below, the default where it is missing."""
        if key not in found:
            return default
        value = read(found[key], f"{where}.{key}" if where else key, **more)
        return default if value is None else value

    def needed(self, found, key, where, accepted):
        if key not in found:
            self.bad(f"{where}.{key}" if where else key, "nothing", accepted)
        return key in found

    def text(self, value, where, among=None):
        if not isinstance(value, str) or not value or (among and value not in among):
            self.bad(where, value, " or ".join(among) if among else "a text")
            return None
        return value

    def number(self, value, where, above=None, least=None, most=None):
        limits = [
            f"{words} {limit:g}"
            for words, limit in (("above", above), ("at least", least), ("at most", most))
            if limit is not None
        ]
        accepted = f"a number{' ' if limits else ''}{' and '.join(limits)}"
        if isinstance(value, str) and re.fullmatch(r"[-+]?\d+\.?\d*[eE][-+]?\d+", value):
            self.bad(where, json.dumps(value), f"{accepted} (YAML reads 1.0e-3, but not 1e-3)")
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.bad(where, value, accepted)
            return None
        outside = (
            (above is not None and value <= above)
            or (least is not None and value < least)
            or (most is not None and value > most)
        )
        if outside:
            self.bad(where, value, accepted)
        return None if outside else value

    def whole(self, value, where, least=0):
        if type(value) is not int or value < least:
            self.bad(where, value, f"a whole number, at least {least}")
            return None
        return value

    def scalar(self, value, where):
        if isinstance(value, (dict, list)):
            self.bad(where, value, "a number, a text, true, false or null")
            return None
        return value

    def list(self, value, where, each=None, least=1):
        if not isinstance(value, list) or len(value) < least:
            self.bad(where, value, f"a list of at least {least}")
            return []
        if each is None:
            return value
        found = [each(inner, f"{where}[{index}]") for index, inner in enumerate(value)]
        return [inner for inner in found if inner is not None]
