#!/usr/bin/env python3
"""Tests of scripts that are started with closed standard descriptors, as by a daemon, cron or
`>&-`: they end as they would otherwise, and nothing that they or their children print lands in a
file.

    PYTHONPATH=scripts tests/scripts/descriptors_test.py [CLASS[.TEST] ...]
"""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOSED = [
    " ".join(some)
    for count in (1, 2, 3)
    for some in itertools.combinations(("<&-", ">&-", "2>&-"), count)
]
# Opens a file as the first thing, then prints, and lets a child print.
CHATTY = """
import subprocess, sys
import mpretrain_tools
with open(sys.argv[1], "w", encoding="utf-8") as file:
    print("out")
    print("err", file=sys.stderr)
    sys.stdout.flush()
    subprocess.run(["sh", "-c", "echo out; echo err >&2; cat"], check=False)
    file.write("mine")
"""


def started(closed, *command):
    """Exit status of the command with these descriptors closed; what it prints elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    shell = ["bash", "-c", f'"$@" {closed}', "bash", *map(str, command)]
    done = subprocess.run(
        shell, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    return done.returncode, done.stdout + done.stderr


class ClosedDescriptors(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="descriptors_"))
        self.addCleanup(shutil.rmtree, self.directory)

    def test_what_is_printed_lands_in_no_file(self):
        for closed in CLOSED:
            with self.subTest(closed=closed):
                file = self.directory / "file"
                status, said = started(closed, sys.executable, "-c", CHATTY, file)
                self.assertEqual((status, file.read_text(encoding="utf-8")), (0, "mine"), said)
                for name, sign in (("out", ">&-"), ("err", "2>&-")):
                    lines = 0 if sign in closed.split() else 2
                    self.assertEqual(said.splitlines().count(name), lines, said)

    def test_a_script_in_python_ends_well(self):
        run = self.directory / "run"
        run.mkdir()
        record = {"step": 1, "tokens": 10, "loss": 4.0, "tokens_per_second": 5.0, "val_loss": 3.0}
        (run / "metrics.jsonl").write_text(
            json.dumps({**record, "step_seconds": 2.0}) + "\n", encoding="utf-8"
        )
        script = ROOT / "scripts/compare_runs.py"
        self.assertEqual(started("", sys.executable, script, run, run)[0], 0)
        for closed in CLOSED:
            with self.subTest(closed=closed):
                status, said = started(closed, sys.executable, script, run, run)
                self.assertEqual(status, 0, said)
                self.assertNotIn("Traceback", said)

    def test_a_shell_script_ends_well(self):
        for script in ("quickstart.sh", "reproduce/all.sh", "launch/torchrun.sh"):
            for closed in CLOSED:
                with self.subTest(script=script, closed=closed):
                    status, said = started(closed, ROOT / "scripts" / script, "--help")
                    self.assertEqual(status, 0, said)


if __name__ == "__main__":
    unittest.main()
