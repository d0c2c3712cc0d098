"""Writes the generated parts of docs/reference/: the commands from `mpretrain VERB --help`, the
configuration from configs/schema.json.

scripts/tools.py reference_pages             # both pages
scripts/tools.py reference_pages --verify    # changes nothing; exits 1 if a page is out of step
"""

import argparse
import json
import re

from .. import markdown
from ..repository import CONFIGS, ROOT
from ..sweeps import options
from ..sweeps.configuration import BadConfig
from .help_text import help_of

MISTAKES = (BadConfig, OSError)

PAGES = ROOT / "docs" / "reference"
SCRIPT = "scripts/tools.py reference_pages"


def cell(text):
    """Text as it is shown in a cell of a table, outside of `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<])", r"\\\1", part) for part in parts
    ).replace("|", "\\|")


def table(head, rows):
    """Lines of a table and the empty one behind it."""
    return [*markdown.table(head, rows), ""]


# --- commands -------------------------------------------------------------------------------------


def option_row(option):
    names = ", ".join(f"`{name}`" for name in option.names)
    default = "required" if option.required else f"`{option.default}`" if option.default else ""
    needs, excludes = (
        ", ".join(f"`{name}`" for name in others) for others in (option.needs, option.excludes)
    )
    meaning = cell(option.meaning) + (f"; only with {needs}" if needs else "")
    meaning += f"; not together with {excludes}" if excludes else ""
    return names, option.value, default, meaning.removeprefix("; ")


def verb_page(program, verb, inherited_footer):
    """Lines about a verb and the verbs within it."""
    found = help_of(program, *verb)
    yield from (f"{'#' * (len(verb) + 1)} {' '.join(verb)}", "", cell(found.purpose) + ".", "")
    yield from ("```", found.usage, "```", "")
    options = found.entries.get("positionals", []) + found.entries.get("options", [])
    rows = [option_row(option) for option in options if "--help" not in option.names]
    if rows:
        yield from table(("option", "value", "default", "meaning"), rows)
    if found.footer and found.footer != inherited_footer:
        yield from (cell(found.footer), "")
    for inner in found.entries.get("subcommands", []):
        yield from verb_page(program, (*verb, *inner.names), inherited_footer)


def commands(program):
    """Lines about every verb of a program."""
    of_all = help_of(program)
    verbs = of_all.entries["subcommands"]
    linked = [(f"[`{verb.names[0]}`](#{verb.names[0]})", cell(verb.meaning)) for verb in verbs]
    yield from table(("verb", "what it does"), linked)
    yield from ("Options that stand before the verb:", "")
    rows = [option_row(option) for option in of_all.entries["options"]]
    yield from table(("option", "value", "default", "meaning"), rows)
    for verb in verbs:
        yield from verb_page(program, verb.names, of_all.footer)


# --- configuration --------------------------------------------------------------------------------

TYPES = {
    ("integer",): "whole number",
    ("number",): "number",
    ("boolean",): "boolean",
    ("string",): "text",
    ("array",): "list of texts",
    ("array", "string"): "text or list of texts",
    ("object",): "numbers by name",
    ("array", "string", "object"): "text, list of texts, or either by name",
}


def number(value):
    """As it is read: 65,536; 0.9999999; 10; 1e30."""
    if isinstance(value, int):
        return f"{value:,}"
    return repr(value).removesuffix(".0").replace("e+", "e")


def type_of(key):
    if "enum" in key:
        return "name"
    named = key["type"] if isinstance(key["type"], list) else [key["type"]]
    if "properties" in key.get("items", {}):
        return "text, list of texts, or list of objects" if "string" in named else "list of objects"
    return TYPES[tuple(name for name in named if name != "null")]


def range_of(key):
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"] if value is not None)
    if type_of(key) == "boolean":
        return "`true`, `false`"
    low = "exclusiveMinimum" if "exclusiveMinimum" in key else "minimum"
    if low not in key:
        return ""
    least = f"{'above ' if low == 'exclusiveMinimum' else ''}{number(key[low])}"
    if "maximum" in key:
        return f"{least} to {number(key['maximum'])}"
    if "exclusiveMaximum" in key:
        return f"{least}, below {number(key['exclusiveMaximum'])}"
    return least if low == "exclusiveMinimum" else f"at least {least}"


def default_of(key):
    if key["description"].startswith("Required. "):
        return "required"
    if "default" not in key:
        return ""
    value = key["default"]
    if isinstance(value, float):
        return f"`{number(value)}`"
    return f"`{json.dumps(value)}`" if not isinstance(value, str) or not value else f"`{value}`"


def key_row(path, key):
    meaning = cell(key["description"].removeprefix("Required. "))
    meaning = re.sub(r"^((?:Only|Required) with .*?\.) ", r"*\1* ", meaning)
    return f"`{path}`", type_of(key), range_of(key), default_of(key), meaning


def section(title, purpose, keys):
    yield from (f"### {title}", "")
    if purpose:
        yield from (cell(purpose[:1].upper() + purpose[1:]) + ".", "")
    yield from table(("key", "type", "range", "default", "meaning"), keys)


def configuration(schema):
    """Lines about every key of the schema: those outside of sections, then section by section."""
    keys = schema["properties"]
    alone = [(name, key) for name, key in keys.items() if "properties" not in key]
    yield from section("Outside of sections", "", [key_row(*item) for item in alone])
    for name, key in keys.items():
        if "properties" in key:
            yield from section(f"`{name}`", key["description"], rows_within(name, key))


def rows_within(path, key):
    """Of the keys of a section, and of sections in it."""
    for name, inner in key["properties"].items():
        if "properties" in inner:
            yield from rows_within(f"{path}.{name}", inner)
        else:
            yield key_row(f"{path}.{name}", inner)
            if "properties" in inner.get("items", {}):
                yield from rows_within(f"{path}.{name}[]", inner["items"])


# --- pages ----------------------------------------------------------------------------------------


def filled(page, text, name, lines):
    """The page's text with its generated part made of the lines."""
    begin, end = f"<!-- {SCRIPT} writes the {name} from here -->", "<!-- to here -->"
    new = markdown.filled(text, begin, end, ["", *lines])
    if new is None:
        raise BadConfig(f"{page}: expected a line {begin} and after it a line {end}")
    return new


def with_commands(page, text, program):
    return filled(page, text, "commands", commands(program))


def with_configuration(page, text):
    schema = json.loads((CONFIGS / "schema.json").read_text(encoding="utf-8"))
    return filled(page, text, "keys", configuration(schema))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--verify", action="store_true", help="only compare the pages")
    options.add_program(parser)
    args = parser.parse_args()
    status = 0
    for name, fill in (
        ("commands.md", lambda page, text: with_commands(page, text, args.program)),
        ("configuration.md", with_configuration),
    ):
        page = PAGES / name
        old = page.read_text(encoding="utf-8")
        new = fill(page, old)
        if new == old:
            print(f"{page} is in step")
        elif args.verify:
            print(f"{page} is out of step: run {SCRIPT}")
            status = 1
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page}")
    return status
