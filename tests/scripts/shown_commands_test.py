#!/usr/bin/env python3
"""Test that the commands that pages show work as they stand there, pasted one after the other:
README.md, docs/start/*.md and examples/*/README.md; and that the example of memory.md is what
`plan` counts.

    tests/scripts/shown_commands_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]

Each page runs in a directory of its own that looks like the repository after the quickstart. What
would take long is short: the program is one that hands on its arguments and asks for a tiny model,
and text is this repository's documentation. Nothing is drawn. A line above a block of commands can
leave it out:

    <!-- not run: REASON -->
    <!-- needs: COMMAND -->    where the shell command fails
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
# The model that continue_llama starts from has a shape of its own.
SHORT = """#!/bin/sh
case "$*" in
  *examples/continue_llama/config.json*) exec {program} "$@" --set train.steps=4 ;;
esac
case $1 in
  toy) exec {program} "$@" --steps 10 ;;
  train | --config) exec {program} "$@" {tiny} ;;
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


BLOCK = re.compile(r"^(?:<!-- (?P<mark>.*?) -->\n)?```sh\n(?P<commands>.*?)^```", re.M | re.S)
MARK = re.compile(r"(not run|needs): (\S.*)")


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def succeeds(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    return done.returncode == 0


def shown_commands(text):
    """The blocks of a page that are run, as they are pasted."""
    found = []
    for block in BLOCK.finditer(text):
        mark = MARK.fullmatch(block["mark"] or "")
        if block["mark"] and not mark:
            raise ValueError(
                f"<!-- {block['mark']} -->: expected 'not run: REASON' or 'needs: COMMAND'"
            )
        if mark is None or (mark[1] == "needs" and succeeds(mark[2])):
            found.append(block["commands"])
    return "".join(found)


class Repository:
    """A directory that looks like the repository after the quickstart."""

    def __init__(self, test):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="shown_commands_"))
        test.addCleanup(shutil.rmtree, self.directory)
        tiny = " ".join(f"--set {setting}" for setting in TINY)
        self._write_program(
            "build/program/mpretrain", SHORT.format(program=shlex.quote(PROGRAM[0]), tiny=tiny)
        )
        self._write_program(
            "scripts/fetch_corpus.sh", FETCH.format(docs=shlex.quote(str(ROOT / "docs")))
        )
        for path in (ROOT / "scripts").iterdir():
            if path.name != "fetch_corpus.sh":
                (self.directory / "scripts" / path.name).symlink_to(path)
        for folder in ("configs", "src"):
            (self.directory / folder).symlink_to(ROOT / folder)
        if (ROOT / "examples").exists():
            shutil.copytree(ROOT / "examples", self.directory / "examples")
        (self.directory / "python").mkdir()
        (self.directory / "python/matplotlib.py").write_text(MATPLOTLIB, encoding="utf-8")

    def _write_program(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def paste(self, commands):
        """Runs them in one shell, which ends at the first that fails."""
        environment = {
            **os.environ,
            "PATH": f"{self.directory / 'build/program'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.directory / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return subprocess.run(
            ["bash", "-exuc", commands],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def has(self, name):
        return (self.directory / name).exists()


class Pages(unittest.TestCase):
    def run_pages(self, *pages, made=()):
        """Pastes the commands of pages in order; afterwards the files of `made` exist."""
        commands = "".join(shown_commands(text_of(page)) for page in pages)
        self.assertNotIn("&&", commands)  # behind which a failure would not end the shell
        repository = Repository(self)
        done = repository.paste(commands)
        self.assertEqual(done.returncode, 0, f"{pages}: {done.stdout[-4000:]}")
        for name in made:
            self.assertTrue(repository.has(name), f"{pages} make no {name}")


class Readme(Pages):
    def test_commands(self):
        self.assertGreater(shown_commands(text_of("README.md")).count("mpretrain "), 3)
        made = ("corpus", "data/manifest.json", "runs/nano_bf16/checkpoints/step_00002000")
        self.run_pages("README.md", made=made)


class Start(Pages):
    FIRST = (  # of one reader
        "docs/start/own_text.md",
        "docs/start/watching.md",
        "docs/start/continue.md",
        "docs/start/tasks.md",
        "docs/start/generate.md",
        "docs/research/survival.md",
    )

    def test_own_text(self):
        made = (
            "corpus",
            "tokenizer.model",
            "data/manifest.json",
            "runs/own_text/checkpoints/step_00002000",
            "exported/config.json",
            "report.html",
            "imported/config.json",
            "runs/continued/checkpoints/step_00000020",
            "details.jsonl",
            "runs/with_samples/samples.jsonl",
            "own_text_fp8/config.json",
            "toy/summary.json",
            "survival.png",
        )
        self.run_pages(*self.FIRST, made=made)

    def test_the_other_pages(self):
        pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/start").glob("*.md")}
        for page in sorted(pages - set(self.FIRST)):
            with self.subTest(page=page):
                self.run_pages(page)


class Memory(unittest.TestCase):
    """The tables of docs/start/memory.md are what `plan` counts."""

    ROWS = ["--set", "batch.micro_batch_rows=4"]
    CONFIG = ["--config", "350m_bf16.json", *ROWS]
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
        "`--config 350m_bf16_adamw.json`": ["--config", "350m_bf16_adamw.json", *ROWS],
        "`--ranks 8`": [*CONFIG, "--ranks", "8"],
    }

    @staticmethod
    def rows_of(heading):
        """(first cell, the other cells) of the rows of figures in a section."""
        section = text_of("docs/start/memory.md").split(f"## {heading}\n")[1].split("\n## ")[0]
        return re.findall(r"^\| (.+?) \| ([\d. |]+) \|$", section, re.M)

    @staticmethod
    def plan(arguments, backend="cpu"):
        done = subprocess.run(
            [PROGRAM[0], "plan", "--json", "--set", f"device.type={backend}", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if "built without CUDA" in done.stderr:
            raise unittest.SkipTest("the program was built without CUDA, and plans for CPUs only")
        if done.returncode:
            raise AssertionError(done.stderr)
        return json.loads(done.stdout)

    def test_the_example_is_what_plan_counts(self):
        rows = self.rows_of("An example")
        self.assertEqual([name for name, _ in rows], list(self.CHANGES))
        for name, figures in rows:
            with self.subTest(change=name):
                *parts, total = figures.split(" | ")
                bytes_ = self.plan(self.CHANGES[name])["allocated_bytes"]
                counted = {purpose: taken / 2**30 for purpose, taken in bytes_.items()}
                self.assertEqual(parts, [f"{counted[purpose]:.2f}" for purpose in self.SHOWN])
                # Scratch has parts for each thread.
                self.assertAlmostEqual(float(total), counted["total"], delta=0.1)

    def weights_and_codes(self, weights, backend, codes):
        """Bytes a parameter of the 1B model: as stored, and with the codes that GEMMs read."""
        config = "1b_bf16_fp8.json" if weights == "bf16" else "1b_nvfp4.json"
        settings = [f"precision.weights={weights}", f"device.fp8_weight_codes={codes}"]
        sets = [text for setting in settings for text in ("--set", setting)]
        plan = self.plan(["--config", config, *sets], backend)
        stored = plan["allocated_bytes"]["weights"]
        both = stored + plan["allocated_bytes"]["compute weights"]
        return [f"{bytes_ / plan['parameters']:.2f}" for bytes_ in (stored, both)]

    def test_codes_of_weights_are_what_plan_counts(self):
        rows = self.rows_of("Codes of weights")
        self.assertEqual([name for name, _ in rows], ["`bf16`", "`block_fp8`", "`nvfp4`"])
        for name, figures in rows:
            weights = name.strip("`")
            with self.subTest(weights=weights):
                on_cpu = self.weights_and_codes(weights, "cpu", "auto")
                self.assertEqual(figures.split(" | ")[::3], on_cpu)
                one = self.weights_and_codes(weights, "cuda", "auto")
                whole = self.weights_and_codes(weights, "cuda", "all_layers")
                self.assertEqual(figures.split(" | "), [*one, whole[1], on_cpu[1]])


class Examples(Pages):
    def test_each(self):
        for path in sorted((ROOT / "examples").glob("*/README.md")):
            page = str(path.relative_to(ROOT))
            with self.subTest(page=page):
                self.assertRegex(text_of(page), r"```sh\n[^`]*mpretrain ")
                self.run_pages(page)


class TheTest(unittest.TestCase):
    """Can fail."""

    def test_a_command_that_is_broken(self):
        for broken in ("mpretrain --config nano_bf16.jso", "mpretrain evaluate", "scripts/none.sh"):
            done = Repository(self).paste(shown_commands(f"```sh\n{broken}\ntrue\n```\n"))
            self.assertNotEqual(done.returncode, 0, broken)

    def test_marks(self):
        self.assertEqual(
            shown_commands("```sh\na\n```\n<!-- not run: b -->\n```sh\nb\n```\n"), "a\n"
        )
        self.assertEqual(shown_commands("<!-- needs: true -->\n```sh\na\n```\n"), "a\n")
        self.assertEqual(shown_commands("<!-- needs: false -->\n```sh\na\n```\n"), "")
        for bad in ("not run", "not run: ", "maybe"):
            with self.assertRaises(ValueError):
                shown_commands(f"<!-- {bad} -->\n```sh\na\n```\n")


if __name__ == "__main__":
    main()
