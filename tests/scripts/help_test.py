#!/usr/bin/env python3
"""Tests that every script says how it is used, and refuses options that it does not know, before it
does anything.

    tests/scripts/help_test.py [CLASS[.TEST] ...]

A script is a file of scripts/, scripts/launch/ or scripts/reproduce/ that begins with #!, so a new
one is covered by being there. Those that start one of several modules are scripts once more with
each of their names.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from mpretrain_tools import bench, reproduce, tools

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What scripts start; here each only tells that it was started.
STARTED = (
    "apt-get",
    "apt-cache",
    "cmake",
    "ctest",
    "sudo",
    "curl",
    "mpirun",
    "torchrun",
    "srun",
    "scontrol",
    "mpretrain",
)
# All arguments of these are another program's.
HAND_ON = {"test.sh", "torchrun.sh", "slurm.sbatch"}


def scripts():
    """Command lines: a path, and the name of a module where it starts one of several."""
    found = [
        path
        for part in ("", "launch", "reproduce")
        for path in (ROOT / "scripts" / part).iterdir()
        if path.is_file()
    ]
    alone = [[path] for path in sorted(found) if path.read_bytes().startswith(b"#!")]
    measuring = [name for name in bench.NAMES if name not in NEED_TORCH]
    return (
        alone
        + [[ROOT / "scripts/reproduce.py", name] for name in reproduce.NAMES]
        + [[ROOT / "scripts/bench.py", name] for name in measuring]
        + [[ROOT / "scripts/tools.py", name] for name in tools.NAMES]
    )


# Without torch these do not even say how they are used.
NEED_TORCH = {"pytorch_step", "torch_gpu_step"}


def interpreter(path):
    return [sys.executable, "-B"] if path.suffix == ".py" else ["bash"]


class Scripts(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="help_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.here = self.directory / "here"
        self.calls = self.directory / "calls"
        self.here.mkdir()
        (self.directory / "bin").mkdir()
        for name in STARTED:
            path = self.directory / "bin" / name
            path.write_text(f"#!/bin/sh\necho {name} >>'{self.calls}'\nexit 1\n", encoding="utf-8")
            path.chmod(0o755)
        # Python looks here before it looks at what is installed.
        (self.directory / "python").mkdir()
        (self.directory / "python/matplotlib.py").write_text(
            "raise ModuleNotFoundError('none')\n", encoding="utf-8"
        )

    def run_script(self, command, *arguments):
        environment = {
            **os.environ,
            "PATH": f"{self.directory}/bin:{os.environ['PATH']}",
            "HOME": str(self.here),
            "PYTHONPATH": str(self.directory / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            [*interpreter(command[0]), *map(str, command), *arguments],
            cwd=self.here,
            env=environment,
            timeout=60,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def check_did_nothing(self):
        self.assertFalse(self.calls.exists(), "a program was started")
        self.assertEqual(list(self.here.iterdir()), [])

    def test_there_are_scripts(self):
        names = {command[-1] if len(command) > 1 else command[0].name for command in scripts()}
        self.assertLessEqual(
            {"quickstart.sh", "plot_curves.py", "slurm.sbatch", "all.sh", "main_table", "growth"},
            names,
        )

    def test_help_prints_the_usage_and_does_nothing(self):
        before = sorted(ROOT.iterdir())
        for command in scripts():
            for option in ("--help", "-h"):
                with self.subTest(script=" ".join(map(str, command)), option=option):
                    done = self.run_script(command, option)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(
                        (
                            " ".join([command[0].name, *command[1:]])
                            if command[1:]
                            else command[0].stem
                        ),
                        done.stdout,
                    )
                    self.assertEqual(done.stderr, "")
                    self.check_did_nothing()
        self.assertEqual(sorted(ROOT.iterdir()), before)

    def test_an_unknown_option_is_refused_by_name(self):
        for command in scripts():
            if command[0].name in HAND_ON:
                continue
            with self.subTest(script=" ".join(map(str, command))):
                done = self.run_script(command, "--no-such-option")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("error", done.stderr)
                if "required" not in done.stderr:  # argparse names what is missing first
                    self.assertIn("--no-such-option", done.stderr)
                self.check_did_nothing()

    def test_nobody_reading_on_is_no_mistake(self):
        study = ROOT / "docs/results/study/study.json"
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "scripts/study.py", "check", study],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(writer)
        self.assertEqual((done.stderr, done.returncode), (b"", 128 + signal.SIGPIPE))

    def test_without_matplotlib_drawing_says_in_a_line_what_to_install(self):
        run = self.directory / "metrics.jsonl"
        run.write_text(
            '{"step": 1, "loss": 2.0, "update_survival": {"bucket_edges": [0, 1], "tensors":'
            ' {"proj": {}}}}\n',
            encoding="utf-8",
        )
        for name, *of_several in (["plot_curves.py"], ["tools.py", "plot_survival"]):
            with self.subTest(script=name):
                command = [ROOT / "scripts" / name, *of_several]
                done = self.run_script(command, "--output", "drawn.png", str(run))
                self.assertEqual(done.returncode, 1)
                self.assertIn("install python3-matplotlib", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.check_did_nothing()


if __name__ == "__main__":
    unittest.main()
