#!/usr/bin/env python3
"""Tests of scripts/launch/local.sh with a program that stands in for mpretrain.

    tests/scripts/local_launch_test.py [CLASS[.TEST] ...]

Each rank writes its environment into a file, then does what the argument after its number says:
ends with a status, or waits for a signal and tells which came.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LOCAL = pathlib.Path(__file__).resolve().parents[2] / "scripts/launch/local.sh"
PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
here, plan = pathlib.Path(sys.argv[1]), sys.argv[2:]
rank = int(os.environ["RANK"])
what = plan[rank]
def ended(number, _):
    (here / f"signal_{{rank}}").write_text(signal.Signals(number).name)
    if what != "deaf":
        sys.exit(0)
for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), ended)
part = here / f"part_{{rank}}"
part.write_text(json.dumps(dict(os.environ)))
part.rename(here / f"rank_{{rank}}")
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if what in ("wait", "deaf"):
    while True:
        time.sleep(60)
while len(list(here.glob("rank_*"))) < len(plan):  # so that all are there when one ends
    time.sleep(0.01)
sys.exit(int(what))
"""


class LocalLaunch(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="local_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.program = self.directory / "program"
        self.program.write_text(PROGRAM, encoding="utf-8")
        self.program.chmod(0o755)

    def start(self, *plan, ranks=None, **variables):
        environment = {**os.environ, "MPRETRAIN": str(self.program), **variables}
        command = [str(LOCAL), str(ranks or len(plan)), str(self.directory), *plan]
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def finish(self, *plan, **more):
        process = self.start(*plan, **more)
        _, said = process.communicate(timeout=60)
        return process.returncode, said

    def environments(self, ranks):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [self.directory / f"rank_{rank}" for rank in range(ranks)]
            if all(path.exists() for path in found):
                return [json.loads(path.read_text(encoding="utf-8")) for path in found]
            time.sleep(0.01)
        raise AssertionError("the ranks did not begin")

    def signals(self, ranks):
        return [
            (self.directory / f"signal_{rank}").read_text(encoding="utf-8") for rank in range(ranks)
        ]

    def test_every_rank_gets_what_torchrun_sets(self):
        self.assertEqual(self.finish("0", "0", "0"), (0, ""))
        found = self.environments(3)
        for rank, environment in enumerate(found):
            self.assertEqual(
                [
                    environment[name]
                    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
                ],
                [str(rank), str(rank), "3", "3"],
            )
            self.assertEqual(environment["MASTER_ADDR"], "127.0.0.1")
            self.assertGreaterEqual(int(environment["OMP_NUM_THREADS"]), 1)
        for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"):
            self.assertEqual(len({environment[name] for environment in found}), 1)

    def test_a_port_that_is_set_stays(self):
        self.finish("0", MASTER_PORT="12345")
        self.assertEqual(self.environments(1)[0]["MASTER_PORT"], "12345")

    def test_several_machines_number_their_ranks_on(self):
        meeting = {"MASTER_ADDR": "first.machine", "MASTER_PORT": "29500", "RUN_ID": "7"}
        started = [
            self.start("0", "0", "0", "0", ranks=2, NNODES="2", NODE_RANK=node, **meeting)
            for node in ("0", "1")
        ]
        self.assertEqual([process.wait(timeout=60) for process in started], [0, 0])
        found = self.environments(4)
        for rank, environment in enumerate(found):
            self.assertEqual(
                [
                    environment[name]
                    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
                ],
                [str(rank), str(rank % 2), "4", "2"],
            )
            self.assertEqual(environment["MASTER_ADDR"], "first.machine")
            self.assertEqual(environment["MASTER_PORT"], "29500")
            self.assertEqual(environment["TORCHELASTIC_RUN_ID"], "local 7")

    def test_refuses_machines_that_are_not_counted_or_do_not_meet(self):
        meeting = {"MASTER_ADDR": "first.machine", "MASTER_PORT": "29500"}
        for variables, part in (
            ({"NNODES": "0"}, "NNODES=0: expected a number of machines"),
            ({"NNODES": "2", "NODE_RANK": "2", **meeting}, "machines count from 0 to 1"),
            ({"NODE_RANK": "1"}, "NODE_RANK=1 of NNODES=1"),
            ({"NNODES": "2", "NODE_RANK": "first", **meeting}, "NODE_RANK=first of NNODES=2"),
            ({"NNODES": "2", "MASTER_ADDR": "first.machine"}, "need an address to meet at"),
            ({"NNODES": "2", "MASTER_PORT": "29500"}, "need an address to meet at"),
        ):
            with self.subTest(variables=variables):
                code, said = self.finish("0", **variables)
                self.assertEqual(code, 1)
                self.assertIn(part, said)

    def test_signals_go_to_all_ranks(self):
        for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
            with self.subTest(signal=name):
                process = self.start("wait", "wait", "wait")
                self.environments(3)
                process.send_signal(getattr(signal, name))
                self.assertEqual(process.wait(timeout=60), 0)
                self.assertEqual(self.signals(3), [name] * 3)
                for path in self.directory.glob("*_[0-9]"):
                    path.unlink()

    def test_a_keyboard_interrupt_reaches_each_rank_once(self):
        process = self.start("wait", "wait")
        self.environments(2)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the script's whole group
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertEqual(self.signals(2), ["SIGINT"] * 2)

    def test_a_rank_that_fails_ends_the_others_and_its_status_counts(self):
        code, said = self.finish("wait", "7", "wait")
        self.assertEqual(code, 7)
        self.assertIn("rank 1 ended with status 7", said)
        self.assertEqual(
            [(self.directory / f"signal_{rank}").read_text(encoding="utf-8") for rank in (0, 2)],
            ["SIGTERM"] * 2,
        )

    def test_a_rank_that_is_killed_fails(self):
        self.assertEqual(self.finish("killed", "wait")[0], 128 + signal.SIGKILL)

    def test_refuses_what_is_no_number_of_ranks(self):
        for ranks in ("0", "-1", "two", "--config"):
            code, said = self.finish("0", ranks=ranks)
            self.assertEqual(code, 1)
            self.assertIn(f"the first argument is the number of ranks, not '{ranks}'", said)

    def test_names_a_program_that_is_not_there(self):
        code, said = self.finish("0", MPRETRAIN="/no/such/program")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/program does not exist", said)


if __name__ == "__main__":
    unittest.main()
