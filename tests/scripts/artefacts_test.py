#!/usr/bin/env python3
"""Tests of what the scripts of tables and figures make of results, from made-up runs: finished,
diverged, missing.

tests/scripts/artefacts_test.py [CLASS[.TEST] ...]
"""

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

from mpretrain_tools.reproduce import (
    apollo_table,
    architecture_table,
    branch_weighting,
    chinchilla_figure,
    lr_sensitivity,
    main_table,
    memory_table,
    runtime_table,
    seed_tables,
    toy_figures,
    tune,
    tuning_report,
    tuning_tables,
)
from mpretrain_tools.reproduce.artefact import Artefact
from mpretrain_tools.reproduce.rows import BY_KEY, MAIN, Row
from mpretrain_tools.sweeps.configuration import BadConfig
from mpretrain_tools.sweeps.descent import descend
from mpretrain_tools.sweeps.ledger import Ledger, Result
from tables import entries, line_with

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Place:
    """A directory with tokens, a ledger and a program, all made up."""

    def __init__(
        self, test, plan='{"parameters": 1000, "logical_bytes": {"optimizer_state": 4000}}'
    ):
        temporary = tempfile.TemporaryDirectory()
        test.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name)
        manifest = {"tokenizer": {"hash": "t"}, "splits": {"train": {"shards": [{"hash": "a"}]}}}
        (self.path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        self.program = self.path / "program"
        self.program.write_text(f"#!/bin/sh\necho '{plan}'\n", encoding="utf-8")
        self.program.chmod(0o755)

    def arguments(self, *more):
        return [
            "--report-only",
            "--tokens",
            str(self.path),
            "--output",
            str(self.path / "out"),
            "--work",
            str(self.path / "runs"),
            "--program",
            str(self.program),
            *more,
        ]

    def artefact(self, module, *more):
        return Artefact(
            "test", "A test.", self.arguments(*more), getattr(module, "add_arguments", None)
        )

    def enter(self, cell, loss, family=math.nan):
        """A finished run, diverged if its loss is infinite."""
        state = "finished" if math.isfinite(loss) else "diverged"
        Ledger(self.path / "out/runs.csv").add(
            Result(
                cell.fingerprint(self.path),
                cell.config,
                "",
                cell.seed,
                loss,
                family,
                10,
                1000,
                1.0,
                1.0,
                state,
                "version",
                "machine",
                "2026-01-01",
            )
        )


class MainTable(unittest.TestCase):
    def setUp(self):
        self.place = Place(self)
        self.artefact = self.place.artefact(main_table, "--seeds", "1", "2")
        self.cells = main_table.cells_of(self.artefact)

    def enter(self, row, *losses, **more):
        for cell, loss in zip(self.cells[BY_KEY[row]], losses):
            self.place.enter(cell, loss, **more)

    def test_finished_diverged_and_missing(self):
        self.enter("bf16_adamw", 3.0, 3.2)
        self.enter("bf16", 2.9, 3.0)
        self.enter("fp8_adamw", 3.0, math.inf)
        self.enter("fp8", 3.0)
        lines = self.table()
        self.assertEqual(
            line_with(lines, "BF16/BF16", "M+Adam"),
            [
                "BF16/BF16",
                "M+Adam",
                "2.9500 ± 0.0707",
                "2",
                "19.106",
                "13.93 %",
                "29.035",
                "2.78 %",
            ],
        )
        self.assertEqual(
            line_with(lines, "FP8/FP8", "AdamW")[2:6], ["diverged (1 of 2)", "2", "", ""]
        )
        self.assertEqual(line_with(lines, "FP8/FP8", "M+Adam")[2:6], ["3.0000", "1", "20.086", ""])
        self.assertEqual(
            line_with(lines, "NVFP4/FP8", "M+Adam")[2:],
            ["not run", "0", "", "", "30.948", "8.66 %"],
        )

    def test_every_comparison_has_its_test_and_none_leaves_silently(self):
        self.enter("bf16_adamw", 3.0, 3.2)
        self.enter("bf16", 2.9, 3.0)
        self.enter("fp8_adamw", 3.0, math.inf)
        self.enter("fp8", 3.0)
        self.enter("fp32_adamw", 2.95, 3.05)
        lines = main_table.comparisons(self.cells, self.losses(self.artefact))
        self.assertEqual(
            lines[0],
            "M+Adam is below AdamW in the mean in 2 of 2 regimes; a difference is shown"
            " (Holm-adjusted p below 0.05) in 0 of them; FP8/FP8: diverged: 0 runs, 1 of the"
            " other.",
        )
        self.assertEqual(
            line_with(lines, "BF16/BF16", "M+Adam")[2:],
            ["2", "-0.1500", "[-0.7853, +0.4853]", "0.2", "0.41", "no difference shown"],
        )
        self.assertEqual(line_with(lines, "FP8/FP8", "M+Adam")[-1], "diverged")
        self.assertEqual(line_with(lines, "NVFP4/FP8", "M+Adam")[3], "not run")
        self.assertEqual(line_with(lines, "AdamW, FP32/TF32")[1:3], ["2", "-0.0500"])

    def losses(self, artefact):
        return artefact.losses(main_table.HEADER, self.cells, main_table.label)

    def table(self):
        return main_table.table(self.artefact, self.cells, self.losses(self.artefact))

    def test_the_familys_average_has_a_column_only_if_reported(self):
        self.enter("bf16", 2.9)
        artefact = self.place.artefact(main_table)
        without = main_table.table(artefact, self.cells, self.losses(artefact))
        self.assertEqual(len(entries(without[0])), 8)
        self.enter("bf16_adamw", 3.0, family=2.97)
        lines = self.table()
        self.assertEqual(line_with(lines, "BF16/BF16", "AdamW")[2:4], ["3.0000", "2.9700"])
        self.assertEqual(line_with(lines, "BF16/BF16", "M+Adam")[2:4], ["2.9000", "not run"])

    def test_a_line_a_cell(self):
        self.enter("bf16", 2.9)
        self.losses(self.artefact)
        with open(self.artefact.path(".csv"), newline="", encoding="utf-8") as file:
            records = list(csv.DictReader(file))
        self.assertEqual(len(records), 2 * len(MAIN))
        self.assertEqual(
            [
                [record[name] for name in ("val_loss", "steps", "tokens", "state")]
                for record in records
                if record["row"] == "bf16"
            ],
            [["2.900000", "10", "1000", "finished"], ["", "", "", "not run"]],
        )
        self.assertEqual(len({record["fingerprint"] for record in records}), len(records))

    def test_the_papers_column_is_of_the_size_or_of_60m(self):
        self.assertEqual(main_table.paper_size("nano"), "60m")
        self.assertEqual(main_table.paper_entries(BY_KEY["nvfp4"], MAIN, 2), ["20.796", "16.62 %"])


class ChinchillaFigure(unittest.TestCase):
    def test_budgets_seeds_and_gaps(self):
        place = Place(self)
        artefact = place.artefact(
            chinchilla_figure, "--budget", "4", "--seeds", "1", "2", "3", "--seeds-beyond", "1"
        )
        cells = chinchilla_figure.cells_of(artefact)
        self.assertEqual([budget for _, budget in cells], [1] * 7 + [2] * 7 + [4] * 7)
        self.assertEqual([len(of_seeds) for of_seeds in cells.values()], [3] * 7 + [1] * 14)
        adamw, m_plus_adam = BY_KEY["fp8_adamw"], BY_KEY["fp8"]
        losses = {key: {} for key in cells}
        losses[adamw, 1], losses[m_plus_adam, 1] = {1: 3.0, 2: 3.0}, {1: 2.9, 2: 2.9}
        losses[adamw, 2], losses[m_plus_adam, 2] = {1: 2.5}, {1: math.inf}
        losses[adamw, 4], losses[m_plus_adam, 4] = {1: 2.0}, {1: 2.01}
        lines = chinchilla_figure.tables(losses)
        self.assertEqual(
            line_with(lines, "FP8/FP8", "+1.911 (9.52 %)")[2:],
            ["diverged", "-0.074 (-1.01 %)", "-0.11"],
        )
        self.assertEqual(
            line_with(lines, "BF16/BF16", "not run")[1:], ["not run", "not run", "not run", ""]
        )
        self.assertEqual(
            line_with(lines, "FP8/FP8", "M+Adam")[2:],
            ["18.174 (2.9000 ± 0.0000)", "diverged (1 of 1)", "7.463 (2.0100)"],
        )
        self.assertEqual(line_with(lines, "FP8/FP8", "AdamW", "1×")[3:5], ["2", "-0.1000"])
        self.assertEqual(line_with(lines, "FP8/FP8", "AdamW", "2×")[-1], "diverged")
        self.assertEqual(
            line_with(lines, "FP8/FP8", "AdamW", "4×")[3:],
            ["1", "+0.0100", "", "", "", "one seed, no test"],
        )
        self.assertIn("1 of 3 pairs with AdamW", lines[-1])
        self.assertIn("not in FP8/FP8 at 2×, FP8/FP8 at 4×", lines[-1])


class ApolloTable(unittest.TestCase):
    def test_bytes_that_differ_from_the_papers_end_in_an_error(self):
        place = Place(self)  # plans 4 bytes for everything
        lines = apollo_table.lines_of(extra=False)
        _, wrong = apollo_table.bytes_table(str(place.program), lines)
        self.assertEqual(wrong, [line.label for line in lines[1:]])
        more = Place(self, '{"parameters": 1000, "logical_bytes": {"optimizer_state": 4001}}')
        _, wrong = apollo_table.bytes_table(str(more.program), lines[:1])
        self.assertEqual(wrong, ["AdamW, BF16 state"])
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            self.assertEqual(apollo_table.main(place.arguments()), 1)
        self.assertIn("bytes of M+Adam, dense differ", errors.getvalue())

    def test_all_lines_of_the_paper_are_there(self):
        labels = [line.label for line in apollo_table.lines_of(extra=False)]
        self.assertEqual(sorted(labels), sorted(apollo_table.paper.APOLLO_E))
        self.assertEqual(len(apollo_table.lines_of(extra=True)), len(labels) + 3)

    def test_perplexities(self):
        losses = {line: {} for line in apollo_table.lines_of(extra=True)}
        losses[apollo_table.DENSE] = {1: 2.0}
        losses[apollo_table.APOLLO[1]] = {1: 2.01}
        lines = apollo_table.perplexity_table(losses, "pico")
        found = [entries(line) for line in lines if entries(line)[0] == "Apollo-E mini, r = 4"]
        self.assertEqual(
            [line[1:] for line in found],
            [["2.0100", "1", "7.463", "", ""], ["1", "+0.0100", "", "", "", "one seed, no test"]],
        )
        self.assertIn(
            ["Apollo-E channel, r = 8", "not run", "0", "", "21.997", "16.529"],
            [entries(line) for line in lines],
        )
        self.assertTrue(any(line.endswith("are the same.") for line in lines))


class Width(unittest.TestCase):
    def test_ends_are_interpolated(self):
        found = lr_sensitivity.width([(-1, 3.1), (0, 3.0), (1, 3.2)], within=0.05)
        self.assertAlmostEqual(found.value, 0.5 + 0.25, delta=1e-12)
        self.assertEqual(str(found), "0.75")

    def test_is_open_where_the_sweep_ends_first(self):
        self.assertEqual(
            str(lr_sensitivity.width([(1, 3.0), (0, 3.04), (-1, 3.14)], within=0.05)),
            "at least 1.10",
        )

    def test_nothing_is_won_towards_a_diverged_point(self):
        self.assertEqual(
            str(lr_sensitivity.width([(-1, 3.02), (0, 3.0), (1, math.inf)])), "at least 1.00"
        )

    def test_a_second_good_span_does_not_count(self):
        found = lr_sensitivity.width(
            [(-2, 3.1), (-1, 3.0), (0, 3.1), (1, 3.0), (2, 3.1)], within=0.05
        )
        self.assertEqual(str(found), "1.00")

    def test_of_nothing_finite_is_none(self):
        self.assertIsNone(lr_sensitivity.width([(0, math.inf)]))
        self.assertIsNone(lr_sensitivity.width([]))


class LearningRates(unittest.TestCase):
    def test_cells_are_the_tuned_rates_times_powers_of_two(self):
        artefact = Place(self).artefact(
            lr_sensitivity, "--points", "3", "--budget", "0.25", "--seeds", "1"
        )
        cells = lr_sensitivity.cells_of(artefact)
        both = lr_sensitivity.CURVES[1]
        tuned, up = cells[both, 0][0], cells[both, 1][0]
        for key in (lr_sensitivity.ETA_A, lr_sensitivity.ETA_M):
            self.assertEqual(up.value(key), 2 * tuned.value(key))
        self.assertEqual(tuned, artefact.cell(BY_KEY["bf16"], 1))  # shared with the other tables
        self.assertEqual(
            len({cell for of_seeds in cells.values() for cell in of_seeds}), 3 + 3 + 2 + 2
        )

    def test_an_even_number_of_points_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "--points 4: expected an odd number"):
            lr_sensitivity.indices(4)

    def test_no_width_of_an_unfinished_curve(self):
        losses = {(curve, index): {} for curve in lr_sensitivity.CURVES for index in (-1, 0, 1)}
        adamw = lr_sensitivity.CURVES[0]
        losses.update({(adamw, 0): {1: 3.0}, (adamw, 1): {1: 3.5}})
        tuned = {curve: {} for curve in lr_sensitivity.CURVES}
        self.assertEqual(
            line_with(lr_sensitivity.tables(losses, tuned), "AdamW, lr")[2:],
            ["not run", "3.0000", "3.5000", "not run"],
        )
        losses[adamw, -1] = {1: math.inf}
        self.assertEqual(
            line_with(lr_sensitivity.tables(losses, tuned), "AdamW, lr")[2:],
            ["diverged (1 of 1)", "3.0000", "3.5000", "0.10"],
        )


