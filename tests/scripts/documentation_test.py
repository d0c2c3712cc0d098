#!/usr/bin/env python3
"""Test that what the code and the pages refer to is there: headings that are cited, links, files,
known results.

    tests/scripts/documentation_test.py [CLASS[.TEST] ...]

A citation is a page's path and headings of it, as in docs/numerics.md "AdamW" and "Madam"; it may
go on over lines of a comment.
"""

import difflib
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("src", "tests", "bench", "scripts", "docs", "examples")
C_FAMILY = (".h", ".cpp", ".cu", ".cuh")
CITATION = re.compile(r'([\w./-]*\w\.md)((?:(?:,| and|, and)? "[^"]+")+)')
# A document by its name alone, in capitals, which nothing resolves.
NAMELESS = re.compile(r'\b([A-Z]{4,} "[A-Za-z][^"]*")')
UNKNOWN = re.compile(r"(?<![\w./-])(?!README|CONTRIBUTING|CHANGELOG|SECURITY)[A-Z_]+\.md\b")
FENCE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
# Of the repository: with a directory, and nothing to be filled in.
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:h|cpp|cuh?|py|sh|json|md|cmake))`")


def headings(page):
    return re.findall(r"^#+ +(.*?) *$", FENCE.sub("", page), re.M)


def anchors(page):
    """As GitHub makes them of the headings."""
    found = []
    for heading in headings(page):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        repeated = sum(1 for other in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", other))
        found.append(f"{anchor}-{repeated}" if repeated else anchor)
    return found


def comments(text):
    return "\n".join(re.findall(r"//.*", text))


def in_one_line(text):
    """What goes on over lines of a comment, put together."""
    return re.sub(r"\s*\n\s*(?://+|#+)?\s*", " ", text)


def problems_of_citations(name, text, pages):
    """Texts naming each citation that does not resolve; pages: texts by path from the root."""
    c_family = name.endswith(C_FAMILY)
    text = in_one_line(comments(text) if c_family else text)
    for path, cited in CITATION.findall(text):
        beside = str(pathlib.PurePosixPath(name).parent / path)
        page = pages.get(path, pages.get(beside))
        if page is None:
            yield f"{name} cites {path}, which is not there"
            continue
        there = headings(page)
        for heading in re.findall(r'"([^"]+)"', cited):
            if heading not in there:
                nearest = difflib.get_close_matches(heading, there, 1) or there[:1]
                yield (
                    f'{name} cites {path} "{heading}", a heading that it does not have; nearest is'
                    f' "{nearest[0]}"'
                )
    for unknown in (NAMELESS.findall(text) if c_family else []) + UNKNOWN.findall(text):
        yield f"{name} cites {unknown}, no page of this repository; give its path and a heading"


def problems_of_links(path, pages):
    """Texts naming each relative link of a page that leads nowhere."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            yield f"{path}: link to {target}: no such file"
        elif anchor and anchor not in anchors(
            pages.get(there) or there.read_text(encoding="utf-8")
        ):
            yield f"{path}: link to {target}: no such heading"


def missing_files(page, there):
    """Files that a page names and that are none of those there; a path may begin anywhere."""
    return [
        named
        for named in FILE.findall(FENCE.sub("", page))
        if not any(("/" + path).endswith("/" + named) for path in there)
    ]


def files(suffixes):
    found = sorted(ROOT.glob("*.md")) if ".md" in suffixes else []
    for directory in SOURCES:
        found += (
            path
            for path in (ROOT / directory).rglob("*")
            if path.suffix in suffixes and path.is_file()
        )
    return [path for path in found if path != pathlib.Path(__file__).resolve()]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


PAGES = {path: path.read_text(encoding="utf-8") for path in files((".md",))}


class Citations(unittest.TestCase):
    pages = {name_of(path): text for path, text in PAGES.items()}

    def test_all_resolve(self):
        found, cited = [], 0
        for path in files((*C_FAMILY, ".py", ".sh", ".txt", ".cmake", ".md")):
            text = path.read_text(encoding="utf-8")
            cited += len(CITATION.findall(in_one_line(text)))
            found += problems_of_citations(name_of(path), text, self.pages)
        self.assertFalse(found, "\n" + "\n".join(found))
        self.assertGreater(cited, 40)

    def problems(self, text, name="src/optim/a.h"):
        page = "# Page\n\n## A b\n\n```\n## no heading\n```\n\n### C: d\n"
        return list(problems_of_citations(name, text, {"docs/page.md": page}))

    def test_known_headings_are_found(self):
        for text in (
            '// As docs/page.md "A b".\n',
            '  // over (docs/page.md "A\n  // b") lines',
            '// docs/page.md "A b" and "C: d"',
        ):
            self.assertEqual(self.problems(text), [], text)
        self.assertEqual(self.problems('# page.md "A b"', "docs/other.md"), [])

    def test_others_are_reported(self):
        for text, part in (
            ('// As docs/page.md "A c".', 'nearest is "A b"'),
            ('// docs/page.md "A b" and "no heading"', '"no heading"'),
            ('// docs/page.md\n// "A\n// e"', '"A e"'),
            ('// docs/pages.md "A b"', "docs/pages.md, which is not there"),
            ('int x;  // NUMERICS "A b"', 'NUMERICS "A b", no page'),
            ("// see DESIGN.md", "DESIGN.md, no page"),
        ):
            problems = self.problems(text)
            self.assertEqual(len(problems), 1, (text, problems))
            self.assertIn(part, problems[0])

    def test_code_is_no_citation(self):
        self.assertEqual(self.problems('EXPECT "A c" docs/page.md "A c"'), [])


