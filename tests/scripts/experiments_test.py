#!/usr/bin/env python3
"""Tests of what scripts/mpretrain_tools/sweeps knows: cells, the ledger, and the search for
hyperparameters.

tests/scripts/experiments_test.py --program build/cpu/mpretrain [CLASS[.TEST] ...]
"""

import csv
import json
import math
import multiprocessing
import os
import random
import subprocess
import threading
import time
import unittest

from experiments_support import Directory, RealTokens, wait_for
from mpretrain_tools import repository
from mpretrain_tools.sweeps import configuration
from mpretrain_tools.sweeps import runner as running
from mpretrain_tools.sweeps.cell import Cell, canonical
from mpretrain_tools.sweeps.descent import Sweep as Swept
from mpretrain_tools.sweeps.descent import Trace, ablations, candidates, descend, sensitive_keys
from mpretrain_tools.sweeps.ledger import Ledger
from mpretrain_tools.sweeps.runner import Place, parameters_of, steps_of
from tested_program import PROGRAM, main

# --- what a cell is


class Meaning(RealTokens):
    """The scripts and the program mean the same by a configuration."""

    def trained(self, cell, work):
        """(config.json, last step) of the cell's run."""
        place = Place(PROGRAM[0], self.real_tokens, self.directory / work)
        done = subprocess.run(
            [PROGRAM[0], *running.arguments(cell, place)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((place.directory(cell) / "config.json").read_text(encoding="utf-8"))
        for incidental in ("name", "output_dir"):
            del config[incidental]
        return config, running.Run(place.directory(cell)).steps.keys()

    def test_a_merged_configuration_is_what_the_program_makes_of_the_file_and_its_includes(self):
        cases = {
            "pico_bf16_apollo_e.json": {"optimizer.apollo_e_rank": 2},
            "pico_nvfp4.json": {"schedule.warmup_fraction": 0.2},
            "nano_fp8_adamw.json": {"precision.fp8_scale_mode": "fp16"},
            "nano_bf16_kahan.json": {"optimizer.lr_additive": 1},
        }
        for file, changes in cases.items():
            with self.subTest(file):
                # 2.5 steps of 128 tokens, by the count of parameters.
                tiny = Cell.of(file, self.TINY, changes)
                cell = tiny.with_changes({"train.chinchilla": 2.5 * 128 / 20 / parameters_of(tiny)})
                config, steps = self.trained(cell, "included")
                self.assertEqual(max(steps), steps_of(cell))
                self.assertEqual(steps_of(cell), 3)
                flat = self.directory / f"flat_{file}"
                whole = {
                    key: value for key, value in cell.configuration().items() if key != "$schema"
                }
                flat.write_text(json.dumps(whole), encoding="utf-8")
                self.assertEqual(self.trained(Cell(str(flat)), "flat")[0], config)
                for key, value in cell.changes:
                    if value is not None:
                        self.assertEqual(configuration.get_key(config, key), value, key)

    def test_parameters_and_length_are_those_of_the_program(self):
        for file in (
            "pico_bf16.json",
            "nano_bf16.json",
            "60m_fp8.json",
            "350m_bf16_adamw.json",
            "1b_nvfp4.json",
        ):
            command = [PROGRAM[0], "plan", "--json", "--config", repository.CONFIGS / file]
            plan = subprocess.run(command, capture_output=True, check=True).stdout
            self.assertEqual(parameters_of(Cell(file)), json.loads(plan)["parameters"], file)


class Fingerprint(Directory):
    def setUp(self):
        super().setUp()
        self.at = self.tokens()
        self.base = Cell.of(
            "pico_bf16.json", {"train.chinchilla": 1, "seed": 1}, {"optimizer.eps": 1e-8}
        )

    def fingerprint(self, *changes):
        return self.base.with_changes(*changes).fingerprint(self.at)

    def test_numbers_are_the_same_however_they_are_spelled(self):
        plain = self.fingerprint()
        for change in (
            {"train.chinchilla": 1.0},
            {"seed": 1.0},
            {"optimizer.eps": 0.00000001},
            {"train.tokens": None},
            {"optimizer.beta1": 0.9},
        ):
            self.assertEqual(self.fingerprint(change), plain, change)

    def test_what_the_result_does_not_depend_on(self):
        plain = self.fingerprint()
        for change in (
            {"name": "x"},
            {"output_dir": "y"},
            {"device.threads": 7},
            {"checkpoint.every_steps": 3},
            {"log.every_steps": 5},
            {"distributed.sharding": "none"},
            {"data.train": "z"},
            {"eval.every_steps": 9},
        ):
            self.assertEqual(self.fingerprint(change), plain, change)
        self.assertEqual(self.base.fingerprint(self.tokens("elsewhere")), plain)

    def test_what_the_result_depends_on(self):
        seen = {self.fingerprint()}
        changes = (
            {"train.chinchilla": 2},
            {"train.steps": 100},
            {"seed": 2},
            {"optimizer.eps": 1.0000001e-8},
            {"optimizer.lr_additive": 1},
            {"model.hidden_size": 32},
            {"eval.tokens": 7},
            {"data.shuffle": False},
            {"data.validation": "val_000001.bin"},
            {"precision.weights": "fp32"},
            {"batch.tokens_per_step": 1024},
            {"distributed.gradient_reduce": "bf16"},
            {"device.bf16_dot": "amx_bf16"},
        )
        for change in changes:
            seen.add(self.fingerprint(change))
        seen.add(Cell("pico_bf16_adamw.json", self.base.changes).fingerprint(self.at))
        seen.add(self.base.fingerprint(self.tokens("other", shard="cc")))
        self.assertEqual(len(seen), len(changes) + 3)

    def test_true_is_not_one(self):
        self.assertNotEqual(json.dumps(canonical({"a": True})), json.dumps(canonical({"a": 1})))

    def test_one_length_replaces_another(self):
        cell = self.base.with_changes({"train.steps": 7})
        self.assertEqual((cell.value("train.chinchilla"), steps_of(cell)), (None, 7))

    def test_a_missing_manifest_is_named(self):
        self.refuses(
            [self.directory / "none" / "manifest.json", "mpretrain tokenize"],
            self.base.fingerprint,
            self.directory / "none",
        )


# --- the ledger


def write_for_ever(path, prefix):
    ledger = Ledger(path)
    for number in range(1 << 30):
        ledger.add(Directory.result(f"{prefix}{number}"))


class LedgerFile(Directory):
    def setUp(self):
        super().setUp()
        self.path = self.directory / "runs.csv"

    def test_what_is_added_is_read(self):
        result = self.result("a", val_loss=5.123456789012345, changes='x=1, "y"', wall_seconds=1.5)
        diverged = self.result("b", val_loss=math.inf, val_loss_family=math.inf, state="diverged")
        ledger = Ledger(self.path)
        ledger.add(result)
        ledger.add(diverged)
        again = Ledger(self.path)
        self.assertEqual(repr(again["a"]), repr(result))
        self.assertEqual(again["b"].val_loss, math.inf)
        self.assertEqual((again["b"].perplexity, again.get("c")), (math.inf, None))

    def test_several_writers_lose_nothing_and_killed_ones_leave_it_whole(self):
        writers = [
            multiprocessing.Process(target=write_for_ever, args=(self.path, prefix))
            for prefix in "abc"
        ]
        for writer in writers:
            writer.start()
        draw = random.Random(7)
        for writer in writers[:2]:
            seen = (
                len(self.path.read_text(encoding="utf-8").splitlines()) if self.path.exists() else 0
            )
            wait_for(
                lambda: self.path.exists() and len(Ledger(self.path).results) > seen + 10, "rows"
            )
            time.sleep(draw.random() / 20)
            writer.kill()
            writer.join()
        before = len([name for name in Ledger(self.path).results if name.startswith("c")])
        wait_for(lambda: f"c{before + 5}" in Ledger(self.path).results, "the writer that is left")
        writers[2].kill()
        writers[2].join()
        for prefix in "abc":
            numbers = sorted(
                int(name[1:]) for name in Ledger(self.path).results if name.startswith(prefix)
            )
            self.assertEqual(numbers, list(range(len(numbers))), "no row of a writer is missing")
        left = {path.name for path in self.directory.iterdir()}
        self.assertLessEqual(left, {"runs.csv", "runs.csv.lock", "runs.csv.tmp"})

    def test_threads_share_one(self):
        ledger = Ledger(self.path)
        threads = [
            threading.Thread(
                target=lambda n=n: [ledger.add(self.result(f"{n}_{i}")) for i in range(10)]
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(Ledger(self.path).results), 40)

    def test_a_file_without_the_last_column_is_read(self):
        Ledger(self.path).add(self.result("a", wall_seconds=3))
        with open(self.path, newline="", encoding="utf-8") as file:
            rows = [row[:-1] for row in csv.reader(file)]
        self.path.write_text("\n".join(map(",".join, rows)) + "\n", encoding="utf-8")
        self.assertTrue(math.isnan(Ledger(self.path)["a"].wall_seconds))

    def test_damage_is_named_by_file_and_line_and_nothing_is_written_over_it(self):
        Ledger(self.path).add(self.result("a"))
        Ledger(self.path).add(self.result("b", seed=2))
        header, first, second = self.path.read_text(encoding="utf-8").splitlines()
        cases = {
            f"{header}\n{first}\n{second[:20]}": ["runs.csv:3", "values"],
            f"{header}\n{first},7\n": ["runs.csv:2", "values"],
            f"{header}\n{first.replace('5.5', '5,5')}\n": ["runs.csv:2"],
            f"{header}\n{first.replace('5.5', 'x')}\n": [
                "runs.csv:2",
                "val_loss: 'x' is not a number",
            ],
            f"{header}\n{first.replace(',50,', ',1e9,')}\n": [
                "runs.csv:2",
                "tokens: '1e9' is not a whole number",
            ],
            f"{header}\n{first.replace('finished', 'done')}\n": [
                "runs.csv:2",
                "'done'",
                "finished or diverged",
            ],
            f"{header},more\n{first},7\n": ["runs.csv:1", "unknown column more"],
            f"{header.replace('val_loss,', '')}\n": ["runs.csv:1", "no column val_loss"],
        }
        ledger = Ledger(self.path)
        for text, parts in cases.items():
            with self.subTest(parts=parts):
                self.path.write_text(text, encoding="utf-8")
                self.refuses([self.path, *parts], Ledger, self.path)
                self.refuses([self.path, *parts], ledger.add, self.result("c"))
                self.assertEqual(self.path.read_text(encoding="utf-8"), text)


# --- descent


class Descent(unittest.TestCase):
    GRID = {"a": [1, 2, 3], "b": [0, 1]}
    START = {"a": 1, "b": 0}

    def bowl(self, points):
        """Lowest at a = 3, b = 1; the parts add."""
        self.asked += len(points)
        return [
            5 + {1: 0.5, 2: 0.1, 3: 0.0}[point["a"]] + {0: 0.2, 1: 0.0}[point["b"]]
            for point in points
        ]

    def setUp(self):
        self.asked = 0

    def test_finds_the_minimum_and_runs_no_point_twice(self):
        trace = descend(self.bowl, self.START, self.GRID, 100)
        self.assertEqual((trace.point, trace.finished), ({"a": 3, "b": 1}, "converged"))
        self.assertAlmostEqual(trace.loss, 5.0)
        # a at b = 0: 3 points; b at a = 3: one more; a again at b = 1: two more; b again: none.
        self.assertEqual((trace.runs, self.asked), (6, 6))
        self.assertEqual(self.START, {"a": 1, "b": 0}, "the start is left alone")

    def test_takes_only_what_gains_at_least_the_threshold(self):
        for gain, accepted in ((0.25, 2), (0.2499, None)):
            trace = descend(
                lambda points: [1 - gain * (point["a"] == 2) for point in points],
                {"a": 1},
                {"a": [1, 2]},
                100,
                threshold=0.25,
            )
            self.assertEqual(trace.sweeps[0].accepted, accepted, gain)
            self.assertEqual(trace.point, {"a": accepted or 1})

    def test_stops_before_a_sweep_that_would_take_more_runs_than_allowed(self):
        for allowed in range(1, 7):
            self.asked = 0
            trace = descend(self.bowl, self.START, self.GRID, allowed)
            self.assertLessEqual(self.asked, allowed)
            self.assertEqual(trace.finished, "converged" if allowed == 6 else "runs spent", allowed)
            self.assertEqual(trace.runs, self.asked)

    def test_ablations_of_a_converged_descent_are_complete_and_around_its_end(self):
        trace = descend(self.bowl, self.START, self.GRID, 100)
        found = ablations(trace)
        self.assertEqual(
            {key: [value for value, _ in table] for key, table in found.items()}, self.GRID
        )
        for key, table in found.items():
            for value, loss in table:
                self.assertAlmostEqual(loss, self.bowl([{**trace.point, key: value}])[0])

    def test_the_same_losses_give_the_same_trace_and_it_is_told_after_each_sweep(self):
        told = []
        first = descend(
            self.bowl,
            self.START,
            self.GRID,
            100,
            on_sweep=lambda trace: told.append(len(trace.sweeps)),
        )
        self.assertEqual(first, descend(self.bowl, self.START, self.GRID, 100))
        self.assertEqual(told, list(range(1, len(first.sweeps) + 1)))

    def test_points_that_diverge_are_never_taken(self):
        losses = {1: 5.0, 2: math.inf, 3: math.nan}
        trace = descend(
            lambda points: [losses[point["a"]] for point in points], {"a": 1}, {"a": [1, 2, 3]}, 100
        )
        self.assertEqual(trace.point, {"a": 1})
        out_of_it = descend(
            lambda points: [losses[point["a"]] for point in points], {"a": 2}, {"a": [1, 2, 3]}, 100
        )
        self.assertEqual(out_of_it.point, {"a": 1})

    def test_a_start_beside_the_grid_is_swept_with_it(self):
        self.assertEqual(candidates([1, 3], 2), [1, 2, 3])
        self.assertEqual(candidates([1, 3], 3), [1, 3])

    def test_sensitive_keys(self):
        def trace(**tables):
            point = dict.fromkeys(tables, 0)
            sweeps = [Swept(key, dict(point), losses) for key, losses in tables.items()]
            return Trace(point, {key: [0, 1] for key in tables}, 9, sweeps=sweeps, point=point)

        # x: best at 0 in one and at 1 in the other, by more than 0.1. y: 1 is within 0.1 of the
        # best in both. z: 0 is best in both. w is in one only.
        one = trace(
            x=[[0, 1.0], [1, 1.2]],
            y=[[0, 1.0], [1, 1.05]],
            z=[[0, 1.0], [1, 2.0]],
            w=[[0, 1.0], [1, 2.0]],
        )
        two = trace(x=[[0, 1.2], [1, 1.0]], y=[[0, 1.2], [1, 1.0]], z=[[0, 1.0], [1, 3.0]])
        self.assertEqual(sensitive_keys([one, two], threshold=0.1), ["x"])


if __name__ == "__main__":
    main()
