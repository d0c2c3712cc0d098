#!/usr/bin/env python3
"""Tests of how scripts/mpretrain_tools/sweeps runs cells: to their end, once, whatever happens,
telling how far it is.

    tests/scripts/experiments_runner_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]

What starts programs is tested with those of tests/scripts/fakes; that a study killed at any moment
ends with the same table, with the program itself.
"""

import contextlib
import csv
import io
import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from experiments_support import FAKES, ROOT, Directory, RealTokens, WithFakes, is_running, wait_for
from mpretrain_tools.sweeps import progress
from mpretrain_tools.sweeps import runner as running
from mpretrain_tools.sweeps.cell import Cell
from mpretrain_tools.sweeps.launch import launcher_of
from mpretrain_tools.sweeps.runner import Place, Status
from mpretrain_tools.sweeps.slurm import LaunchError, Slurm
from mpretrain_tools.sweeps.stop import Stop, Stopped
from tested_program import PROGRAM, main


class Running(WithFakes):
    def test_all_are_run_once_and_remembered(self):
        cells = self.cells(1, 2, 3)
        runner = self.make()
        self.assertTrue(runner.run(cells))
        self.assertEqual([runner.result(cell).val_loss for cell in cells], [5.1, 5.2, 5.3])
        self.assertEqual(runner.result(cells[0]).version, "version 1")
        shutil.rmtree(self.work)
        again = self.make()
        self.assertTrue(again.run(cells))
        self.assertFalse(again.statuses, "nothing is left to run")

    def test_two_spellings_and_two_threads_are_one_run(self):
        self.plan(s1="slow")
        (one,) = self.cells(1)
        other = one.with_changes({"checkpoint.every_steps": 3})
        self.assertNotEqual(one, other)
        runner, ended = self.make(), []
        threads = [
            threading.Thread(target=lambda cell=cell: ended.append(runner.run([cell, one])))
            for cell in (one, other, one)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(
            (ended, self.starts(one), self.states(runner)), ([True] * 3, 1, ["finished"])
        )

    def test_two_runners_share_a_cell(self):
        self.plan(s1="slow")
        (cell,) = self.cells(1)
        runners = [self.make(), self.make()]
        threads = [threading.Thread(target=runner.run, args=([cell],)) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.starts(cell), 1)
        self.assertEqual([self.states(runner) for runner in runners], [["finished"]] * 2)

    def test_failures_are_told_by_their_last_words_and_stop_nobody(self):
        self.plan(s1="refuse", s2="silent", s3="killed", s4="diverge")
        cells = self.cells(1, 2, 3, 4, 5)
        runner = self.make()
        self.assertFalse(runner.run(cells))
        self.assertEqual(
            self.states(runner), ["failed", "failed", "failed", "diverged", "finished"]
        )
        errors = [status.error for status in runner.statuses.values()]
        self.assertEqual(errors[0], "mpretrain: error: --set optimizer.eps=x: not a number")
        self.assertIn("ended with status 7 without output", errors[1])
        self.assertIn(f"{cells[1].name(self.at)}.log", errors[1])
        self.assertEqual(errors[2], "killed by SIGKILL; last output: step 2")
        self.assertEqual(runner.result(cells[3]).val_loss, math.inf)
        self.assertFalse(runner.run(cells), "failed cells are not run again in the same session")
        self.assertEqual(self.starts(cells[2]), 1)

    def test_what_the_end_of_a_run_counts_as(self):
        place, spike = self.make().place, {"loss_z": 9.0, "grad_norm_z": 9.0}
        left_out = {"step": 3, "skipped": True}

        def state(changes, last, said=""):
            cell = self.cells(1)[0].with_changes({"train.steps": 4, **changes})
            shutil.rmtree(self.work, ignore_errors=True)
            place.directory(cell).mkdir(parents=True)
            records = ({"loss": 3.0, "tokens": 9, **record} for record in ({"step": 1}, last))
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (place.directory(cell) / "metrics.jsonl").write_text(lines, encoding="utf-8")
            place.log(cell).write_text(f"{running.VERSION}1\n{said}", encoding="utf-8")
            found = running.outcome(cell, place, "")
            return found and found.state

        self.assertEqual(state({}, left_out), "diverged")
        skip = {"train.nonfinite_policy": "skip_step"}
        self.assertIsNone(state(skip, left_out))
        ruined = "mpretrain: error: step 3: the last of 2 such steps (train.max_skipped_steps).\n"
        self.assertEqual(state(skip, left_out, ruined), "diverged")
        for policy, expected in (("skip_step", None), ("rollback", None), ("stop", "diverged")):
            found = state({"train.spike_policy": policy}, {**left_out, "spike": spike})
            self.assertEqual(found, expected, policy)
        gave_up = "mpretrain: error: step 3: after 3 rollbacks (train.max_rollbacks).\n"
        back = {"train.nonfinite_policy": "rollback"}
        self.assertIsNone(state(back, left_out))
        self.assertEqual(state(back, left_out, gave_up), "diverged")
        self.assertIsNone(state(back, left_out, f"{gave_up}{running.VERSION}2\n"))
        self.assertEqual(state({}, {"step": 4, "val_loss": 3.0}), "finished")
        self.assertEqual(state({}, {"step": 4, "val_loss": None}), "diverged")

    def test_a_cell_that_somebody_else_stops_has_not_failed_and_goes_on_at_the_next_start(self):
        self.plan(s1="stopped", s2="ok")
        cells, told = self.cells(1, 2), io.StringIO()
        runner = self.make(retries=1, report=progress.LiveTable("sweep", 2, told))
        self.assertFalse(runner.run(cells), "a result is missing")
        self.assertEqual(self.states(runner), ["stopped", "finished"])
        self.assertIn("stopped by a signal; the next start resumes", told.getvalue())
        self.assertNotIn("FAILED", told.getvalue())
        self.assertEqual(self.starts(cells[0]), 1, "who stopped it does not want it back")
        self.plan()
        self.assertTrue(self.make().run(cells))

    def test_last_words_are_those_of_the_last_start(self):
        self.plan(s1="killed")
        self.make().run(self.cells(1))
        self.plan(s1="silent")
        runner = self.make()
        runner.run(self.cells(1))
        self.assertIn("without output", runner.statuses[self.cells(1)[0]].error)

    def test_failed_cells_are_tried_again_at_the_next_start(self):
        self.plan(s1="once")
        cells = self.cells(1)
        self.assertFalse(self.make().run(cells))
        self.assertTrue(self.make().run(cells))
        self.assertEqual(self.starts(cells[0]), 2)

    def test_retries_are_counted(self):
        self.plan(s1="once", s2="silent")
        cells = self.cells(1, 2)
        runner = self.make(retries=2)
        self.assertFalse(runner.run(cells))
        self.assertEqual(self.states(runner), ["finished", "failed"])
        self.assertEqual([self.starts(cell) for cell in cells], [2, 3])

    def test_torn_metrics_are_no_result_and_a_result_that_nobody_collected_is_one(self):
        (cell,) = self.cells(1)
        runner = self.make()
        runner.run([cell])
        (self.directory / "runs.csv").unlink()
        collector = self.make()
        collector.version = "version 2"
        self.assertEqual(
            collector.result(cell).version, "version 1", "what it was run with, not who collects it"
        )
        (self.directory / "runs.csv").unlink()
        metrics = self.work / cell.name(self.at) / "metrics.jsonl"
        metrics.write_bytes(metrics.read_bytes()[:-10])
        self.assertIsNone(self.make().result(cell))

    def test_bugs_in_threads_are_raised(self):
        runner = self.make()
        with mock.patch.object(running, "outcome", side_effect=[None, ZeroDivisionError("a bug")]):
            self.refuses(["a bug"], runner.run, self.cells(1), kind=ZeroDivisionError)

    def test_a_display_that_fails_does_not_hide(self):
        def report(_):
            raise ZeroDivisionError("a bug")

        self.refuses(["a bug"], self.make(report=report).run, self.cells(1), kind=ZeroDivisionError)

    def test_a_file_system_error_is_of_its_cell(self):
        cells = self.cells(1, 2)
        self.work.mkdir()
        (self.work / f"{cells[0].name(self.at)}.log").mkdir()
        runner = self.make()
        self.assertFalse(runner.run(cells))
        self.assertEqual(self.states(runner), ["failed", "finished"])
        self.assertIn("Is a directory", runner.statuses[cells[0]].error)

    def test_a_program_that_is_not_there(self):
        self.refuses(
            ["--program nowhere", "no such executable"],
            self.make(launcher_of("local", "nowhere")).run,
            self.cells(1),
            kind=LaunchError,
        )

    def test_arguments_of_the_program(self):
        cell = Cell.of("pico_bf16.json", {"train.steps": 5, "data.shuffle": False})
        place = Place("p", self.at, self.work, threads=3)
        arguments = running.arguments(cell, place)
        for text in (
            "data.shuffle=false",
            "train.tokens=null",
            "device.threads=3",
            f"name={cell.name(self.at)}",
        ):
            self.assertIn(text, arguments)

    def test_a_part_of_the_held_out_text(self):
        place = Place("p", self.at, self.work, threads=1)
        whole = Cell.of("pico_bf16.json", {"train.steps": 5})
        part = whole.with_changes({"data.validation": "val_000001.bin"})
        for cell, name in ((whole, "val_*.bin"), (part, "val_000001.bin")):
            text = f"data.validation={pathlib.Path(self.at).resolve() / name}"
            self.assertIn(text, running.arguments(cell, place))
        self.assertNotEqual(whole.fingerprint(self.at), part.fingerprint(self.at))


# A program under mpirun.sh or slurm.sbatch: tells what signals it gets and ends at SIGUSR1 with
# $ENDS, at SIGTERM with 9.
UNDER_LAUNCHER = """#!/usr/bin/env bash
trap 'echo USR1 >>"$SAID"; if [ "$ENDS" != never ]; then exit "$ENDS"; fi' USR1
trap 'echo TERM >>"$SAID"; exit 9' TERM
echo started >>"$SAID"
while true; do sleep 0.02; done
"""


class LaunchScripts(WithFakes):
    def start(self, command, ends):
        program, self.said = self.directory / "mpretrain", self.directory / "said"
        program.write_text(UNDER_LAUNCHER, encoding="utf-8")
        program.chmod(0o755)
        self.said.write_text("", encoding="utf-8")
        environment = {
            **os.environ,
            "MPRETRAIN": str(program),
            "SAID": str(self.said),
            "ENDS": str(ends),
            "SLURM_JOB_ID": "17",
        }
        process = subprocess.Popen(["bash", *command], env=environment, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.heard("started")
        return process

    def heard(self, *words):
        wait_for(
            lambda: self.said.read_text(encoding="utf-8").split() == list(words),
            f"the program to say {words}",
        )

    def test_mpirun_ends_with_the_status_of_a_run_that_was_stopped(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            process = self.start([ROOT / "scripts/launch/mpirun.sh", "2"], 75)
            process.send_signal(number)
            self.assertEqual(process.wait(30), 75)
            self.heard("started", "USR1")

    def test_mpirun_passes_the_second_signal_on_as_one_that_kills(self):
        process = self.start([ROOT / "scripts/launch/mpirun.sh", "2"], "never")
        process.send_signal(signal.SIGINT)
        self.heard("started", "USR1")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 9)
        self.heard("started", "USR1", "TERM")

    def requeued(self):
        calls = self.slurm / "calls"
        return calls.exists() and "scontrol requeue 17" in calls.read_text(encoding="utf-8")

    def test_slurm_requeues_what_is_not_done_when_the_time_is_up(self):
        for status, requeued in ((75, True), (0, False), (1, False)):
            (self.slurm / "calls").unlink(missing_ok=True)
            process = self.start([ROOT / "scripts/launch/slurm.sbatch"], status)
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(process.wait(30), status)
            self.assertEqual(self.requeued(), requeued, status)

    def test_slurm_does_not_requeue_what_was_stopped_otherwise(self):
        process = self.start([ROOT / "scripts/launch/slurm.sbatch"], 75)
        subprocess.run(["pkill", "-USR1", "-P", str(process.pid)], check=True)
        self.assertEqual(process.wait(30), 75)
        self.assertFalse(self.requeued())


# A runner in a process of its own, which can be killed.
RUNNER = """
import pathlib, sys
from mpretrain_tools.sweeps.cell import Cell
from mpretrain_tools.sweeps.launch import launcher_of
from mpretrain_tools.sweeps.ledger import Ledger
from mpretrain_tools.sweeps.runner import Place, Runner
from mpretrain_tools.sweeps.stop import Stop
root, launcher, *seeds = sys.argv[1:]
root = pathlib.Path(root)
cells = [Cell.of("pico_bf16.json", {"train.steps": 5, "seed": int(seed)}) for seed in seeds]
place = Place("mpretrain", root / "tokens", root / "runs", jobs=2)
launcher = launcher_of(launcher, "mpretrain")
ledger = Ledger(root / "runs.csv")
runner = Runner(place, ledger, launcher, "version 1", stop=Stop().listen())
sys.exit(0 if runner.run(cells) else 1)
"""


class Stopping(WithFakes):
    def start(self, *seeds, launcher="local"):
        arguments = [self.directory, launcher, *seeds]
        command = [sys.executable, "-c", RUNNER, *map(str, arguments)]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def pids(self, *cells):
        """Of the programs, once they hang."""
        paths = [self.work / cell.name(self.at) / "starts" for cell in cells]
        metrics = [path.with_name("metrics.jsonl") for path in paths]
        wait_for(lambda: all(progress.Position(path).step == 2 for path in metrics), "the programs")
        return [int(path.read_text(encoding="utf-8").split()[-1]) for path in paths]

    def test_programs_save_and_end_and_a_later_start_goes_on(self):
        for number, launcher in (
            (signal.SIGINT, "local"),
            (signal.SIGTERM, "local"),
            (signal.SIGTERM, "mpirun:1"),
        ):
            with self.subTest(number=number, launcher=launcher):
                shutil.rmtree(self.work, ignore_errors=True)
                (self.directory / "runs.csv").unlink(missing_ok=True)
                self.plan(s1="hang", s2="hang")
                cells = self.cells(1, 2, 3)
                process = self.start(1, 2, 3, launcher=launcher)
                pids = self.pids(*cells[:2])
                process.send_signal(number)
                self.assertEqual(process.wait(30), 128 + number)
                said = process.stderr.read()
                self.assertIn("2 cells are saving a checkpoint", said)
                self.assertIn("same arguments to continue", said)
                self.assertFalse(any(map(is_running, pids)))
                saved = [
                    running.newest_checkpoint(self.work / cell.name(self.at)) for cell in cells
                ]
                self.assertEqual(saved, [2, 2, 0])
                self.plan()
                self.assertTrue(self.make().run(cells))

    def test_a_second_signal_kills(self):
        self.plan(s1="hang")
        process = self.start(1)
        (pid,) = self.pids(*self.cells(1))
        os.kill(pid, signal.SIGSTOP)  # a program that does not hear
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 128 + signal.SIGTERM)
        self.assertFalse(is_running(pid))

    def test_a_killed_runner_leaves_nobody_and_the_next_waits_for_who_is_still_saving(self):
        self.plan(s1="hang", s2="hang")
        cells = self.cells(1, 2)
        process = self.start(1, 2)
        pids = self.pids(*cells)
        os.kill(pids[0], signal.SIGSTOP)  # it takes its time
        process.kill()
        process.wait()
        wait_for(lambda: not is_running(pids[1]), "the program to end with its runner")
        self.plan()
        runner, ended = self.make(), []
        thread = threading.Thread(target=lambda: ended.append(runner.run(cells)))
        thread.start()
        wait_for(lambda: "elsewhere" in self.states(runner), "the runner to see the other process")
        self.assertEqual(self.starts(cells[0]), 1)
        os.kill(pids[0], signal.SIGCONT)
        thread.join(30)
        self.assertEqual((ended, self.starts(cells[0])), ([True], 2))

    def test_cells_in_a_queue_stay_there(self):
        (self.slurm / "hold").touch()
        process = self.start(1, 2, launcher="slurm")
        wait_for(lambda: len(list((self.slurm / "queue").iterdir())) == 2, "the array")
        wait_for(
            lambda: self.work.exists() and len(list(self.work.glob("*.log"))) == 2,
            "the runner to wait",
        )
        process.terminate()
        self.assertEqual(process.wait(30), 128 + signal.SIGTERM)
        self.assertIn("Slurm's queue", process.stderr.read())
        self.assertEqual(len(list((self.slurm / "queue").iterdir())), 2)
        (self.slurm / "hold").unlink()
        wait_for(
            lambda: not list((self.slurm / "queue").iterdir()), "the cells to end by themselves"
        )
        self.assertTrue(self.make().run(self.cells(1, 2)))
        self.assertEqual([self.starts(cell) for cell in self.cells(1, 2)], [1, 1])

    def test_stopped_runners_start_nothing(self):
        stop = Stop()
        stop.request()
        self.refuses([], self.make(stop=stop).run, self.cells(1), kind=Stopped)
        self.assertEqual(self.starts(self.cells(1)[0]), 0)


class Launchers(WithFakes):
    def test_what_is_no_launcher(self):
        for text in (
            "",
            "ssh",
            "mpirun",
            "mpirun:",
            "mpirun:0",
            "mpirun:two",
            "torchrun",
            "local:2",
            "slurm:",
        ):
            with self.subTest(text):
                self.refuses(
                    [f"--launcher {text}", "local, mpirun:RANKS, torchrun:RANKS, slurm"],
                    launcher_of,
                    text,
                    "mpretrain",
                    kind=SystemExit,
                )
        self.refuses(
            ["--no-wait", "slurm"],
            lambda: launcher_of("local", "mpretrain", wait=False),
            kind=SystemExit,
        )

    def test_mpirun_and_torchrun(self):
        for text, options in (("mpirun:2", "-np 2 "), ("torchrun:3", "--nproc-per-node 3 ")):
            with self.subTest(text):
                shutil.rmtree(self.work, ignore_errors=True)
                (self.directory / "runs.csv").unlink(missing_ok=True)
                runner = self.make(text, retries=1)
                self.plan(s1="once", s2="refuse")
                self.assertFalse(runner.run(self.cells(1, 2)))
                self.assertEqual(self.states(runner), ["finished", "failed"])
                self.assertIn("not a number", runner.statuses[self.cells(2)[0]].error)
                calls = self.calls(text.split(":")[0])
                for call in calls:
                    self.assertIn(options, call)
                    self.assertIn(f"{FAKES / 'mpretrain'} --config", call)
                self.assertEqual(len(calls), 4)

    def array(self, wait=True):
        launcher = Slurm("mpretrain", "", wait, poll_seconds=0.05)
        launcher.settle_seconds = 0
        return launcher

    def test_slurm_runs_all_that_wait_as_one_array(self):
        self.plan(s2="refuse", s3="silent")
        cells = self.cells(1, 2, 3, 4)
        self.make("local").run(cells[3:])
        runner = self.make(self.array(), jobs=2)
        self.assertFalse(runner.run(cells))
        (call,) = self.calls("sbatch")
        self.assertIn("--array=0-2%2", call)
        self.assertEqual(self.states(runner), ["finished", "failed", "failed"])
        errors = [status.error for status in runner.statuses.values()]
        self.assertEqual(errors[1], "mpretrain: error: --set optimizer.eps=x: not a number")
        self.assertIn("left Slurm's queue", errors[2])
        self.assertIn("threads", runner.result(cells[0]).machine)
        self.assertEqual(len(self.calls("srun")), 3)

    def test_slurm_retries_by_another_array(self):
        self.plan(s1="once")
        self.assertTrue(self.make(self.array(), retries=1).run(self.cells(1)))
        self.assertEqual(len(self.calls("sbatch")), 2)

    def test_slurm_without_waiting_and_collected_later(self):
        (self.slurm / "hold").touch()
        cells = self.cells(1, 2)
        first = self.make(self.array(wait=False))
        self.assertTrue(first.run(cells))
        self.assertEqual(self.states(first), ["queued"] * 2)
        second = self.make(self.array(wait=False))
        second.run(self.cells(1, 2, 3))
        self.assertEqual(
            [call.split("--array=")[1].split()[0] for call in self.calls("sbatch")],
            ["0-1%2", "0-0%2"],
            "what is in the queue is not submitted again",
        )
        (self.slurm / "hold").unlink()
        third = self.make(self.array())
        self.assertTrue(third.run(self.cells(1, 2, 3)))
        self.assertEqual(len(self.calls("sbatch")), 2)
        self.assertEqual([third.result(cell).val_loss for cell in cells], [5.1, 5.2])

    def test_slurm_that_answers_later_loses_no_cell(self):
        self.plan(s1="slow")
        (self.slurm / "hold").touch()
        runner = self.make(self.array())
        thread = threading.Thread(target=runner.run, args=(self.cells(1),))
        thread.start()
        wait_for(lambda: "running" in self.states(runner), "the cell")
        (self.slurm / "busy").touch()
        (self.slurm / "hold").unlink()
        time.sleep(0.3)
        self.assertEqual(self.states(runner), ["running"])
        (self.slurm / "busy").unlink()
        thread.join(30)
        self.assertEqual(self.states(runner), ["finished"])

    def test_slurm_that_refuses(self):
        (self.slurm / "refuse").write_text(
            "sbatch: error: invalid partition specified: gpux", encoding="utf-8"
        )
        with mock.patch.dict(os.environ, {"SBATCH_ARGUMENTS": "--partition=gpux"}):
            self.refuses(
                ["--partition=gpux", "invalid partition"],
                self.make(self.array()).run,
                self.cells(1),
                kind=LaunchError,
            )

    def test_slurm_that_is_not_there(self):
        with mock.patch.dict(os.environ, {"PATH": str(self.directory)}):
            launcher = Slurm(str(FAKES / "mpretrain"), "", True)
            self.refuses(["squeue", "PATH"], launcher.announce, [], self.work, 1, kind=LaunchError)

    def test_ranks_of_slurm(self):
        launcher = launcher_of("slurm:4", "mpretrain")
        launcher.poll_seconds = 0.05
        self.make(launcher).run(self.cells(1))
        self.assertIn("--ntasks-per-node=4 --gpus-per-node=4", self.calls("sbatch")[0])


# --- progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Progress(Directory):
    def statuses(self, running_steps, waiting=0):
        """Cells of 1000 steps: running ones at the given steps, then waiting ones."""
        self.at, found = self.tokens(), {}
        for index in range(len(running_steps) + waiting):
            cell = Cell.of("pico_bf16.json", {"train.steps": 1000, "seed": index})
            path = self.directory / f"{index}.jsonl"
            found[cell] = Status(path)
            if index < len(running_steps):
                found[cell].state = "running"
                records = [
                    {"step": running_steps[index], "tokens_per_second": 1234.0, "step_seconds": 0.5}
                ]
                path.write_text(
                    "".join(json.dumps(record) + "\n" for record in records) + '{"step": 999, "tor',
                    encoding="utf-8",
                )
        return found

    def positions(self, statuses):
        return {
            cell: progress.Position(status.metrics)
            for cell, status in statuses.items()
            if status.state == "running"
        }

    def test_position_of_torn_resumed_and_missing_metrics(self):
        path = self.directory / "m"
        self.assertEqual(progress.Position(path).step, 0)
        path.write_text(
            '{"step": 7, "step_seconds": 0.5}\n{"event": "resume", "step": 4}\n{"step": 5',
            encoding="utf-8",
        )
        position = progress.Position(path)
        self.assertEqual((position.step, position.step_seconds), (4, 0.5))
        self.assertTrue(math.isnan(position.tokens_per_second))
        path.write_text("x" * 100000 + '\n[3]\n{"step": 8}\n', encoding="utf-8")
        self.assertEqual(progress.Position(path).step, 8)

    def test_time_left_is_of_steps_dealt_to_jobs(self):
        # 500 and 900 steps left, at 0.5 s: 250 s and 450 s. Three that wait, 500 s each, go to
        # whoever is free: 250 + 500, 450 + 500, then 750 + 500.
        statuses = self.statuses([500, 100], waiting=3)
        positions = self.positions(statuses)
        self.assertAlmostEqual(progress.seconds_left(statuses, positions, 2), 1250)
        # A third job takes the first at once and two run to 500 and 750: max(450 + 500, 500, 750).
        self.assertAlmostEqual(progress.seconds_left(statuses, positions, 3), 950)

    def test_time_left_of_another_size_is_by_parameters_and_tokens(self):
        statuses = self.statuses([999])
        nano = Cell.of("nano_bf16.json", {"train.steps": 10})
        statuses[nano] = Status(self.directory / "none")
        # 1,840,256 parameters at 4096 tokens a step against 166,208 at 2048.
        expected = 0.5 + 10 * 0.5 * 1840256 * 4096 / (166208 * 2048)
        self.assertAlmostEqual(
            progress.seconds_left(statuses, self.positions(statuses), 1), expected
        )

    def test_nothing_measured_is_not_known(self):
        statuses = self.statuses([], waiting=2)
        self.assertEqual(progress.duration(progress.seconds_left(statuses, {}, 2)), "?")

    def test_finished_cells_count_all_their_time_and_only_the_steps_of_this_session(self):
        statuses = self.statuses([], waiting=2)
        first, second = statuses
        statuses[first] = Status(
            self.directory / "0",
            "finished",
            seconds=100,
            resumed_at=800,
            result=self.result("a", steps=1000),
        )
        self.assertAlmostEqual(progress.seconds_left(statuses, {}, 1), 1000 * 100 / 200)
        self.assertEqual(statuses[second].state, "waiting")

    def test_a_log_has_a_line_for_each_end_and_one_a_minute(self):
        statuses = self.statuses([500, 100], waiting=1)
        out = io.StringIO()
        table = progress.LiveTable("sweep", 2, out)
        with mock.patch.object(progress.time, "monotonic", side_effect=lambda: clock[0]):
            clock = [1000.0]
            for second in range(121):
                clock[0] = 1000.0 + second
                table(statuses)
            lines = out.getvalue().splitlines()
            self.assertEqual(len(lines), 3)
            self.assertIn("2 running, 1 waiting", lines[0])
            self.assertIn("about 12 min left", lines[0])
            cells = list(statuses)
            statuses[cells[0]].state = "finished"
            statuses[cells[0]].result = self.result("a", val_loss=4.25, steps=1000)
            statuses[cells[1]].state, statuses[cells[1]].error = "failed", "killed by SIGKILL"
            table(statuses)
            table(statuses)
        ends = out.getvalue().splitlines()[3:]
        self.assertEqual(len(ends), 2)
        self.assertIn("2/3 pico_bf16 seed 0: loss 4.2500", ends[0].replace("1/3", "2/3"))
        self.assertIn("FAILED: killed by SIGKILL", ends[1])

    def test_a_terminal_is_redrawn_in_place_and_never_overflows(self):
        statuses = self.statuses([100] * 40, waiting=400)
        for columns, rows in ((30, 10), (200, 24), (1, 1)):
            out = Terminal()
            table = progress.LiveTable("sweep", 2, out)
            size = os.terminal_size((columns, rows))
            with mock.patch.object(progress.shutil, "get_terminal_size", return_value=size):
                table(statuses)
                first = out.getvalue().splitlines()
                table.last -= 2
                table(statuses)
            self.assertTrue(all(len(line) < max(columns, 1) or columns == 1 for line in first))
            self.assertLessEqual(len(first), max(rows, 3))
            self.assertIn(f"\x1b[{len(first)}A\x1b[J", out.getvalue())
            if columns == 200:
                self.assertIn("40 running, 400 waiting", first[0])
                self.assertIn("100/1000", first[1])
                self.assertIn("and 20 more", first[-1])

    def test_labels_tell_what_is_not_the_same_for_all(self):
        cells = [
            Cell.of(
                "pico_bf16.json",
                {"train.steps": 5, "seed": 2, "optimizer.eps": eps, "optimizer.beta1": 0.5},
            )
            for eps in (1e-8, 1e-6)
        ]
        self.assertEqual(
            [progress.label(cell, progress.common_changes(cells)) for cell in cells],
            ["pico_bf16 seed 2 eps=1e-08", "pico_bf16 seed 2 eps=1e-06"],
        )
        self.assertEqual(progress.label(cells[0]), "pico_bf16 seed 2 beta1=0.5 eps=1e-08")
        self.assertEqual(
            progress.label(cells[0], progress.common_changes(cells[:1])), progress.label(cells[0])
        )

    def test_readers_that_leave_do_not_stop_the_cells(self):
        class Closed(io.StringIO):
            def write(self, _):
                raise BrokenPipeError

        progress.LiveTable("sweep", 2, Closed())(self.statuses([1]))


# --- a study of the program itself


class Killed(RealTokens):
    """However often and whenever a study is killed, it ends with the rows of one that was not."""

    STEPS = 120
    TIMING = ("tokens_per_second", "step_seconds", "wall_seconds", "date", "ended")

    def study(self, steps, refused):
        """Of two arms. The tokens of a step decide the budget of so many steps."""
        changes = {**self.TINY, "checkpoint.every_steps": max(1, steps // 8)}
        del changes["device.threads"]
        tiny = Cell.of("pico_bf16.json", changes)
        return {
            "set": changes,
            "arms": {
                "m_plus_adam": {"config": "pico_bf16.json"},
                "adamw": {"config": "pico_fp8_adamw.json", "set": refused},
            },
            "results": [
                {
                    "name": "main",
                    "arms": ["*"],
                    "budget": steps * 128 / 20 / running.parameters_of(tiny),
                    "seeds": [1, 2],
                }
            ],
        }

    def command(self, name, steps=STEPS, refused=None):
        file = self.directory / "small.json"
        file.write_text(json.dumps(self.study(steps, refused or {})), encoding="utf-8")
        output = self.directory / name
        place = ["--tokens", self.real_tokens, "--work", output / "runs", "--jobs", 2]
        command = [sys.executable, ROOT / "scripts/study.py", "run", file, *place]
        command += ["--ledger", output / "runs.csv", "--program", PROGRAM[0]]
        return [str(word) for word in command]

    def finish(self, name):
        done = subprocess.run(
            self.command(name), capture_output=True, text=True, timeout=300, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.table(name)

    def table(self, name):
        with open(self.directory / name / "runs.csv", newline="", encoding="utf-8") as file:
            return [
                {key: value for key, value in row.items() if key not in self.TIMING}
                for row in csv.DictReader(file)
            ]

    def steps(self, name):
        """Records that all cells have written so far."""
        runs = self.directory / name / "runs"
        return sum(len(path.read_bytes().splitlines()) for path in runs.glob("*/*/metrics.jsonl"))

    def programs(self, name):
        """Processes that have the name of the directory among their arguments."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.directory / name / "runs").encode() in path.read_bytes() and is_running(
                    path.parent.name
                ):
                    found.append(int(path.parent.name))
        return found

    def test_killed_at_random_moments(self):
        expected = self.finish("whole")
        self.assertEqual(len(expected), 4)
        draw = random.Random(time.time_ns())
        state = draw.getstate()[1][0]
        kills = 0
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            process = subprocess.Popen(
                self.command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = self.steps("killed") + draw.randrange(130)
            wait_for(
                lambda: self.steps("killed") >= until or process.poll() is not None, f"step {until}"
            )
            time.sleep(draw.random() / 10)
            if draw.random() < 0.3:  # a program of it, too
                for pid in self.programs("killed")[-1:]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            kills += process.poll() is None
            process.send_signal(number)
            process.wait()
        self.assertEqual(self.finish("killed"), expected, f"seed {state}")
        self.assertGreaterEqual(kills, 1)
        for log in (self.directory / "killed/runs").rglob("*.log"):
            self.assertNotIn("another run is writing", log.read_text(encoding="utf-8"))

    def test_a_config_that_the_program_refuses_fails_fast_with_its_words(self):
        command = self.command("refused", steps=2, refused={"model.hidden_size": 33})
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED: mpretrain: error:", done.stderr)
        self.assertIn("model.hidden_size", done.stderr)
        self.assertEqual(len(self.table("refused")), 2)


if __name__ == "__main__":
    main()