class Links(unittest.TestCase):
    def test_all_lead_somewhere(self):
        found = [problem for path in PAGES for problem in problems_of_links(path, PAGES)]
        self.assertFalse(found, "\n" + "\n".join(found))
        self.assertGreater(sum(len(LINK.findall(text)) for text in PAGES.values()), 50)

    def problems(self, text):
        temporary = tempfile.TemporaryDirectory(prefix="documentation_")
        self.addCleanup(temporary.cleanup)
        directory = pathlib.Path(temporary.name)
        (directory / "page.md").write_text(text, encoding="utf-8")
        (directory / "other.md").write_text(
            "# A *b*, c\n\n## Twice\n\n## Twice\n", encoding="utf-8"
        )
        return list(problems_of_links(directory / "page.md", {}))

    def test_known_targets_are_found(self):
        self.assertEqual(
            self.problems(
                "# Here\n[a](other.md) [b](other.md#a-b-c) [c](#here)"
                " [d](https://nowhere.invalid/#x)"
            ),
            [],
        )
        self.assertEqual(
            self.problems(
                "[e](other.md#twice) [f](other.md#twice-1) `[g](x.md)`\n```\n[h](x.md)\n```\n"
            ),
            [],
        )

    def test_others_are_reported(self):
        for text in (
            "[a](others.md)",
            "![a](picture.png)",
            "[a](other.md#d)",
            "[a](#there)",
            "[a](other.md#twice-2)",
        ):
            self.assertEqual(len(self.problems(text)), 1, text)


class NamedFiles(unittest.TestCase):
    def test_all_are_there(self):
        parts = (*SOURCES, "configs", "cmake", ".ci")
        there = [name_of(path) for part in parts for path in (ROOT / part).rglob("*")]
        found = [
            f"{name_of(path)}: {named}"
            for path, text in PAGES.items()
            for named in missing_files(text, there)
        ]
        self.assertFalse(found, "\n" + "\n".join(found))
        self.assertGreater(sum(len(FILE.findall(text)) for text in PAGES.values()), 100)

    def test_others_are_reported(self):
        there = ["src/optim/rules.h", "docs/page.md"]
        self.assertEqual(
            missing_files(
                "`optim/rules.h` `docs/page.md` `runs/<name>/x.json` `x.py` `src/*.h`", there
            ),
            [],
        )
        self.assertEqual(
            missing_files("`optim/rule.h` and `im/rules.h`", there), ["optim/rule.h", "im/rules.h"]
        )


class KnownResults(unittest.TestCase):
    def test_every_bit_pattern_of_the_specification_is_in_a_test_or_the_code(self):
        patterns = {
            word.lower()
            for word in re.findall(r"\b[0-9a-fA-F]{8}\b", PAGES[ROOT / "docs/numerics.md"])
        }
        held = "\n".join(
            path.read_text(encoding="utf-8").lower() for path in files((*C_FAMILY, ".py", ".json"))
        )
        self.assertEqual(sorted(pattern for pattern in patterns if pattern not in held), [])
        self.assertGreater(len(patterns), 100)


if __name__ == "__main__":
    unittest.main()
