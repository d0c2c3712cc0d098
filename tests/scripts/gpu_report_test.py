#!/usr/bin/env python3
"""What gpu_report prints is JSON and nothing else, whatever it has to say beside it.

tests/scripts/gpu_report_test.py --program GPU_REPORT [CLASS[.TEST] ...]
"""

import json
import pathlib
import subprocess
import sys
import unittest

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
SHAPE = ["--tokens-per-step=64", "--seq-len=32", "--micro-batch-rows=1"]
EFFORT = ["--steps=2", "--rounds=1", "--warm-up=3"]


class OnACpu(unittest.TestCase):
    def report(self, mode, *options):
        command = [program, "--device=cpu", "--seconds=0.01", mode, *options]
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=250)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def configs(self, *names):
        return [f"--config={CONFIGS / name}.json" for name in names]

    def test_steps(self):
        steps = self.report("step", *SHAPE, *EFFORT, "--gemm-size=64", *self.configs("pico_bf16"))
        self.assertEqual([step["weights"] for step in steps], ["bf16"])

    def test_pairs(self):
        self.report("pair", *SHAPE, *EFFORT, *self.configs("pico_bf16", "pico_fp8"))

    def test_an_error_is_no_json(self):
        command = [program, "--device=cpu", "step", *SHAPE, "--config=none.json"]
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=250)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("none.json", done.stderr)


if __name__ == "__main__":
    place = sys.argv.index("--program")
    program = sys.argv.pop(place + 1)
    sys.argv.pop(place)
    unittest.main()
