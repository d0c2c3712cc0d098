#!/usr/bin/env python3
"""Tests of how scripts/gpu_check.sh uses the time of a borrowed machine: order, budget, going on
from the archive, failures, and the peer. Programs are made up; nothing is measured.

    PYTHONPATH=scripts tests/scripts/gpu_check_test.py [CLASS[.TEST] ...]
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

from mpretrain_tools.bench import gpu_check
from mpretrain_tools.bench.sitting import budget, results, runner, units

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = [{"micro_batch_rows": 32}]  # of what `gpu_report step` prints, the part that the peer needs


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Machine:
    """Commands take the seconds that they are said to, on a clock of their own."""

    def __init__(self):
        self.clock = Clock()
        self.seconds = {}  # by a word of the command; else 10
        self.failing = set()
        self.called = []  # words
        self.watch = lambda: None

    def figures(self, words):
        return json.dumps(STEP if "step" in words else {}).encode()

    def call(self, words, output, log, seconds, directory, clock):
        self.called.append(words)
        self.watch()
        takes = next((self.seconds[word] for word in words if word in self.seconds), 10.0)
        self.clock.now += min(takes, seconds)
        if takes > seconds:
            return runner.Ended(None, seconds)
        if self.failing & set(words):
            log.write(b"no such kernel\n")
            return runner.Ended(9, takes)
        told = bool({"gpu_tests", "compute-sanitizer"} & set(words))
        output.write(b"[  PASSED  ] 7 tests.\n" if told else self.figures(words))
        return runner.Ended(0, takes)


def without_directory(words):
    return [word for word in words if "gtest_output" not in word]


class Place(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name)
        self.machine = Machine()
        self.said = []

    def check(self, *options, output="out", gpu="NVIDIA H200", torch=True, sanitizer=True):
        """Exit status of a call on the made-up machine."""
        arguments = ["--output", str(self.path / output), "--report-program", "gpu_report"]
        arguments += ["--tests-program", "gpu_tests", "--commit", "c1", *options]
        lines = {"--query-gpu=name": [gpu]}
        self.said = []
        with (
            mock.patch.object(runner, "call", self.machine.call),
            mock.patch.object(
                gpu_check, "Budget", lambda *a: budget.Budget(*a, clock=self.machine.clock)
            ),
            mock.patch.object(gpu_check, "printed", lambda _, what, *__: lines.get(what, [])),
            mock.patch.object(units.Units, "has_torch", torch),
            mock.patch.object(units.shutil, "which", lambda _: "there" if sanitizer else None),
            mock.patch.object(gpu_check.gpu_check_report, "markdown", lambda *_: "report\n"),
            mock.patch.object(gpu_check.gpu_check_report, "goal_rows", lambda _: []),
        ):
            return gpu_check.main(arguments, self.said.append)

    def modes(self):
        """What was called, in a word each."""
        known = ("gpu_tests", "machine", "step", "pair", "optimizer", "torch_gpu_step")
        found = []
        for words in self.machine.called:
            name = "compute-sanitizer" if "compute-sanitizer" in words else None
            found.append(name or next(word for word in words if word in known))
        return found

    def report(self, output="out"):
        return json.loads((self.path / output / "report.json").read_text())

    def text(self):
        return "\n".join(self.said)


class Order(Place):
    def test_the_most_worthy_first(self):
        self.assertEqual(self.check(), 0)
        expected = ["gpu_tests", "machine", "step", *["pair"] * 5, *["optimizer"] * 10]
        expected += [*["step"] * 3, *["compute-sanitizer"] * 8]
        expected += ["step", "torch_gpu_step", "step"] * 4
        expected += ["pair"] * 15
        self.assertEqual(self.modes(), expected)
        sizes = [
            word.split("/")[1].split("_")[0]
            for words in self.machine.called
            for word in words[-1:]
            if word.startswith("configs/")
        ]
        self.assertEqual(sizes[:6], ["350m"] * 6)
        self.assertEqual(sizes[6:9], ["1b", "60m", "130m"])

    def test_chosen_stages_and_sizes_alone(self):
        self.assertEqual(self.check("--stages", "pairs", "--sizes", "60m,1b"), 0)
        self.assertEqual(self.modes(), ["pair"] * 10)
        self.assertIn("configs/1b_bf16.json", self.machine.called[0])
        for wrong in (("--stages", "pears"), ("--sizes", "2b"), ("--budget", "soon")):
            with self.subTest(wrong=wrong), contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit):
                    self.check(*wrong)
                self.assertIn(wrong[1], said.getvalue())

    def test_sanitizers_leave_out_the_exhaustive_sweeps(self):
        self.check("--stages", "sanitizer")
        filters = [words[-2] for words in self.machine.called]
        self.assertEqual(len(filters), 8)
        for one in filters:
            self.assertIn("*SameBits*Quarter", one.split("-")[-1])

    def test_a_sanitizer_that_fails_in_one_part_has_a_verdict_on_the_other(self):
        def only_the_first():
            self.machine.failing = {"memcheck"} if len(self.machine.called) == 1 else set()

        self.machine.watch = only_the_first
        self.assertEqual(self.check("--stages", "sanitizer"), 1)
        correctness = self.report()["correctness"]
        self.assertEqual(correctness["compute-sanitizer memcheck, others"], "**exit status 9**")
        self.assertEqual(correctness["compute-sanitizer memcheck, attention"], "clean")


class Limits(Place):
    def test_times(self):
        self.assertEqual(
            [budget.seconds_of(text) for text in ("9m", "540s", "540", "0.5h")],
            [540, 540, 540, 1800],
        )
        for wrong in ("", "0", "9 m", "-5", "9x"):
            with self.assertRaises(argparse.ArgumentTypeError):
                budget.seconds_of(wrong)

    def test_what_fits_is_started_and_the_rest_is_named(self):
        for seconds in (60, 200, 540):
            with self.subTest(budget=seconds):
                self.machine = Machine()
                status = self.check("--budget", str(seconds), output=f"out{seconds}")
                self.assertEqual(status, gpu_check.LEFT)
                self.assertLessEqual(self.machine.clock.now, seconds)
                left = self.report(f"out{seconds}")["not_measured"]
                all_units = 1 + 1 + 4 + 4 * 5 + 10 + 4 * 2 + 4
                self.assertIn(f"{all_units - len(left)} of {all_units} units", self.text())
                self.assertEqual(len(self.said), all_units + 3)
                for why in left.values():
                    self.assertRegex(why, "s were left|more than the budget")
        self.assertEqual(self.modes()[:3], ["gpu_tests", "machine", "step"])
        self.assertRegex(self.text(), r"budget used up, \d+ units left: ")

    def test_a_later_one_that_fits_takes_the_place(self):
        self.check("--budget", "100")  # the tests alone are thought to take longer
        self.assertEqual(self.modes()[0], "machine")
        self.assertNotIn("gpu_tests", self.modes())

    def test_seconds_that_passed_before_count(self):
        self.check("--budget", "540", "--spent", "525", "--stages", "machine")
        self.assertEqual(self.machine.called, [])

    def test_what_the_budget_cuts_off_is_no_failure_and_repeated_with_more_time(self):
        self.machine.seconds = {"gpu_tests": 250}  # estimated 110, at most 390
        options = ("--stages", "tests", "--budget")
        self.assertEqual(self.check(*options, "200"), gpu_check.LEFT)
        self.assertEqual(self.machine.clock.now, 185)
        self.assertRegex(self.text(), "tests: cut off, the budget was used up after 185 s")
        self.assertEqual(self.check(*options, "200"), gpu_check.LEFT)
        self.assertRegex(self.text(), "takes about 231 s, more than the budget")
        self.assertEqual(len(self.machine.called), 1)
        self.assertEqual(self.check(*options, "300"), 0)
        self.assertEqual(len(self.machine.called), 2)

    def test_what_hangs_is_a_failure(self):
        self.machine.seconds = {"machine": 1e6}
        self.assertEqual(self.check("--stages", "machine,optimizer", "--budget", "540"), 1)
        self.assertRegex(self.text(), "machine: failed, it took more than 120 s")
        self.assertEqual(self.modes(), ["machine", *["optimizer"] * 10])


class GoingOn(Place):
    def test_calls_add_up_and_repeat_nothing(self):
        self.check("--budget", "9m", output="call0")
        calls = 1
        while self.check(
            "--budget", "9m", "--from", str(self.path / f"call{calls - 1}/results.tar.gz"),
            output=f"call{calls}",
        ):  # fmt: skip
            calls += 1
            self.assertLess(calls, 6)
        all_at_once = Machine()
        once, self.machine = self.machine, all_at_once
        self.check(output="at_once")
        self.assertEqual(*(sorted(map(without_directory, m.called)) for m in (once, all_at_once)))
        self.assertEqual(self.report(f"call{calls}")["not_measured"], {})
        self.assertEqual(
            sorted(self.report(f"call{calls}")["figures"]),
            sorted(self.report("at_once")["figures"]),
        )

    def test_the_archive_in_the_output_is_gone_on_from(self):
        self.check("--stages", "optimizer")
        self.assertEqual(self.check("--stages", "optimizer"), 0)
        self.assertEqual(len(self.machine.called), 10)
        self.assertEqual(self.check("--stages", "optimizer", "--again", "all"), 0)
        self.assertEqual(len(self.machine.called), 20)

    def test_what_the_output_has_is_not_lost_to_an_older_archive(self):
        self.check("--stages", "machine", output="first")
        older = ("--from", str(self.path / "first/results.tar.gz"))
        self.check("--stages", "optimizer", *older)
        self.check("--stages", "steps", "--sizes", "1b", *older)
        self.assertIn("out/results.tar.gz, which is there already", self.text())
        self.assertEqual(self.report()["not_measured"], {})
        names = {"machine", "steps_1b", "optimizer_fp32_adamw"}
        self.assertLessEqual(names, set(self.report()["figures"]))
        self.check("--stages", "machine,optimizer", *older)
        self.assertEqual(self.modes(), ["machine", *["optimizer"] * 10, "step"])

    def test_another_commit_or_machine_is_measured_anew(self):
        for options, gpu in (
            ((), "NVIDIA H200"),
            ((), "NVIDIA H100"),
            (("--commit", "c2"), "NVIDIA H100"),
        ):
            self.check("--stages", "machine", *options, gpu=gpu)
        self.assertEqual(len(self.machine.called), 3)

    def test_an_archive_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no/results.tar.gz"):
            self.check("--from", "no/results.tar.gz")

    def test_a_call_that_was_killed_leaves_what_it_had(self):
        def stop():
            if len(self.machine.called) == 4:
                raise KeyboardInterrupt

        self.machine.watch = stop
        with self.assertRaises(KeyboardInterrupt):
            self.check("--stages", "optimizer")
        self.machine.watch = lambda: None
        self.assertEqual(self.check("--stages", "optimizer"), 0)
        self.assertEqual(len(self.machine.called), 4 + 7)

    def test_never_more_than_eight_files(self):
        seen = []
        self.machine.watch = lambda: seen.append(len(list((self.path / "out").rglob("*"))))
        self.check()
        self.assertGreater(len(seen), 40)
        self.assertLessEqual(max(seen), 3)
        files = sorted(path.name for path in (self.path / "out").rglob("*"))
        self.assertEqual(files, ["report.json", "report.md", "results.tar.gz"])

    def test_only_plain_files_are_taken_from_an_archive(self):
        archive = self.path / "results.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            for name in (
                "raw/../../outside",
                "/raw/absolute",
                "raw/deeper/file",
                "raw/machine.txt",
            ):
                member = tarfile.TarInfo(name)
                member.size = 1
                tar.addfile(member, io.BytesIO(b"x"))
        (self.path / "raw").mkdir()
        results.unpack(archive, self.path / "raw")
        found = sorted(path.name for path in self.path.rglob("*") if path.is_file())
        self.assertEqual(found, ["machine.txt", "results.tar.gz"])

    def test_long_logs_keep_begin_and_end(self):
        log = self.path / "log"
        log.write_bytes(b"begin" + b"." * (1 << 20) + b"the end")
        results.shorten(log)
        self.assertLess(log.stat().st_size, results.SHOWN_BYTES + 100)
        self.assertTrue(log.read_bytes().startswith(b"begin"))
        self.assertTrue(log.read_bytes().endswith(b"the end"))


class Failures(Place):
    def test_the_rest_goes_on_and_the_status_tells(self):
        self.machine.failing = {"configs/350m_bf16_adamw_sr.json"}
        self.assertEqual(self.check("--budget", "200"), 1)
        self.assertIn("pair_350m_sr: failed, pair_350m_sr: exit status 9", self.text())
        self.assertIn("no such kernel", self.text())
        self.assertIn("1 failed: pair_350m_sr", self.text())
        self.assertIn("units left", self.text())
        self.assertEqual(self.modes()[-1], "optimizer")
        self.assertNotIn("pair_350m_sr", self.report()["figures"])
        self.assertEqual(self.report()["runs"]["pair_350m_sr"]["exit status"], "9")

    def test_what_prints_no_figures_has_failed(self):
        self.machine.figures = lambda words: b"all is well\n"
        self.assertEqual(self.check("--stages", "machine,tests"), 1)
        self.assertIn("machine: failed, machine: exit status 0, but what it printed", self.text())
        self.assertIn("1 failed: machine;", self.text())

    def test_figures_that_no_report_can_be_made_of_stop_nothing(self):
        with mock.patch.object(gpu_check.gpu_check_report, "write", side_effect=KeyError("median")):
            self.assertEqual(self.check("--stages", "optimizer"), 1)
        self.assertEqual(len(self.machine.called), 10)
        self.assertIn("the report could not be made: KeyError('median')", self.text())
        self.assertEqual(self.check("--stages", "optimizer"), 0)

    def test_what_failed_runs_again_if_asked(self):
        self.machine.failing = {"nvfp4"}
        self.assertEqual(self.check("--stages", "optimizer"), 1)
        self.assertEqual(self.check("--stages", "optimizer"), 1)
        self.assertEqual(len(self.machine.called), 10)
        self.machine.failing = set()
        self.assertEqual(self.check("--stages", "optimizer", "--again", "failed"), 0)
        self.assertEqual(len(self.machine.called), 12)

    def test_what_the_machine_lacks_is_a_failure_there_but_not_in_a_dry_run(self):
        lacking = {"torch": False, "sanitizer": False}
        self.assertEqual(self.check("--stages", "peer,sanitizer", **lacking), 1)
        self.assertEqual(self.report()["not_measured"]["peer_1b"], "python3 has no torch")
        self.assertRegex(self.report()["not_measured"]["sanitizer_memcheck_others"], "not on PATH")
        dry = ("--device", "cpu", "--tiny")
        self.assertEqual(self.check(*dry, output="dry", **lacking), 0)
        self.assertEqual(self.report("dry")["not_measured"]["tests"], "needs a GPU")


class Peer(Place):
    def rows_asked(self):
        torch = [words for words in self.machine.called if "torch_gpu_step" in words]
        return [words[words.index("--micro-batch-rows") + 1] for words in torch]

    def test_memory_is_halved_before_the_first_try(self):
        self.check("--stages", "peer", "--sizes", "350m")
        self.assertEqual(self.modes(), ["step", "torch_gpu_step", "step"])
        self.assertEqual(self.rows_asked(), ["16"])

    def test_a_single_row_stays_one(self):
        with mock.patch.dict(STEP[0], micro_batch_rows=1):
            self.check("--stages", "peer", "--sizes", "350m")
        self.assertEqual(self.rows_asked(), ["1"])

    def test_all_three_are_repeated_if_one_is_cut_off(self):
        self.machine.seconds = {"torch_gpu_step": 200}
        options = ("--stages", "peer", "--sizes", "350m")
        self.assertEqual(self.check(*options, "--budget", "180"), gpu_check.LEFT)
        self.assertEqual(self.report()["figures"], {})
        self.assertEqual(self.check(*options, "--budget", "9m"), 0)
        self.assertEqual(self.modes()[2:], ["step", "torch_gpu_step", "step"])


NVIDIA_SMI = """#!/bin/sh
echo 'NVIDIA H200'
"""
REPORT = """#!/bin/bash
echo "$@" >>{calls}
case "$*" in
  *"fp32 --rule adamw"*)  # hangs once, with a child
    if [ ! -e {calls}.hung ]; then touch {calls}.hung; sleep 60 & sleep 60; fi ;;&
  *) echo '{{"percent_of_copy": 90, "bytes_per_second": {{"median": 1e12}}}}' ;;
