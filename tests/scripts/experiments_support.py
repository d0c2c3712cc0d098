"""What the tests of scripts/mpretrain_tools/sweeps share: directories, tokens, and programs that
stand in for others.
"""

import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest
from unittest import mock

from mpretrain_tools.sweeps.cell import Cell
from mpretrain_tools.sweeps.configuration import BadConfig
from mpretrain_tools.sweeps.launch import launcher_of
from mpretrain_tools.sweeps.ledger import Ledger, Result
from mpretrain_tools.sweeps.runner import Place, Runner
from tested_program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests/scripts/fakes"
WORDS = "weights gradients step model of the token loss rounding scale block".split()


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.01)


def is_running(pid):
    """Not ended, nor ended and not yet waited for by whoever inherited it."""
    try:
        return (
            pathlib.Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8")
            .rsplit(")", 1)[1]
            .split()[0]
            not in "ZX"
        )
    except OSError:
        return False


class Directory(unittest.TestCase):
    """Has a directory of its own, gone afterwards."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="experiments_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def tokens(self, name="tokens", shard="aa"):
        """A directory with the manifest of tokens, and no tokens."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        manifest = {
            "tokenizer": {"hash": "t"},
            "splits": {"train": {"shards": [{"hash": shard}]}, "val": {"shards": [{"hash": "bb"}]}},
        }
        (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return directory

    def refuses(self, parts, call, *arguments, kind=BadConfig):
        with self.assertRaises(kind) as caught:
            call(*arguments)
        for part in parts:
            self.assertIn(str(part), str(caught.exception))

    @staticmethod
    def result(fingerprint, **changes):
        return Result(
            **{
                "fingerprint": fingerprint,
                "config": "pico_bf16.json",
                "changes": "",
                "seed": 1,
                "val_loss": 5.5,
                "val_loss_family": math.nan,
                "steps": 5,
                "tokens": 50,
                "tokens_per_second": 1.0,
                "step_seconds": 1.0,
                "state": "finished",
                "version": "v",
                "machine": "m",
                "date": "2020-01-01",
                **changes,
            }
        )


class RealTokens(Directory):
    """Text of the words above as tokens, and the settings with which a model trains on them in no
    time.
    """

    TINY = {
        "model.vocab_size": 300,
        "model.hidden_size": 32,
        "model.intermediate_size": 32,
        "model.num_attention_heads": 1,
        "batch.seq_len": 32,
        "batch.tokens_per_step": 128,
        "eval.tokens": 128,
        "device.threads": 1,
    }

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="experiments_"))
        draw = random.Random(3)
        text = "".join(
            json.dumps({"text": " ".join(draw.choices(WORDS, k=200)) + ".\n"}) + "\n"
            for _ in range(60)
        )
        (cls.shared / "text.jsonl").write_text(text, encoding="utf-8")
        cls.real_tokens = cls.shared / "tokens"
        tokenizer = cls.shared / "t.model"
        cls.of_text("tokenizer", "--vocab-size", "300", "--output", tokenizer)
        cls.of_text(
            "tokenize",
            "--tokenizer",
            tokenizer,
            "--val-fraction",
            "0.2",
            "--output",
            cls.real_tokens,
        )

    @classmethod
    def of_text(cls, verb, *arguments):
        command = [PROGRAM[0], verb, "--input", cls.shared / "text.jsonl", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)


class WithFakes(Directory):
    """Runs cells by fake programs."""

    def setUp(self):
        super().setUp()
        self.slurm = self.directory / "slurm"
        (self.slurm / "queue").mkdir(parents=True)
        environment = {
            "PATH": f"{FAKES}:{os.environ['PATH']}",
            "FAKE_PLAN": str(self.directory / "plan.json"),
            "FAKE_CALLS": str(self.directory / "calls"),
            "FAKE_SLURM": str(self.slurm),
        }
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)
        self.at, self.work, self.seen = self.tokens(), self.directory / "runs", []
        self.plan()

    def plan(self, **what):
        """plan(s1="refuse"): the cell of seed 1 is refused."""
        text = json.dumps({seed.removeprefix("s"): how for seed, how in what.items()})
        (self.directory / "plan.json").write_text(text, encoding="utf-8")

    def cells(self, *seeds):
        return [Cell.of("pico_bf16.json", {"train.steps": 5, "seed": seed}) for seed in seeds]

    def make(self, launcher="local", jobs=2, retries=0, **more):
        place = Place("mpretrain", self.at, self.work, jobs=jobs, retries=retries)
        launcher = launcher_of(launcher, "mpretrain") if isinstance(launcher, str) else launcher
        return Runner(place, Ledger(self.directory / "runs.csv"), launcher, "version 1", **more)

    def states(self, runner):
        return [status.state for status in runner.statuses.values()]

    def starts(self, cell):
        path = self.work / cell.name(self.at) / "starts"
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def calls(self, name):
        path = self.directory / "calls" if name in ("mpirun", "torchrun") else self.slurm / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(name + " ")]
