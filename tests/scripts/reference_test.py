#!/usr/bin/env python3
"""Tests that docs/reference/ says what the program and the schema say.

tests/scripts/reference_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]
"""

import difflib
import json
import unittest

from mpretrain_tools.documentation import reference
from mpretrain_tools.documentation.help_text import Entry, entry, help_of, parsed
from mpretrain_tools.repository import CONFIGS
from mpretrain_tools.sweeps.configuration import BadConfig
from tested_program import PROGRAM, main

HELP = """Does this
and that
Usage: mpretrain verb [OPTIONS] directory

Positionals:
  directory DIR REQUIRED      where it is

Options:
  -h,--help                   Print this help message and exit
  --set,--also TEXT ...       values; may be repeated
  --profile N=20 Excludes: --set
                              steps that
                              are counted
  --steps N=1000              \n\
  --details TEXT Needs: --steps
                              of each
  --quiet                     LOUD otherwise

The end
of it.
"""


class HelpTexts(unittest.TestCase):
    def test_every_part_is_read(self):
        found = parsed(HELP)
        self.assertEqual(found.purpose, "Does this and that")
        self.assertEqual(found.usage, "mpretrain verb [OPTIONS] directory")
        self.assertEqual(found.footer, "The end of it.")
        self.assertEqual(
            found.entries["positionals"],
            [Entry(("directory",), "DIR", "", True, (), (), "where it is")],
        )
        self.assertEqual(
            found.entries["options"][1:],
            [
                Entry(
                    ("--set", "--also"), "TEXT ...", "", False, (), (), "values; may be repeated"
                ),
                Entry(("--profile",), "N", "20", False, (), ("--set",), "steps that are counted"),
                Entry(("--steps",), "N", "1000", False, (), (), ""),
                Entry(("--details",), "TEXT", "", False, ("--steps",), (), "of each"),
                Entry(("--quiet",), "", "", False, (), (), "LOUD otherwise"),
            ],
        )

    def test_a_flag_has_no_value(self):
        self.assertEqual(
            entry("  --bare Excludes: --other  alone"),
            Entry(("--bare",), "", "", False, (), ("--other",), "alone"),
        )

    def test_what_is_no_program_is_named(self):
        with self.assertRaisesRegex(BadConfig, "no_such_program: .* see --program"):
            help_of("no_such_program")


def paths_within(section, before=""):
    """Of all keys that are no sections."""
    for name, key in section["properties"].items():
        if "properties" in key:
            yield from paths_within(key, f"{before}{name}.")
        else:
            yield before + name


class Pages(unittest.TestCase):
    def check_in_step(self, name, fill):
        page = reference.PAGES / name
        old = page.read_text(encoding="utf-8")
        new = fill(page, old)
        self.assertEqual(
            list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")),
            [],
            f"{page} is out of step: run {reference.SCRIPT}",
        )

    def test_the_commands_are_those_of_the_program(self):
        self.check_in_step(
            "commands.md", lambda page, text: reference.with_commands(page, text, PROGRAM[0])
        )

    def test_the_keys_are_those_of_the_schema(self):
        self.check_in_step("configuration.md", reference.with_configuration)

    def test_every_key_has_a_row_with_type_and_meaning(self):
        schema = json.loads((CONFIGS / "schema.json").read_text(encoding="utf-8"))
        lines = list(reference.configuration(schema))
        for path in paths_within(schema):
            (row,) = [line for line in lines if line.startswith(f"| `{path}` |")]
            cells = row.split(" | ")
            self.assertEqual(len(cells), 5, row)
            self.assertNotIn("", (cells[1], cells[4].strip("| ")), row)

    def test_numbers_keep_their_digits(self):
        for value, shown in ((65536, "65,536"), (0.9999999, "0.9999999"), (10.0, "10")):
            self.assertEqual(reference.number(value), shown)
        self.assertEqual([reference.number(v) for v in (1e30, 1e-8)], ["1e30", "1e-08"])

    def test_signs_of_markdown_are_shown(self):
        self.assertEqual(reference.cell("*.txt|<x> `a*b`"), "\\*.txt\\|\\<x> `a*b`")

    def test_a_page_without_the_place_is_named(self):
        with self.assertRaisesRegex(BadConfig, "page.md: expected a line <!-- .* the keys from"):
            reference.with_configuration("page.md", "# Nothing\n")


if __name__ == "__main__":
    main()