class BranchWeighting(unittest.TestCase):
    def losses(self, off, block):
        return {
            (way, factor): {1: loss}
            for way, losses in (("off", off), ("block", block))
            for factor, loss in zip(branch_weighting.FACTORS, losses)
        }

    def test_best_is_compared_with_best(self):
        lines = branch_weighting.tables(self.losses([3.2, 3.0, 3.1], [3.05, 3.1, 3.3]), 1e-3)
        self.assertEqual(
            [line_with(lines, factor)[2] for factor in ("0.5", "1", "2")],
            ["-0.1500", "+0.1000", "+0.2000"],
        )
        self.assertIn("(1 and 0.5 times the tuned one), block - off is +0.0500", lines[-1])
        self.assertIn("one seed, no test", lines[-1])

    def test_an_improvement_is_called_one_where_a_test_shows_it(self):
        losses = self.losses([3, 3, 3], [2.9, 3, 3])
        self.assertNotIn("improves on", branch_weighting.verdict(losses)[-1])
        for (way, _factor), of_seeds in losses.items():
            of_seeds.update(
                {2: of_seeds[1] + 0.2, 3: of_seeds[1] + (0.301 if way == "block" else 0.3)}
            )
        self.assertIn("improves on", branch_weighting.verdict(losses)[-1])

    def test_a_program_that_refuses_the_key_is_quoted(self):
        place = Place(self)
        place.program.write_text(
            "#!/bin/sh\necho 'unknown key; valid keys here: many' >&2\nexit 1\n", encoding="utf-8"
        )
        found = branch_weighting.refusal(str(place.program), "pico")
        self.assertRegex(found, "nvfp4_additive_scale=block: unknown key$")


