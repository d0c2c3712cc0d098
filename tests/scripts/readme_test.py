#!/usr/bin/env python3
"""Tests that the commands of README.md's section "Use" and those of the start pages work as they
stand there, pasted one after the other, and that the example in memory.md is what `plan` counts.

    tests/scripts/readme_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]

They run in a directory that looks like the repository after the quickstart. What would take long is
short: the program is one that hands on its arguments and asks for a tiny model, and text is this
repository's documentation. Nothing is drawn.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from tested_program import PROGRAM, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = (
    "model.hidden_size=16",
    "model.intermediate_size=16",
    "model.num_hidden_layers=1",
    "batch.seq_len=16",
    "batch.tokens_per_step=32",
    "eval.tokens=64",
)
SHORT = """#!/bin/sh
case $1 in
  toy) exec {program} "$@" --steps 10 ;;
  plan | train | --config) exec {program} "$@" {tiny} ;;
  *) exec {program} "$@" ;;
esac
"""
FETCH = """#!/bin/sh
mkdir -p "$1" && cat {docs}/*.md {docs}/*/*.md | sed G >"$1/documentation.txt"
"""
MATPLOTLIB = """import sys, types
from unittest.mock import MagicMock
pyplot = types.ModuleType("matplotlib.pyplot")
figure = MagicMock()
figure.savefig.side_effect = lambda path: open(path, "w").close()
pyplot.rcParams = {}
pyplot.subplots = lambda *_, **__: (figure, MagicMock())
sys.modules["matplotlib.pyplot"] = pyplot
use = print
"""


PAGES = ("docs/start/own_text.md", "docs/research/survival.md")


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def commands(text):
    """The shell commands of a text, as they are pasted."""
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))


class Pasted(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="readme_"))
        self.addCleanup(shutil.rmtree, self.directory)
        tiny = " ".join(f"--set {setting}" for setting in TINY)
        self.write_program(
            "build/program/mpretrain", SHORT.format(program=shlex.quote(PROGRAM[0]), tiny=tiny)
        )
        self.write_program(
            "scripts/fetch_corpus.sh", FETCH.format(docs=shlex.quote(str(ROOT / "docs")))
        )
        for path in (ROOT / "scripts").iterdir():
            if path.name != "fetch_corpus.sh":
                (self.directory / "scripts" / path.name).symlink_to(path)
        (self.directory / "configs").symlink_to(ROOT / "configs")
        (self.directory / "python").mkdir()
        (self.directory / "python/matplotlib.py").write_text(MATPLOTLIB, encoding="utf-8")

    def write_program(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def check_work_in_order(self, pasted):
        self.assertGreater(pasted.count("mpretrain "), 10)
        self.assertNotIn("&&", pasted)  # behind which a failure would not end the shell
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.directory / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            ["bash", "-exuc", pasted],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        for made in (
            "corpus",
            "tokenizer.model",
            "data/manifest.json",
            "runs/nano_bf16/checkpoints/step_00002000",
            "exported/config.json",
            "toy/summary.json",
            "survival.png",
        ):
            self.assertTrue((self.directory / made).exists(), made)


class Use(Pasted):
    def test_the_commands_work_in_order(self):
        section = re.search(r"^## Use\n(.*?)^## ", text_of("README.md"), re.M | re.S)[1]
        self.check_work_in_order(commands(section))


class StartPages(Pasted):
    def test_the_commands_work_in_order(self):
        self.check_work_in_order("".join(commands(text_of(page)) for page in PAGES))


class Memory(unittest.TestCase):
    """The example of docs/start/memory.md is what `plan` counts."""

    CONFIG = ["--config", "350m_bf16.json"]
    SHOWN = ("weights", "gradients", "optimizer state", "activations")
    CHANGES = {
        "nothing": CONFIG,
        "`batch.micro_batch_rows=1`": [*CONFIG, "--set", "batch.micro_batch_rows=1"],
        "`train.activation_recompute=block`": [
            *CONFIG,
            "--set",
            "train.activation_recompute=block",
        ],
        "both": [
            *CONFIG,
            "--set",
            "batch.micro_batch_rows=1",
            "--set",
            "train.activation_recompute=block",
        ],
        "`optimizer.apollo_e=mini`": [*CONFIG, "--set", "optimizer.apollo_e=mini"],
        "`--config 350m_bf16_adamw.json`": ["--config", "350m_bf16_adamw.json"],
        "`--ranks 8`": [*CONFIG, "--ranks", "8"],
    }

    def counted(self, arguments):
        """GiB by purpose, and of all."""
        done = subprocess.run(
            [PROGRAM[0], "plan", "--json", "--set", "device.type=cpu", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        bytes_ = json.loads(done.stdout)["allocated_bytes"]
        return {purpose: taken / 2**30 for purpose, taken in bytes_.items()}

    def test_the_example_is_what_plan_counts(self):
        rows = re.findall(r"^\| (.+?) \| ([\d. |]+) \|$", text_of("docs/start/memory.md"), re.M)
        self.assertEqual([name for name, _ in rows], list(self.CHANGES))
        for name, figures in rows:
            with self.subTest(change=name):
                *parts, total = figures.split(" | ")
                counted = self.counted(self.CHANGES[name])
                self.assertEqual(parts, [f"{counted[purpose]:.2f}" for purpose in self.SHOWN])
                # Scratch has parts for each thread.
                self.assertAlmostEqual(float(total), counted["total"], delta=0.1)


if __name__ == "__main__":
    main()