esac
"""


class Script(Place):
    """scripts/gpu_check.sh itself, on a bundle whose programs are made up."""

    def setUp(self):
        super().setUp()
        self.bundle = self.path / "bundle"
        self.calls = self.path / "calls"
        self.program(self.path / "built/bin/gpu_report", REPORT.format(calls=self.calls))
        self.bundle.mkdir()
        with tarfile.open(self.bundle / "programs.tar.xz", "w:xz") as tar:
            tar.add(self.path / "built/bin", "bin")
        self.program(self.path / "bin/nvidia-smi", NVIDIA_SMI)
        (self.bundle / "scripts").symlink_to(ROOT / "scripts")
        (self.bundle / "commit").write_text("c1\n")

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self, *options):
        call = [ROOT / "scripts/gpu_check.sh", "--use", self.bundle, "--output", self.path / "out"]
        environment = {
            **os.environ,
            "PATH": f"{self.path}/bin:{os.environ['PATH']}",
            "MPT_PYTHON": sys.executable,
        }
        return subprocess.run(
            [*call, *options], capture_output=True, text=True, check=False, env=environment
        )

    def test_ends_within_its_budget_and_goes_on(self):
        start = time.monotonic()
        first = self.run_script("--stages", "optimizer", "--budget", "15s")
        self.assertLess(time.monotonic() - start, 30)  # 15, and what a busy machine adds
        self.assertEqual(first.returncode, 3, first.stdout + first.stderr)
        self.assertIn("optimizer_fp32_adamw: cut off", first.stdout)
        report = (self.path / "out/report.md").read_text()
        self.assertIn("| optimizer_fp32_adamw | the budget was used up after", report)
        second = self.run_script(
            "--stages", "optimizer", "--from", self.path / "out/results.tar.gz"
        )
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.assertEqual(len(self.calls.read_text().splitlines()), 11)
        report = (self.path / "out/report.md").read_text()
        self.assertNotIn("## Not measured", report)
        self.assertIn("90.0; 1000 GB/s", report)
        self.assertIn("gpu: NVIDIA H200", report)

    def test_says_what_is_wrong(self):
        for options, words in (
            (("--stages", "pears"), "'pears' is not one of"),
            (("--budget",), "--budget needs a value"),
            (("--budget", "soon"), "'soon' is no time"),
            (("--from", "nowhere.tar.gz"), "nowhere.tar.gz: no such archive"),
        ):
            with self.subTest(options=options):
                done = self.run_script(*options)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
