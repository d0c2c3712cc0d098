#!/usr/bin/env python3
"""Tests of the site that mkdocs makes of docs/: every page has its place, every link leads
somewhere, lists and tables are shown as such, nothing is loaded from elsewhere.

    PYTHONPATH=scripts tests/scripts/site_test.py [CLASS[.TEST] ...]

Building it is left out, with a word, where mkdocs is not installed.
"""

import html
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse

from mpretrain_tools.documentation import site

ROOT = pathlib.Path(__file__).resolve().parents[2]
MKDOCS = shutil.which("mkdocs")


def pages_of_nav():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text.partition("\nnav:\n")[2], re.M)


class Navigation(unittest.TestCase):
    def test_it_has_every_page_once(self):
        pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
        there = [path.as_posix() for path in pages if not path.match(site.LEFT_OUT)]
        self.assertEqual(sorted(pages_of_nav()), sorted([*there, *site.OUTSIDE]))


class LinksOutside(unittest.TestCase):
    def test_pages_that_are_added_are_found(self):
        self.assertEqual(
            site.rewritten("[a](../../CONTRIBUTING.md#tests)", "code/page.md"),
            "[a](../CONTRIBUTING.md#tests)",
        )
        self.assertEqual(
            site.rewritten("[a](docs/formats.md#a-run) ![b](docs/b.png)", "CONTRIBUTING.md"),
            "[a](formats.md#a-run) ![b](b.png)",
        )

    def test_source_code_is_named(self):
        self.assertEqual(
            site.rewritten("[`src/a.h`](../../src/a.h) [b](../../README.md#use)", "code/page.md"),
            "`src/a.h` b",
        )

    def test_other_links_stay(self):
        for link in ("[a](https://nowhere.invalid/#x)", "[a](#here)", "[a](page.md#b)"):
            self.assertEqual(site.rewritten(link, "code/page.md"), link)


def elements(text, names):
    return re.findall(rf"<(?:{names})\b[^>]*>", text)


def article(text):
    return text.partition("<article")[2].partition("</article>")[0]


@unittest.skipUnless(MKDOCS, "mkdocs is not installed: scripts/install_deps.sh --tools")
class Built(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.mkdtemp(prefix="site_")
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.directory = pathlib.Path(directory)
        cls.done = subprocess.run(
            [MKDOCS, "build", "--strict", "--site-dir", directory],
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        cls.pages = {
            path: path.read_text(encoding="utf-8") for path in cls.directory.rglob("*.html")
        }

    def test_there_are_no_warnings(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertNotIn("WARNING", self.done.stderr)
        self.assertNotIn('not included in the "nav"', self.done.stderr)
        self.assertGreater(len(self.pages), 30)

    def test_every_link_leads_somewhere(self):
        anchors = {
            path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in self.pages.items()
        }
        dead = []
        for path, text in self.pages.items():
            for link in re.findall(r'href="([^"]+)"', article(text)):
                link = urllib.parse.unquote(html.unescape(link))
                file, _, anchor = link.partition("#")
                target = (path.parent / file).resolve() if file else path
                if re.match(r"[a-z]+:", link):
                    continue
                if not target.exists() or (anchor and anchor not in anchors[target]):
                    dead.append(f"{path.relative_to(self.directory)}: {link}")
        self.assertEqual(dead, [])

    def test_lists_and_tables_are_shown_as_such(self):
        left = r"(?:^|\n) *(?:[*|-]|\d+\.) |\|---|```"
        found = [
            f"{path.relative_to(self.directory)}: {text[:80]!r}"
            for path, page in self.pages.items()
            for text in re.findall(r"<(?:p|li|td)>(.*?)</(?:p|li|td)>", article(page), re.S)
            if re.search(left, re.sub(r"<pre.*?</pre>", "", text, flags=re.S))
        ]
        self.assertEqual(found, [])

    def test_nothing_is_loaded_from_elsewhere(self):
        found = [
            f"{path.relative_to(self.directory)}: {element}"
            for path, text in self.pages.items()
            for element in elements(text, "script|link|img|iframe|source")
            if re.search(r'(?:src|href)="(?:https?:)?//', element)
        ]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