class TunedRows(unittest.TestCase):
    def test_a_rule_is_that_of_the_configuration(self):
        for config, rule in (("bf16_lion", "lion"), ("bf16_sr", "m_plus_adam")):
            self.assertEqual(Row("BF16/BF16", "any", config).rule, rule)
        changed = Row("BF16/BF16", "any", "bf16", changes={"optimizer.rule": "madam"})
        self.assertEqual(changed.rule, "madam")
        with self.assertRaisesRegex(BadConfig, "pico_no_such.json"):
            _ = Row("BF16/BF16", "any", "no_such").rule

    def tuning(self, **rows):
        args = mock.Mock(budget=1, runs=None)
        made = tune.Tuning(mock.Mock(scale="pico", args=args, seeds=[1], output=pathlib.Path()))
        made.rows = {**made.rows, **rows}
        made.tune = lambda tasks, starts: {task.row: dict(starts[task.row]) for task in tasks}
        return made

    def test_rows_and_their_starts_are_those_of_grids_json(self):
        found = self.tuning().all()
        self.assertEqual(len(found), 11)
        self.assertEqual(found["nvfp4"], found["bf16"])
        self.assertEqual(found["fp32_adamw"], found["bf16_adamw"])
        few = self.tuning(first=["bf16_adamw"], again=[], rate=["bf16_adamw_sr"]).all()
        self.assertEqual(list(few), ["bf16_adamw", "bf16_adamw_sr"])

    def test_rows_that_cannot_be_tuned_are_refused(self):
        for rows, said in (
            ({"again": ["bf61"]}, "rows.again: found bf61, expected some of"),
            ({"first": ["bf16_adamw"]}, "rows.first: none with the rule of bf16_fp8"),
        ):
            with self.assertRaisesRegex(SystemExit, said):
                self.tuning(**rows).all()


