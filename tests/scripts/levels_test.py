#!/usr/bin/env python3
"""Tests the levels of a package: the dynamic loader takes the best one that a machine has, and all
train to the same weights.

    tests/scripts/levels_test.py --program build/package/bin/mpretrain [CLASS[.TEST] ...]

A processor that has less is had by taking instructions from the loader's view of this one
(GLIBC_TUNABLES). Levels that this processor lacks are left out.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from mpretrain_tools.bench.shapes import write_tokens
from tested_program import PROGRAM, main

LEVELS = {"x86-64-v4": "", "x86-64-v3": "-AVX512F", "x86-64": "-AVX512F,-AVX2"}
# Few rows: without the instruction a multiply-add takes some twenty.
CASES = (
    ("pico_bf16", 4),
    ("pico_fp8_adamw", 4),
    ("pico_nvfp4", 4),
    ("pico_fp32_adamw", 4),
    ("nano_bf16_fp8", 2),
)


def run(level, *arguments, **options):
    hidden = LEVELS[level]
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    if hidden:
        environment["GLIBC_TUNABLES"] = f"glibc.cpu.hwcaps={hidden}"
    done = subprocess.run(
        [PROGRAM[0], *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        **options,
    )
    if done.returncode != 0:
        raise AssertionError(f"{level}: {arguments}: {done.stderr}")
    return done.stdout


def loaded(level):
    """The level that was compiled in what a processor of this level loads."""
    return re.search(r"^compiled for +([\w-]+):", run(level, "--version"), re.M)[1]


def here():
    """Levels of this processor."""
    best = list(LEVELS).index(loaded("x86-64-v4"))
    return list(LEVELS)[best:]


class Levels(unittest.TestCase):
    def setUp(self):
        if os.uname().machine != "x86_64":
            self.skipTest("one level alone on this architecture")
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="levels_"))
        self.addCleanup(shutil.rmtree, self.directory)

    def test_each_processor_loads_its_own(self):
        for level in here():
            self.assertEqual(loaded(level), level)
            path = re.search(r"^loaded from +(.*)$", run(level, "--version"), re.M)[1]
            place = "" if level == "x86-64" else f"glibc-hwcaps/{level}/"
            self.assertTrue(path.endswith(f"lib/mpretrain/{place}libmpretrain.so.0"), path)

    def trained(self, level, config, steps):
        """Hash of each tensor file of the last checkpoint."""
        run(
            level,
            *("--config", config, "--set", f"train.steps={steps}"),
            *("--set", f"data.train=['{self.directory}/tokens.bin']".replace("'", '"')),
            *("--set", "data.validation=[]", "--set", 'data.tokenizer=""'),
            *("--set", f"output_dir={self.directory}/{level}"),
            *("--set", "batch.tokens_per_step=512", "--set", "eval.every_steps=0"),
            cwd=self.directory,
        )
        files = (self.directory / level / config / "checkpoints").rglob("*.safetensors")
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        self.assertTrue(found)
        return found

    def test_all_train_to_the_same_weights(self):
        write_tokens(self.directory / "tokens.bin", 1 << 16, 512)
        for config, steps in CASES:
            expected = self.trained("x86-64", config, steps)
            for level in here()[:-1]:
                with self.subTest(config=config, level=level):
                    self.assertEqual(self.trained(level, config, steps), expected)


if __name__ == "__main__":
    main()
