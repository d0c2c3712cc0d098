#!/usr/bin/env python3
"""Tests of scripts/cudnn_frontend.sh and of those that call it, with an nvcc, a pip and a cmake
that only pretend.

tests/scripts/cudnn_frontend_test.py [CLASS[.TEST] ...]
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
SYSTEM = "/usr/bin:/bin"

# Finds the headers named in SEEN, as `nvcc -E ... -include HEADER /dev/null`.
NVCC = """#!/bin/sh
while [ $# -gt 0 ]; do if [ "$1" = -include ]; then header=$2; fi; shift; done
case " $SEEN " in *" $header "*) exit 0 ;; esac
exit 1
"""
# Has pip if PIP is set; that installs what the wheel holds, or fails if PIP is `unreachable`.
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then echo /nowhere; exit 0; fi
[ -n "$PIP" ] || exit 1
if [ "$3" = --version ]; then exit 0; fi
echo "$*" >>"$CALLS"
if [ "$PIP" = unreachable ]; then echo "no route to host" >&2; exit 1; fi
while [ $# -gt 0 ]; do if [ "$1" = --target ]; then target=$2; fi; shift; done
mkdir -p "$target/include"
if [ "$PIP" = works ]; then echo >"$target/include/cudnn_frontend.h"; fi
"""


CMAKE = """#!/bin/sh
echo "$*" >>"$CALLS"
"""


class Place(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.target = self.directory / "build/frontend"
        self.calls = self.directory / "calls"
        (self.directory / "bin").mkdir()

    def program(self, name, text):
        path = self.directory / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
        return path


class Fetching(Place):
    def run_script(self, seen="cudnn_version.h", pip="works", nvcc=True):
        python = self.program("python3", PYTHON)
        if nvcc:
            self.program("nvcc", NVCC)
        environment = {
            **os.environ,
            "PATH": f"{self.directory}/bin:{SYSTEM}",
            "MPT_PYTHON": str(python),
            "SEEN": seen,
            "PIP": pip,
            "CALLS": str(self.calls),
        }
        return subprocess.run(
            [SCRIPTS / "cudnn_frontend.sh", self.target],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def assert_nothing_left(self):
        self.assertFalse(self.target.exists())
        left = self.target.parent
        self.assertEqual(list(left.iterdir()) if left.exists() else [], [])

    def test_once_where_cudnn_is_and_the_headers_are_not(self):
        first = self.run_script()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertTrue((self.target / "include/cudnn_frontend.h").exists())
        second = self.run_script()
        self.assertEqual(second.returncode, 0, second.stderr)
        calls = self.calls.read_text().splitlines()
        self.assertEqual(len(calls), 1)
        self.assertRegex(calls[0], r"--no-deps .* nvidia-cudnn-frontend==[0-9.]+$")
        self.assertEqual([path.name for path in self.target.parent.iterdir()], ["frontend"])

    def test_other_headers_than_the_tests_run_with_are_replaced(self):
        self.run_script()
        (self.target / "wheel").write_text("nvidia-cudnn-frontend==0.1\n")
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(len(self.calls.read_text().splitlines()), 2)

    def test_not_without_nvcc_or_cudnn_or_need(self):
        for options, said in (
            ({"nvcc": False}, "not needed without nvcc"),
            ({"seen": ""}, "not needed without cuDNN"),
            ({"seen": "cudnn_version.h cudnn_frontend_version.h"}, "installed"),
        ):
            if options.get("nvcc") is False and shutil.which("nvcc", path=SYSTEM):
                continue
            with self.subTest(said):
                done = self.run_script(**options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(said, done.stdout)
                self.assertFalse(self.calls.exists())
                self.assert_nothing_left()

    def test_says_what_follows_where_there_is_no_way(self):
        for pip, said in (
            ("", "there is no pip"),
            ("unreachable", "could not be fetched"),
            ("empty", "holds no include/cudnn_frontend.h"),
        ):
            with self.subTest(said):
                done = self.run_script(pip=pip)
                self.assertEqual(done.returncode, 1)
                self.assertIn("attention will be by GEMMs, which is slower", done.stderr)
                self.assertIn(said, done.stderr)
                self.assert_nothing_left()


@unittest.skipIf(shutil.which("nvcc", path=SYSTEM), "nvcc is in the system's own directory")
class Bundle(Place):
    """Without cuDNN's attention a bundle measures another program, so it is not made."""

    def test_is_made_with_cudnn_or_not_at_all(self):
        self.program("cmake", CMAKE)
        environment = {
            **os.environ,
            "PATH": f"{self.directory}/bin:{SYSTEM}",
            "MPT_BUILD_DIR": str(self.directory / "build"),
            "CALLS": str(self.calls),
        }
        done = subprocess.run(
            [SCRIPTS / "gpu_check.sh", "--bundle", self.directory / "bundle"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertIn("cudnn-frontend: ", done.stdout)
        self.assertIn(" -DMPT_CUDNN=ON ", self.calls.read_text().splitlines()[0])


if __name__ == "__main__":
    unittest.main()