class Tuning(unittest.TestCase):
    GRID = {"optimizer.lr_additive": [1, 2, 4], "optimizer.beta1": [0.8, 0.9]}

    def write(self, place, name, best, **more):
        """The trace of a descent on a made-up loss whose best rate is `best`."""

        def evaluate(points):
            return [
                3
                + 0.1 * abs(math.log2(point["optimizer.lr_additive"] / best))
                + point["optimizer.beta1"] / 1000
                for point in points
            ]

        trace = descend(
            evaluate, {"optimizer.lr_additive": 1, "optimizer.beta1": 0.9}, self.GRID, 20
        )
        found = {
            "row": "bf16_adamw",
            "phase": "first",
            "scale": "pico",
            "seed": 1,
            "train.chinchilla": 0.25,
            **vars(trace),
            "sweeps": [vars(sweep) for sweep in trace.sweeps],
            **more,
        }
        directory = place.path / "out/tuning"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        path.write_text(json.dumps(found), encoding="utf-8")
        return path

    def test_ablations_begin_with_the_best(self):
        lines = tuning_report.ablation_table(
            tuning_report.read(self.write(Place(self), "bf16_adamw", best=2)).trace
        )
        self.assertEqual(
            [entries(line) for line in lines],
            [
                ["η_a", "β1", "loss"],
                ["---"] * 3,
                ["2", "0.9", "**3.0009**"],
                ["1", "–", "3.1009"],
                ["4", "–", "3.1009"],
                ["–", "0.8", "3.0008"],
            ],
        )

    def test_sensitive_is_what_no_one_value_serves(self):
        place = Place(self)
        traces = [
            tuning_report.read(self.write(place, str(best), best=best)).trace for best in (1, 4)
        ]
        self.assertEqual(
            tuning_report.sensitivity(traces), (["optimizer.lr_additive"], ["optimizer.beta1"], [])
        )

    def test_what_was_not_ablated_at_the_end_is_undecided(self):
        place = Place(self)
        traces = [
            tuning_report.read(self.write(place, str(best), best=best)).trace for best in (1, 4)
        ]
        traces[1].sweeps = traces[1].sweeps[:1]
        self.assertEqual(
            tuning_report.sensitivity(traces), (["optimizer.lr_additive"], [], ["optimizer.beta1"])
        )
        self.assertIn(
            "Not ablated at this point, only at earlier ones: β1.",
            tuning_report.ablation_table(traces[1]),
        )

    def test_the_page_and_its_csv(self):
        place = Place(self)
        self.write(place, "bf16_adamw", best=2)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(tuning_tables.main(place.arguments()), 0)
        self.assertIn(
            "## AdamW, BF16/BF16, pico, 5 tokens a parameter",
            (place.path / "out/tuning_tables.md").read_text(encoding="utf-8"),
        )
        self.assertIn(
            "bf16_adamw,pico,0.25,1,optimizer.lr_additive,2,3.0009,1\n",
            (place.path / "out/tuning_tables.csv").read_text(encoding="utf-8"),
        )

    def test_what_is_no_trace_is_named(self):
        path = self.write(Place(self), "bad", best=2, row="no_such_row")
        with self.assertRaisesRegex(
            BadConfig, "bad.json: not a trace that tune.py writes: KeyError.'no_such_row'"
        ):
            tuning_report.read(path)
        path.write_text("{", encoding="utf-8")
        with self.assertRaisesRegex(BadConfig, "bad.json: not a trace"):
            tuning_report.read(path)


