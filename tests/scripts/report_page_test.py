#!/usr/bin/env python3
"""Tests that a browser shows the page of `mpretrain report`, in light and in dark. Skipped where no
Chromium is found.

tests/scripts/report_page_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]

MPT_SCREENSHOTS names a directory that keeps the screenshots.
"""

import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

from tested_program import PROGRAM, main

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOSTILE = 'x"><script>document.body.remove()</script><i a='
WIDTH, HEIGHT = 1200, 1600


def write_run(directory, steps, planned, losses, name):
    directory.mkdir()
    config = {"name": name, "seed": 1, "train": {"steps": planned}}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plan = {"steps": planned, "allocated_bytes": {"weights": 3_600_000, "total": 9_000_000}}
    (directory / "report.json").write_text(
        json.dumps({"program": "mpretrain", "device": HOSTILE, "plan": plan}), encoding="utf-8"
    )
    with open(directory / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            loss = losses(step)
            record = {
                "step": step,
                "loss": loss,
                "grad_norm": 1.0,
                "tokens_per_second": 900 + step % 7,
            }
            if step % 100 == 0:
                record |= {"val_loss": loss, "validation": {"books <b>": {"loss": loss}}}
            file.write(json.dumps(record) + "\n")
    return str(directory)


def pixels(path):
    """Rows of (red, green, blue) of a PNG with 8 bits a channel, as the browser writes them."""
    data = pathlib.Path(path).read_bytes()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunk = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", chunk[:10])
        packed += chunk if kind == b"IDAT" else b""
        at += 12 + length
    channels = {2: 3, 6: 4}[color]
    assert depth == 8
    raw, before, rows = zlib.decompress(packed), bytearray(width * channels), []
    for y in range(height):
        begin = y * (width * channels + 1)
        row = bytearray(raw[begin + 1 : begin + 1 + width * channels])
        unfilter(raw[begin], row, before, channels)
        rows.append([tuple(row[i : i + 3]) for i in range(0, len(row), channels)])
        before = row
    return rows


def unfilter(kind, row, above, channels):
    """PNG (ISO/IEC 15948) 9.2."""
    for i in range(len(row)):
        a = row[i - channels] if i >= channels else 0
        b, c = above[i], above[i - channels] if i >= channels else 0
        if kind == 1:
            row[i] = (row[i] + a) & 255
        elif kind == 2:
            row[i] = (row[i] + b) & 255
        elif kind == 3:
            row[i] = (row[i] + (a + b) // 2) & 255
        elif kind == 4:
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + nearest) & 255


class Verb(unittest.TestCase):
    """The verb, without a browser."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="report_"))
        self.addCleanup(shutil.rmtree, self.directory)

    def report(self, *arguments):
        return subprocess.run(
            [PROGRAM[0], "report", *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_writes_one_file_and_says_which(self):
        write_run(self.directory / "run", 5, 5, lambda step: 9.0 - step, "run")
        (self.directory / "report.html").write_text("<!DOCTYPE html>\nan earlier one")
        done = self.report("run")
        self.assertEqual((done.returncode, done.stdout), (0, "report.html\n"), done.stderr)
        self.assertEqual(sorted(os.listdir(self.directory)), ["report.html", "run"])
        page = (self.directory / "report.html").read_text(encoding="utf-8")
        self.assertTrue(page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"))

    def test_a_directory_that_is_no_run(self):
        write_run(self.directory / "run", 5, 5, lambda step: 9.0 - step, "run")
        (self.directory / "empty").mkdir()
        done = self.report("run", "empty")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("empty: no metrics.jsonl in it", done.stderr)
        self.assertFalse((self.directory / "report.html").exists())

    def test_no_run_is_wrong_usage(self):
        self.assertEqual(self.report().returncode, 2)


@unittest.skipUnless(BROWSER, "no Chromium is installed")
class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="report_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        runs = [
            write_run(
                cls.directory / "good", 3000, 3000, lambda s: 3 + 5 * math.exp(-s / 300), "good"
            ),
            write_run(cls.directory / "short", 1000, 3000, lambda s: 4 - s / 1000, HOSTILE),
            write_run(
                cls.directory / "<u>", 2000, 3000, lambda s: None if s > 1500 else s / 500, "u"
            ),
        ]
        cls.page = cls.directory / "report.html"
        subprocess.run(
            [PROGRAM[0], "report", *runs, "--output", cls.page], check=True, capture_output=True
        )

    def browse(self, *arguments):
        profile = tempfile.mkdtemp(dir=self.directory)
        return subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}",
             f"--window-size={WIDTH},{HEIGHT}", *arguments, self.page.as_uri()],
            capture_output=True, text=True, timeout=240, check=True,
        ).stdout  # fmt: skip

    def shot(self, name, *arguments):
        path = pathlib.Path(os.environ.get("MPT_SCREENSHOTS", self.directory)) / f"{name}.png"
        self.browse(f"--screenshot={path}", *arguments)
        return pixels(path)

    def check_drawn(self, rows):
        """Text and the curves of three runs are many colors, and not all in one place."""
        self.assertGreater(len({color for row in rows for color in row}), 100)
        drawn = [y for y, row in enumerate(rows) if len(set(row)) > 2]
        self.assertGreater(len(drawn), len(rows) // 2)

    def test_light(self):
        rows = self.shot("light")
        self.check_drawn(rows)
        self.assertGreater(min(rows[0][0]), 230)

    def test_dark(self):
        rows = self.shot("dark", "--blink-settings=preferredColorScheme=0")
        self.check_drawn(rows)
        self.assertLess(max(rows[0][0]), 50)

    def test_hostile_names_stay_text(self):
        seen = self.browse("--dump-dom")
        self.assertIn("Outcome", seen)
        self.assertIn("&lt;script&gt;", seen)
        for element in ("<script", "<u>", "<i a", "<b>"):
            self.assertNotIn(element, seen)


if __name__ == "__main__":
    main()
