#!/usr/bin/env python3
"""Tests what `cmake --install` puts at a place of its own, as packages do: the program finds its
configurations there, scripts run, manual page and completion know every verb.

    tests/scripts/installed_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tested_program import PROGRAM, main

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command, **options):
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def build_tree():
    above = pathlib.Path(PROGRAM[0]).parents
    return next(path for path in above if (path / "CMakeCache.txt").exists())


def listed(program, *verbs):
    """What --help of a verb, or of the program, lists: verbs and long options."""
    text = run(program, *verbs, "--help").stdout
    below = text.partition("\nSubcommands:\n")[2]
    names = ",".join(re.findall(r"^  (-\S+)", text, re.M)).split(",")
    return re.findall(r"^  ([a-z]+)", below, re.M), [n for n in names if n.startswith("--")]


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="installed_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.prefix = cls.directory / "any where"
        done = run("cmake", "--install", build_tree(), "--prefix", cls.prefix)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.program = cls.prefix / "bin/mpretrain"
        cls.share = cls.prefix / "share/mpretrain"

    def test_the_program_finds_the_configurations_beside_it(self):
        for name in ("nano_bf16.json", "1b_fp8"):
            done = run(self.program, "plan", "--config", name, cwd=self.directory)
            self.assertNotIn("no such config", done.stderr)
            self.assertIn("parameters", done.stdout)

    def test_the_version_names_what_it_was_loaded_from(self):
        text = run(self.program, "--version").stdout
        self.assertIn(f"loaded from   {self.prefix}/", text)

    def test_the_manual_page_has_every_verb(self):
        page = (self.prefix / "share/man/man1/mpretrain.1").read_text(encoding="utf-8")
        verbs, _ = listed(self.program)
        self.assertGreater(len(verbs), 8)
        for verb in verbs:
            self.assertIn(f"\n.SH {verb.upper()}\n", page)
            for option in listed(self.program, verb)[1]:
                self.assertIn(option.replace("-", "\\-"), page)
        self.assertIn("\n.SH CHECKPOINT PRUNE\n", page)

    def test_scripts_run_where_they_are_installed(self):
        scripts = sorted(
            path
            for path in (self.share / "scripts").rglob("*")
            if path.parent.name in ("scripts", "launch") and path.name != "common.sh"
        )
        scripts = [path for path in scripts if path.is_file()]
        self.assertGreater(len(scripts), 8)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH")
        for path in scripts:
            with self.subTest(script=path.name):
                done = run(path, "--help", env=environment, cwd=self.directory)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(path.stem, done.stdout)

    def test_scripts_start_the_program_of_their_own_place(self):
        common = f". '{self.share}/scripts/common.sh' && program_path program"
        self.assertEqual(run("bash", "-c", common).stdout.strip(), str(self.program))

    def complete(self, *words):
        """What bash offers for the last of the words."""
        file = self.prefix / "share/bash-completion/completions/mpretrain"
        code = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mpretrain;'
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = run("bash", "-c", code, "bash", file, *words, cwd=self.directory)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_every_verb_and_option(self):
        verbs, options = listed(self.program)
        self.assertEqual(self.complete(self.program, ""), verbs)
        for verb in verbs:
            found = self.complete(self.program, verb, "--")
            self.assertEqual(found, sorted(listed(self.program, verb)[1]))
            self.assertIn("--help", found)
        self.assertLessEqual({"--config", *options}, set(self.complete(self.program, "--")))
        self.assertEqual(
            self.complete(self.program, "checkpoint", ""), listed(self.program, "checkpoint")[0]
        )
        self.assertIn("--keep-last", self.complete(self.program, "checkpoint", "prune", "--k"))

    def test_bash_completes_names_of_configurations(self):
        found = self.complete(self.program, "--config", "nano_bf16_a")
        self.assertIn("nano_bf16_adamw.json", found)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_completes_every_verb_and_option(self):
        [file] = (self.prefix / "share/zsh").rglob("_mpretrain")
        code = (
            'compadd() { shift; print -l -- "$@" }; _files() { };'
            ' file=$1; shift; words=("$@"); CURRENT=$#; source $file'
        )

        def offered(*words):
            done = run("zsh", "-f", "-c", code, "zsh", file, *words, cwd=self.directory)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()

        verbs, _ = listed(self.program)
        self.assertEqual(offered(self.program, ""), verbs)
        for verb in verbs:
            found = offered(self.program, verb, "--")
            self.assertEqual(sorted(found), sorted(listed(self.program, verb)[1]))
        self.assertIn("nano_bf16.json", offered(self.program, "--config", ""))


class BuildInfo(unittest.TestCase):
    """The file with the commit, which every build asks for."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="build_info_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.source = self.directory / "source"
        self.source.mkdir()
        (self.directory / "template").write_text("@MPT_COMMIT@\n", encoding="utf-8")

    def written(self):
        script = ROOT / "cmake/write_build_info.cmake"
        output = self.directory / "output"
        definitions = {
            "SOURCE": self.source,
            "TEMPLATE": self.directory / "template",
            "OUTPUT": output,
        }
        options = [f"-D{name}={path}" for name, path in definitions.items()]
        done = run("cmake", *options, "-P", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        return output.read_text(encoding="utf-8").strip(), output.stat().st_mtime_ns

    def git(self, *arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = run("git", "-C", self.source, *identity, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_is_unknown_outside_a_repository(self):
        self.assertEqual(self.written()[0], "unknown")

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_is_the_commit_and_whether_files_differ_from_it(self):
        (self.source / "file").write_text("a", encoding="utf-8")
        self.git("init", "-q")
        self.git("add", "file")
        self.git("commit", "-q", "-m", "a")
        commit = self.git("rev-parse", "--short=12", "HEAD")
        before = self.written()
        self.assertEqual(before[0], commit)
        self.assertEqual(self.written(), before)  # not written again: nothing compiles
        (self.source / "file").write_text("b", encoding="utf-8")
        self.assertEqual(self.written()[0], f"{commit}-dirty")
        self.source = self.source / "archive"
        self.source.mkdir()
        self.assertEqual(self.written()[0], "unknown")


if __name__ == "__main__":
    main()