class MemoryTable(unittest.TestCase):
    PLAN = (
        '{"nominal_bytes_per_parameter": {"weights": 2.0, "optimizer_state": 6.0, "gradient": 2.0}}'
    )

    def test_a_figure_unlike_the_papers_is_named(self):
        artefact = Place(self, self.PLAN).artefact(memory_table)
        counted = {row: memory_table.nominal(artefact, row) for row in memory_table.ROWS}
        self.assertEqual(
            memory_table.differing(counted),
            ["AdamW, FP32 master, BF16 states", "M+Adam, FP8 master", "AdamW + SR, BF16 master"],
        )
        lines = memory_table.memory_table(counted)
        self.assertEqual(
            line_with(lines, "M+Adam, BF16 master")[1:],
            ["2", "6", "8", "10", "2 / 6 / 8 / 10", "as printed"],
        )
        self.assertEqual(
            line_with(lines, "M+Adam, FP8 master")[5:], ["1 / 6 / 7 / 9", "**differs**"]
        )

    def test_all_rows_of_the_paper_are_there(self):
        self.assertEqual(
            {row.printed for row in memory_table.ROWS if row.printed},
            set(memory_table.paper.MEMORY),
        )


class ArchitectureTable(unittest.TestCase):
    def setUp(self):
        plan = '{"parameters": 367969280, "steps": 60000}'
        self.found = architecture_table.architecture(str(Place(self, plan).program), "350m")

    def test_kinds_add_up_to_the_papers_count(self):
        self.assertEqual(architecture_table.differences(self.found), [])
        self.assertEqual(
            self.found.kinds,
            {"embedding": 32_768_000, "head": 32_768_000, "linear": 302_383_104, "norm": 50_176},
        )
        self.assertEqual(self.found.non_embedding, 302_433_280)

    def test_what_differs_is_named(self):
        shape = dataclasses.replace(self.found.shape, intermediate=2730)
        wrong = architecture_table.differences(
            dataclasses.replace(self.found, shape=shape, steps=56148)
        )
        self.assertEqual(
            wrong,
            [
                "parameters by kind add up to 367,526,912, the plan counts 367,969,280",
                "intermediate: 2,730, the paper has 2,736",
                "steps: 56,148, the paper has 60,000",
                "non-embedding: 301,990,912, the paper has 302,433,280",
            ],
        )


