#!/usr/bin/env python3
"""Test that the commands of README.md's section "Use" work as they stand there, pasted one after
the other.

    tests/scripts/readme_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]

They run in a directory that looks like the repository after the quickstart. What would take long is
short: the program is one that hands on its arguments and asks for a tiny model, and text is this
repository's documentation. Nothing is drawn.
"""

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


def commands():
    """The shell commands of the section, as they are pasted."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Use\n(.*?)^## ", text, re.M | re.S)[1]
    return "".join(re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S))


class Use(unittest.TestCase):
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

    def test_the_commands_work_in_order(self):
        pasted = commands()
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


if __name__ == "__main__":
    main()
