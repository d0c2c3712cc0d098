#!/usr/bin/env python3
"""Tests of where the text comes from that runs train on: --corpus of the scripts that make tokens.

    tests/scripts/corpus_test.py [CLASS[.TEST] ...]

Programs of this directory's making stand in for apt-get, which would use the network, and for
mpretrain.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

REPRODUCE = pathlib.Path(__file__).resolve().parents[2] / "scripts/reproduce"
TELL = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'


class Corpus(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="corpus_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.corpus = self.directory / "my corpus"
        self.corpus.mkdir()
        (self.directory / "bin").mkdir()
        self.program = self.write_program("mpretrain", 'test "$1" != "$FAIL_AT"')
        for name in ("apt-get", "apt-cache"):
            self.write_program(name, "exit 100")

    def write_program(self, name, what):
        path = self.directory / "bin" / name
        path.write_text(TELL + what + "\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_script(self, name, *arguments, program=None, fail_at="nothing"):
        environment = {
            **os.environ,
            "PATH": f"{self.program.parent}:{os.environ['PATH']}",
            "CALLS": str(self.directory / "calls"),
            "FAIL_AT": fail_at,
        }
        program = ["--program", self.program] if program is None else program
        return subprocess.run(
            [REPRODUCE / name, *program, *arguments],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, program):
        path = self.directory / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(program)]

    def write_text(self):
        (self.corpus / "novel.txt").write_text("Call me Ishmael.\n", encoding="utf-8")

    def check_untouched(self):
        self.assertEqual([path.name for path in self.corpus.iterdir()], ["novel.txt"])
        self.assertEqual(
            (self.corpus / "novel.txt").read_text(encoding="utf-8"), "Call me Ishmael.\n"
        )
        self.assertEqual(self.calls("apt"), [])

    def test_prepare_text_takes_the_given_text_and_no_other(self):
        self.write_text()
        done = self.run_script("prepare_text.sh", "--corpus", self.corpus, "text")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_untouched()
        for call in self.calls("mpretrain"):
            self.assertIn(f"--input {self.corpus}/*.txt", call)
        self.assertEqual(len(self.calls("mpretrain")), 2)

    def test_all_takes_the_given_text_and_no_other(self):
        self.write_text()
        done = self.run_script(
            "all.sh",
            "--corpus",
            self.corpus,
            "--work",
            "work",
            "--output",
            "out",
            fail_at="tokenize",
        )
        self.assertIn('"make tokens" failed, and everything else depends on it', done.stderr)
        self.check_untouched()
        self.assertIn(f"--input {self.corpus}/*.txt", self.calls("mpretrain tokenize")[0])

    def test_a_directory_without_text_is_refused_by_name(self):
        for directory in (self.corpus, self.directory / "nowhere"):
            done = self.run_script("prepare_text.sh", "--corpus", directory, "text")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"--corpus {directory}: no *.txt there", done.stderr)
        self.assertEqual(self.calls("apt") + self.calls("mpretrain"), [])
        self.assertEqual(list(self.corpus.iterdir()), [])

    def test_text_is_fetched_where_none_is_given(self):
        done = self.run_script("prepare_text.sh", "--small", "text")
        self.assertNotEqual(done.returncode, 0)  # there is no network here
        self.assertNotEqual(self.calls("apt-get"), [])
        self.assertEqual(self.calls("mpretrain"), [])

    def test_all_takes_values_after_an_equals_sign(self):
        done = self.run_script(
            "all.sh",
            f"--corpus={self.directory}/nowhere",
            "--work=work",
            "--output=out",
            "--scale=nano",
        )
        self.assertIn(f"--corpus {self.directory}/nowhere: no *.txt there", done.stderr)

    def test_all_refuses_what_no_script_takes_before_it_begins(self):
        for option in ("--jbos", "--quic"):
            done = self.run_script("all.sh", "--work", "work", option, "2")
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"all.sh: error: unrecognized arguments: {option}", done.stderr)
        self.assertFalse((self.directory / "work").exists())

    def test_other_files_of_the_directory_stay(self):
        (self.corpus / "film.part").write_text("half of it", encoding="utf-8")
        self.run_script("../fetch_corpus.sh", "--small", self.corpus, program=[])
        self.assertEqual([path.name for path in self.corpus.iterdir()], ["film.part"])

    def test_tokens_and_a_corpus_contradict_each_other(self):
        done = self.run_script(
            "all.sh", "--corpus", self.corpus, "--tokens", "tokens", "--work", "work"
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("give one of them", done.stderr)
        self.assertFalse((self.directory / "work").exists())


if __name__ == "__main__":
    unittest.main()