class FakeLauncher:
    """Writes the steps of a run, each of so many seconds."""

    def __init__(self, work, seconds):
        self.work, self.seconds, self.started = work, seconds, []

    def announce(self, tasks, work, jobs):
        pass

    def run(self, task, log, stop):
        self.started.append(task.name)
        directory = self.work / task.name
        directory.mkdir()
        lines = [
            json.dumps({"step": step + 1, "step_seconds": value})
            for step, value in enumerate(self.seconds)
        ]
        (directory / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
        return "ended with status 0"


class RuntimeTable(unittest.TestCase):
    ADAMW, M_PLUS_ADAM = BY_KEY["fp8_adamw"], BY_KEY["fp8"]

    def setUp(self):
        self.place = Place(self)
        self.runtime = self.new_runtime()

    def new_runtime(self, *more):
        arguments = ("--rounds", "2", "--steps", "4", "--skip", "1", "--attempts", "1", *more)
        return runtime_table.Runtime(self.place.artefact(runtime_table, *arguments))

    def enter(self, row, *seconds, others=0.0):
        for number, value in enumerate(seconds):
            key = self.runtime.key(row, number)
            self.runtime.rounds.add(runtime_table.Measured(*key, row.file("pico"), value, others))

    def test_overheads_are_of_the_same_round(self):
        self.enter(self.ADAMW, 1.0, 3.0)
        self.enter(self.M_PLUS_ADAM, 1.1, 3.6)
        found = self.runtime.overheads(self.M_PLUS_ADAM)
        self.assertEqual([round(value, 9) for value in found], [10.0, 20.0])
        line = line_with(
            runtime_table.runtime_table(self.new_runtime()), "FP8/FP8", "M+Adam"
        )  # read from the file
        self.assertEqual(
            line[2:],
            [
                "2.3500 [1.1000, 3.6000]",
                "871",
                "+15.0 [+10.0, +20.0]",
                "1h03m36s",
                "0.150",
                "+12.42",
            ],
        )
        self.assertEqual(
            line_with(runtime_table.runtime_table(self.runtime), "NVFP4/FP8", "M+Adam")[2:],
            ["not run", "", "not run", "", "", ""],
        )

    def test_another_program_or_number_of_threads_is_measured_again(self):
        self.enter(self.ADAMW, 1.0, 3.0)
        self.assertEqual(len(self.new_runtime().found(self.ADAMW)), 2)
        self.assertEqual(self.new_runtime("--threads", "77").found(self.ADAMW), {})
        self.place.program.write_text(
            self.place.program.read_text(encoding="utf-8") + "# other\n", encoding="utf-8"
        )
        self.assertEqual(self.new_runtime().found(self.ADAMW), {})

    def test_rounds_go_there_and_back_and_only_where_something_is_missing(self):
        self.runtime.launcher = FakeLauncher(self.runtime.place.work, [9.0, 1.0, 2.0, 3.0])
        self.enter(self.ADAMW, 1.0)
        with contextlib.redirect_stdout(io.StringIO()):
            self.runtime.measure()
        started = [name.split("_seed")[0] for name in self.runtime.launcher.started]
        there = [row.file("pico").removesuffix(".json") for row in runtime_table.ROWS]
        self.assertEqual(
            started, [name for name in there if name != "pico_fp8_adamw"] + there[::-1]
        )
        measured = self.runtime.found(self.M_PLUS_ADAM)
        self.assertEqual(
            [one.seconds for one in measured.values()], [2.0, 2.0]
        )  # the first step does not count
        self.runtime.measure()
        self.assertEqual(len(self.runtime.launcher.started), len(started))

    def test_a_run_that_breaks_off_is_no_measurement(self):
        self.runtime.launcher = FakeLauncher(self.runtime.place.work, [1.0, 1.0])
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.runtime.measure_row(self.ADAMW, 0)
        self.assertIn("AdamW, FP8/FP8: ended with status 0 without output", errors.getvalue())
        self.assertTrue(self.runtime.artefact.failed)
        self.assertEqual(self.runtime.found(self.ADAMW), {})

    def test_a_disturbed_run_is_measured_again_and_the_least_disturbed_one_counts(self):
        left = [(5.0, 0.9), (3.0, 0.3), (4.0, 0.4)]

        def measure_once(row, number):
            seconds, others = left.pop(0)
            self.runtime.rounds.add(
                runtime_table.Measured(
                    *self.runtime.key(row, number), row.file("pico"), seconds, others
                )
            )
            return self.runtime.found(row)[number]

        self.runtime.measure_once, self.runtime.attempts = measure_once, 3
        self.runtime.measure_row(self.ADAMW, 0)
        self.assertEqual(left, [])
        self.assertEqual(self.new_runtime().found(self.ADAMW)[0].seconds, 3.0)  # read from the file
        self.assertIn(
            "beside 1 of 1 runs others used up to 0.30 cores",
            runtime_table.remarks(self.runtime)[-1],
        )
        left[:] = [(2.0, 0.05), (9.0, 0.9)]
        self.runtime.measure_row(self.ADAMW, 0)
        self.assertEqual(left, [(9.0, 0.9)])
        self.assertEqual(self.runtime.found(self.ADAMW)[0].seconds, 2.0)

    def test_a_busy_machine_is_told_of(self):
        self.enter(self.ADAMW, 1.0, others=0.05)
        self.assertFalse(any("not idle" in line for line in runtime_table.remarks(self.runtime)))
        self.enter(self.M_PLUS_ADAM, 1.0, others=1.5)
        self.assertIn("up to 1.50 cores", runtime_table.remarks(self.runtime)[-1])

    def test_is_drawn_again_from_the_rounds_alone(self):
        self.enter(self.ADAMW, 1.0, 3.0)
        self.enter(self.M_PLUS_ADAM, 1.1, 3.6)
        page = self.place.path / "out/runtime_table.md"
        self.place.program.write_text(
            "#!/bin/sh\n[ $1 = --version ] && echo mpretrain 0.1.0\n", encoding="utf-8"
        )
        self.runtime.version, self.runtime.args.launcher = "mpretrain 0.1.0 0123abc", "local"
        lines = [
            *runtime_table.remarks(self.runtime),
            "",
            *runtime_table.runtime_table(self.runtime),
        ]
        head = [
            "# Runtime, pico",
            "",
            "    scripts/reproduce.py runtime_table --rounds 2 --steps 4 --skip 1",
            "",
            "M.",
            "",
        ]
        page.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
        before = page.read_text(encoding="utf-8")
        (self.place.path / "manifest.json").unlink()
        with (
            mock.patch.object(runtime_table, "draw", lambda runtime: None),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self.assertEqual(runtime_table.main(["--redraw", "--output", str(page.parent)]), 0)
        self.assertEqual(page.read_text(encoding="utf-8"), before)
        key = list(self.runtime.key(self.ADAMW, 0))
        key[1] = "another program"
        self.runtime.rounds.add(runtime_table.Measured(*key, "pico_fp8_adamw.json", 1.0, 0.0))
        with self.assertRaisesRegex(BadConfig, "runtime_rounds.csv: found rounds of 2 programs"):
            runtime_table.main(["--redraw", "--output", str(page.parent)])

    def test_durations_are_spelled_as_the_paper_does(self):
        self.assertEqual(
            [runtime_table.duration(value) for value in (21519.4, 59.6, 1337)],
            ["5h58m39s", "1m00s", "22m17s"],
        )


class FakeToy:
    """The summary and final losses of fits of three seeds in which every claim holds."""

    def __init__(self):
        loss = {
            "sign_flip": (1e-3, 1.0, 1e-3),
            "zero_revival": (2e-4, 1.0, 6e-4),
            "small": (1e-11, 3e-8, 1e-11),
            "large": (60.0, 0.03, 0.5),
            "mixed": (990.0, 0.01, 0.3),
        }
        self.regimes = list(loss)
        self.summary = {
            "shared_rate": 32.0,
            "regimes": {
                regime: {
                    rule: {"rate": 32.0, "sign_changes": 0, "zeros_left": 0}
                    for rule in toy_figures.RULES
                }
                for regime in loss
            },
        }
        self.ends = {
            (regime, rule, rate): [value] * 3
            for regime, values in loss.items()
            for rule, value in zip(toy_figures.RULES, values)
            for rate in (32.0, 64.0)
        }

    def rates(self, regime, rule):
        return [32.0, 64.0]

    def losses(self, regime, rule, rate):
        return self.ends.get((regime, rule, rate), [])

    def missed(self):
        return [claim.text for claim in toy_figures.claims(self) if not claim.exact]

    def found(self, regime):
        """{claim of factors: what was found at the rates of M+Adam}"""
        claims = {claim.text.split(":")[0]: claim.found for claim in toy_figures.claims(self)}
        return claims[regime]


class ToyClaims(unittest.TestCase):
    def setUp(self):
        self.toy = FakeToy()

    def test_hold(self):
        self.assertEqual(self.toy.missed(), [])
        self.assertEqual(self.toy.found("large"), ["120 times; holds for 3 of 3 seeds"] * 2)
        self.assertEqual(self.toy.found("zero revival")[0], "3 times; holds for 3 of 3 seeds")

    def test_a_sign_that_changed(self):
        self.toy.summary["regimes"]["large"]["multiplicative"]["sign_changes"] = 1
        self.assertEqual(self.toy.missed(), ["multiplicative steps change no sign"])

    def test_a_sign_that_changed_at_a_rate_that_is_not_the_best(self):
        self.toy.ends["sign_flip", "multiplicative", 64.0][1] = 0.99
        self.assertEqual(self.toy.missed(), ["multiplicative steps change no sign"])

    def test_a_zero_that_moved(self):
        self.toy.ends["zero_revival", "multiplicative", 64.0][2] = 0.9999
        self.assertEqual(self.toy.missed(), ["multiplicative steps leave zeros at 0"])

    def test_the_bounds_of_the_ratios(self):
        self.toy.ends["large", "additive", 32.0] = [0.5 * 99.9, 0.5 * 100.1, 60.0]
        self.toy.ends["small", "m_plus_adam", 32.0] = [1e-11, 1.001e-10, 0.999e-10]
        self.assertEqual(self.toy.found("large")[0], "99.9 to 120 times; holds for 2 of 3 seeds")
        self.assertEqual(self.toy.found("small")[0], "1 to 10 times; holds for 2 of 3 seeds")

    def test_a_diverged_seed_is_one_for_which_the_claim_does_not_hold(self):
        self.toy.ends["small", "m_plus_adam", 64.0] = [1e-11, math.nan, math.inf]
        self.toy.ends["large", "m_plus_adam", 64.0] = [math.nan] * 3
        self.assertEqual(self.toy.found("small")[1], "1 times; holds for 1 of 3 seeds, 2 diverged")
        self.assertEqual(self.toy.found("large")[1], "all seeds diverged")
        self.assertEqual(
            toy_figures.in_how_many([3.0], lambda ratio: True), "3 times; holds for 1 of 1 seed"
        )
        self.assertEqual(toy_figures.ranged([2.0, math.nan, 1.0]), "1.5 [1, 2], 1 of 3 diverged")

    def test_where_everything_diverged_nothing_is_claimed(self):
        self.toy.summary["shared_rate"] = None
        self.assertEqual(self.toy.found("large"), [])

    def test_seeds_have_to_follow_one_another(self):
        self.assertEqual(toy_figures.consecutive([3, 4]), {"seed": 3, "seeds": 2})
        with self.assertRaisesRegex(SystemExit, "--seeds 1 3: expected consecutive numbers"):
            toy_figures.consecutive([1, 3])


class Redraw(unittest.TestCase):
    """From a page and its CSV, after the tokens are gone."""

    def setUp(self):
        patch = mock.patch.object(
            main_table, "draw", lambda losses: None
        )  # tests need no matplotlib
        patch.start()
        self.addCleanup(patch.stop)
        self.place = Place(self)
        self.page = self.place.path / "out/main_table.md"
        artefact = self.place.artefact(main_table, "--seeds", "4", "5")
        for cell in (
            cell for of_seeds in main_table.cells_of(artefact).values() for cell in of_seeds
        ):
            self.place.enter(cell, 3.0 + 0.1 * cell.seed)
        with (
            mock.patch.object(
                sys, "argv", ["main_table.py", *self.place.arguments("--seeds", "4", "5")]
            ),
            self.silence(),
        ):
            main_table.main()
        (self.place.path / "manifest.json").unlink()
        self.before = {name: (self.page.with_suffix(name)).read_bytes() for name in (".md", ".csv")}

    @staticmethod
    def silence():
        return contextlib.redirect_stdout(io.StringIO())

    def redraw(self, *more):
        with self.silence():
            return main_table.main(["--redraw", "--output", str(self.page.parent), *more])

    def test_gives_the_same_page_and_leaves_the_csv(self):
        self.assertIn(b"22 of 22 runs", self.before[".md"])
        self.assertEqual(self.redraw(), 0)
        self.assertEqual(
            {name: self.page.with_suffix(name).read_bytes() for name in self.before}, self.before
        )

    def test_refuses_cells_that_are_in_one_place_only(self):
        with self.assertRaisesRegex(
            BadConfig, r"main_table.csv: FP32/TF32, AdamW, fp32_adamw, 5: found in the CSV alone"
        ):
            self.redraw("--seeds", "4")
        with self.assertRaisesRegex(BadConfig, "fp32_adamw, 6: found in the script's cells alone"):
            self.redraw("--seeds", "4", "5", "6")

    def test_needs_the_page(self):
        self.page.unlink()
        with self.assertRaisesRegex(BadConfig, "main_table.md: No such file"):
            self.redraw()


class CommittedPages(unittest.TestCase):
    """docs/results/pico follows from its CSVs and notes: who changes one writes the page again."""

    PAGES = ROOT / "docs/results/pico"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.copy = pathlib.Path(temporary.name) / "docs/results/pico"
        shutil.copytree(self.PAGES, self.copy, ignore=shutil.ignore_patterns("*.png", "*.pdf"))
        os.chdir(temporary.name)

    def check(self, name):
        same = (self.copy / f"{name}.md").read_text(encoding="utf-8") == (
            self.PAGES / f"{name}.md"
        ).read_text(encoding="utf-8")
        self.assertTrue(
            same,
            f"{name}.md is not what its script writes; see --redraw in scripts/reproduce/README.md",
        )

    def test_what_can_be_drawn_again_is_as_committed(self):
        for module in (
            main_table,
            chinchilla_figure,
            lr_sensitivity,
            branch_weighting,
            runtime_table,
            tuning_tables,
        ):
            with (
                self.subTest(module.__name__.rpartition(".")[2]),
                mock.patch.object(module, "draw", lambda *_: "a figure", create=True),
                mock.patch.object(Artefact, "write_figure", lambda *_: None),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                self.assertEqual(module.main(["--redraw", "--output", "docs/results/pico"]), 0)
                self.check(module.__name__.rpartition(".")[2])

    def test_pages_of_recorded_runs_are_as_committed(self):
        with contextlib.redirect_stdout(io.StringIO()):
            seed_tables.main([])
        for page in seed_tables.pages():
            self.check(page.name)

    def test_notes_are_in_their_pages(self):
        for notes in self.PAGES.glob("*.notes.md"):
            page = notes.with_name(notes.name.replace(".notes", ""))
            self.assertIn(
                notes.read_text(encoding="utf-8").strip(),
                page.read_text(encoding="utf-8"),
                page.name,
            )


class NothingFinished(unittest.TestCase):
    def test_every_script_writes_what_is_not_run(self):
        for module in (
            main_table,
            chinchilla_figure,
            lr_sensitivity,
            branch_weighting,
            runtime_table,
        ):
            with self.subTest(module.__name__.rpartition(".")[2]):
                place = Place(self)
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(module.main(place.arguments()), 0)
                text = (place.path / f"out/{module.__name__.rpartition('.')[2]}.md").read_text(
                    encoding="utf-8"
                )
                if module != runtime_table:  # which has no cells of the ledger
                    self.assertIn("No cell is finished.", text)
                self.assertIn("not run", text)
                self.assertTrue(
                    (place.path / f"out/{module.__name__.rpartition('.')[2]}.csv").exists()
                )


if __name__ == "__main__":
    unittest.main()
