#!/usr/bin/env python3
"""Tests of scripts/mpretrain_tools/study: the file of a study, its search, ledger, statistics and
pages.

    PYTHONPATH=scripts tests/scripts/study_test.py [CLASS[.TEST] ...]
"""

import contextlib
import dataclasses
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from mpretrain_tools.reproduce import student, style
from mpretrain_tools.study import (
    arms,
    check,
    figures,
    hypotheses,
    program,
    protocol,
    provenance,
    rank_tests,
    reader,
    report,
    results_page,
    rows,
    run,
    search,
    sobol,
    updates,
)
from mpretrain_tools.study.design import Comparison
from mpretrain_tools.study.findings import Findings
from mpretrain_tools.study.knobs import Knob, settings
from mpretrain_tools.study.known import Known
from mpretrain_tools.study.results_page import ResultsPage
from mpretrain_tools.study.sampler import Space
from mpretrain_tools.study.tuning_page import TuningPage
from mpretrain_tools.sweeps.configuration import BadConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests/scripts/fakes"
RATE, SECOND = "optimizer.lr_additive", "optimizer.lr_multiplicative"


def of_study(**changes):
    """A study's file: two optimizers in two formats, tuned at 4 points."""
    return {
        "scale": "pico",
        "axes": {
            "optimizer": {
                "adamw": {
                    "config": "{scale}_{format}_adamw.json",
                    "label": "AdamW",
                    "knobs": {RATE: {"low": 1e-3, "high": 1.6e-2}},
                },
                "madam": {
                    "config": "{scale}_{format}.json",
                    "label": "M+Adam",
                    "knobs": {
                        RATE: {"low": 1e-3, "high": 1.6e-2},
                        SECOND: {"ratio_of": RATE, "low": 0.125, "high": 1, "limits": [None, 1]},
                    },
                },
            },
            "format": {"bf16": {"label": "BF16"}, "fp8": {"label": "FP8"}},
        },
        "arms": {"{optimizer}_{format}": {}},
        "tuning": [
            {
                "name": "rates",
                "arms": ["*"],
                "seed": 100,
                "rungs": [{"points": 4, "budget": 0.25}, {"keep": 2, "budget": 1}],
            }
        ],
        "results": [{"name": "main", "arms": "*", "budget": 1, "seeds": 3}],
        "comparisons": [{"name": "gain, {format}", "arms": ["madam_{format}", "adamw_{format}"]}],
        **changes,
    }


def places(value, prefix=()):
    """Keys of all values within lists and objects."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*prefix, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*prefix, key))


def check_all(study):
    list(check.described(study))
    return search.walk(study, lambda _, labelled: [None] * len(labelled))


class WithStudy(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="study_"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.path = self.directory / "study.json"

    def write(self, found=None, **changes):
        self.path.write_text(json.dumps(found or of_study(**changes)), encoding="utf-8")
        return self.path

    def read(self, found=None, **changes):
        return reader.read(self.write(found, **changes))

    def row(self, cell, loss, **changes):
        return rows.Row(
            **{
                "fingerprint": "f" + cell.identity(),
                "config": cell.config,
                "changes": cell.described_changes(),
                "seed": cell.seed,
                "val_loss": loss,
                "val_loss_family": math.nan,
                "steps": 10,
                "tokens": 100,
                "tokens_per_second": 10.0,
                "step_seconds": 0.1,
                "state": "finished" if math.isfinite(loss) else "diverged",
                "version": "v",
                "machine": "m",
                "date": "2026-01-01",
                "wall_seconds": 1.0,
                "cell": cell.identity(),
                "corpus": "c" * 16,
                "program": "p" * 16,
                "protocol": "",
                "ended": "2026-01-01T00:00:00Z",
                "train_loss": 3.0,
                "curve": '{"step":[5,10],"train":[4,3]}',
                **changes,
            }
        )


class Runs:
    """Stands in for a program: losses by a function, remembered in a ledger, up to so many."""

    def __init__(self, test, study, loss, most=10**9):
        self.test, self.study, self.loss, self.most = test, study, loss, most
        self.known, self.count = Known(study), 0

    def __call__(self, part, labelled):
        for arm, cell in labelled:
            if self.known.get(cell) is None:
                if self.count == self.most:
                    raise KeyboardInterrupt
                self.count += 1
                self.known.ledger.add(self.test.row(cell, self.loss(part, arm, cell)))
        self.known.read()
        return [self.known.get(cell) for _, cell in labelled]


def bowl(best):
    """A loss with its lowest point at a rate."""
    return lambda part, arm, cell: 3 + math.log(cell.value(RATE) / best) ** 2


# --- points


class Sobol(unittest.TestCase):
    # 16 times the first 16 points in 8 dimensions: Joe and Kuo's numbers, as scipy 1.10.1 has them.
    KNOWN = """
         0  0  0  0  0  0  0  0 |  8  8  8  8  8  8  8  8 | 12  4  4  4 12 12  4 12
         4 12 12 12  4  4 12  4 |  6  6 10 14  6  2  6 14 | 14 14  2  6 14 10 14  6
        10  2 14 10 10 14  2  2 |  2 10  6  2  2  6 10 10 |  3  5 15  7  9  5  7 15
        11 13  7 15  1 13 15  7 | 15  1 11  3  5  9  3  3 |  7  9  3 11 13  1 11 11
         5  3  5  9 15  7  1  1 | 13 11 13  1  7 15  9  9 |  9  7  1 13  3 11  5 13
         1 15  9  5 11  3 13  5
    """

    def test_the_first_points_are_the_published_ones(self):
        numbers = list(map(int, self.KNOWN.replace("|", " ").split()))
        for index in range(16):
            known = [number / 16 for number in numbers[8 * index : 8 * index + 8]]
            self.assertEqual(sobol.point(index, 8), known, index)

    def test_the_first_dimension_is_van_der_corput_s_and_the_second_pascal_s_triangle(self):
        for index in range(64):
            gray = index ^ (index >> 1)
            mirrored = sum((gray >> bit & 1) << (5 - bit) for bit in range(6)) / 64
            self.assertEqual(sobol.point(index, 1), [mirrored])
        # x + 1 over GF(2): m_k = m_(k-1) ^ 2 m_(k-1), so 1, 3, 5, 15, 17, 51
        self.assertEqual(
            [number >> (31 - bit) for bit, number in enumerate(sobol.TABLE[1][:6])],
            [1, 3, 5, 15, 17, 51],
        )

    def test_every_dimension_has_a_point_in_every_share_of_a_power_of_two(self):
        for dimension in range(8):
            found = {int(sobol.point(index, 8)[dimension] * 256) for index in range(256)}
            self.assertEqual(len(found), 256, dimension)

    def test_a_shift_is_the_seed_s_and_keeps_the_distances(self):
        self.assertEqual(sobol.shifted(5, 3, 1), sobol.shifted(5, 3, 1))
        self.assertNotEqual(sobol.shifted(5, 3, 1), sobol.shifted(5, 3, 2))
        for plain, a, b in zip(sobol.point(1, 3), sobol.shifted(0, 3, 1), sobol.shifted(1, 3, 1)):
            self.assertAlmostEqual((b - a - plain) % 1, 0)


class Knobs(unittest.TestCase):
    def test_a_log_knob_is_even_in_the_logarithm(self):
        knob = Knob("k", 1e-3, 1e-1)
        self.assertEqual([knob.at(u) for u in (0, 0.5, 1)], [1e-3, 1e-2, 1e-1])
        self.assertAlmostEqual(knob.place(1e-2), 0.5)

    def test_edges_are_next_to_the_ends(self):
        knob = Knob("k", 1.0, 2.0, "linear")
        found = [knob.edge(value, 0.1) for value in (1.05, 1.5, 1.95)]
        self.assertEqual(found, ["low", "", "high"])
        grid = Knob("k", 1e-3, 8e-3, step=2.0)
        self.assertEqual(grid.grid(), (1e-3, 2e-3, 4e-3, 8e-3))
        self.assertEqual([grid.edge(v, 0.1) for v in grid.grid()], ["low", "", "", "high"])

    def test_widening_goes_on_at_one_side_up_to_the_limit(self):
        knob = Knob("k", 1e-3, 1e-2, most=1.5e-2)
        self.assertEqual(knob.widened("low", 4).low, 2.5e-4)
        self.assertEqual(knob.widened("high", 4).high, 1.5e-2)
        limited = Knob("k", 0.125, 1.0, most=1.0)
        self.assertIs(limited.widened("high", 4), limited)
        self.assertEqual(Knob("k", 0.0, 0.2, "linear").widened("high", 2).high, 0.4)

    def test_a_widened_grid_keeps_its_values(self):
        knob = Knob("k", 1e-3, 1e-2, count=4)
        wider = knob.widened("low", 2)
        self.assertEqual(wider.grid()[1:], knob.grid())
        self.assertEqual(wider.widened("high", 5).grid()[:5], wider.grid())

    def test_a_ratio_is_of_the_knob_or_of_the_configuration(self):
        ratio = Knob(SECOND, 0.1, 1.0, ratio_of=RATE)
        found = settings({RATE: 4e-3, SECOND: 0.5}, [Knob(RATE, 1e-3, 1e-2), ratio], {}.get)
        self.assertEqual(found, {RATE: 4e-3, SECOND: 2e-3})
        self.assertEqual(settings({SECOND: 0.5}, [ratio], lambda _: 2e-3), {SECOND: 1e-3})
        with self.assertRaisesRegex(BadConfig, "ratio_of optimizer.lr_additive: found nothing"):
            settings({SECOND: 0.5}, [ratio], lambda _: None)

    def test_points_outside_the_old_range_only(self):
        for sampler in ("sobol", "random"):
            space = Space([Knob("a", 1.0, 2.0), Knob("b", 1.0, 2.0)], sampler, 0)
            first = space.first(4)
            moved = space.widen({"a": "high"}, 2)
            more = space.more(3, first[0], moved)
            self.assertEqual(len(more), 3)
            self.assertTrue(all(2 < point["a"] <= 4 and 1 <= point["b"] <= 2 for point in more))

    def test_a_grid_widens_next_to_the_best_or_is_refined(self):
        space = Space([Knob("a", 1.0, 4.0, step=2.0), Knob("b", values=(0, 1))], "grid", 0)
        self.assertEqual(len(space.first(0)), 6)
        moved = space.widen({"a": "high"}, 2)
        self.assertEqual(space.more(1, {"a": 4.0, "b": 1}, moved), [{"a": 8.0, "b": 1}])
        space = Space([Knob("a", 1.0, 4.0, step=2.0)], "grid", 0)
        space.first(0)
        self.assertEqual(space.more(1, {"a": 2.0}, {}), [{"a": 1.414}])


# --- the search


class Search(WithStudy):
    def walk(self, study, loss, most=10**9):
        return search.walk(study, Runs(self, study, loss, most))

    def test_halving_keeps_the_best_and_runs_them_longer(self):
        study = self.read()
        walked = self.walk(study, bowl(4e-3))
        tuned = walked.tuned["adamw_bf16"]
        first = [trial for trial in tuned.trials if trial.rung == 0]
        second = [trial for trial in tuned.trials if trial.rung == 1]
        self.assertEqual((len(first), len(second)), (4, 2))
        kept = sorted(first, key=lambda trial: trial.loss)[:2]
        self.assertEqual([t.point for t in second], [t.point for t in kept])
        self.assertEqual({t.cell.value("train.chinchilla") for t in second}, {1})
        self.assertEqual(tuned.best.point, kept[0].point)
        cell = walked.cells["main", "adamw_bf16"][1]
        self.assertEqual(cell.value(RATE), tuned.best.settings[RATE])
        other = walked.tuned["madam_fp8"].trials[0]
        self.assertAlmostEqual(
            other.settings[SECOND], other.point[SECOND] * other.point[RATE], delta=1e-6
        )

    def test_it_goes_on_where_it_was_interrupted(self):
        study = self.read()
        for most in (0, 3, 5, 9):
            with self.assertRaises(KeyboardInterrupt):
                self.walk(study, bowl(4e-3), most)
        runs = Runs(self, study, bowl(4e-3))
        walked = search.walk(study, runs)
        self.assertEqual(runs.count, 4 * 6 + 12 - 17)
        again = Runs(self, study, None)
        self.assertEqual(search.walk(study, again).cells, walked.cells)
        self.assertEqual(again.count, 0)

    def test_what_is_unfinished_is_said_and_its_results_wait(self):
        study = self.read()
        known = Known(study)
        walked = search.walk(study, lambda _, labelled: [known.get(c) for _, c in labelled])
        self.assertIn("rates has 0 runs", walked.waiting["main", "adamw_bf16"])
        self.assertEqual(walked.rows["main", "adamw_bf16"], {1: None, 2: None, 3: None})

    def widening(self, **more):
        found = of_study()
        found["tuning"][0]["widen"] = {"times": 2, "factor": 2, "points": 3, **more}
        return self.read(found)

    def test_a_range_is_widened_where_the_best_lies_at_its_edge_and_all_arms_run_as_often(self):
        def loss(part, arm, cell):
            return bowl(1e-4 if arm == "adamw_bf16" else 4e-3)(part, arm, cell)

        walked = self.walk(self.widening(), loss)
        moved = walked.tuned["adamw_bf16"].moved
        self.assertEqual([(wave, key) for wave, key, *_ in moved], [(1, RATE), (2, RATE)])
        self.assertEqual([new.low for *_, new in moved], [5e-4, 2.5e-4])
        self.assertEqual(walked.tuned["madam_fp8"].moved, [])
        self.assertEqual({tuned.done for tuned in walked.tuned.values()}, {4 + 2 * 3 + 2})
        outside = [t for t in walked.tuned["adamw_bf16"].trials if t.wave and t.rung == 0]
        self.assertTrue(all(trial.point[RATE] < 1e-3 for trial in outside))

    def test_widening_goes_on_after_an_interruption(self):
        study = self.widening()
        with self.assertRaises(KeyboardInterrupt):
            self.walk(study, bowl(1e-4), 21)
        walked = self.walk(study, bowl(1e-4))
        whole = self.walk(study, bowl(1e-4))
        self.assertEqual(walked.cells, whole.cells)
        self.assertEqual({tuned.done for tuned in walked.tuned.values()}, {12})

    def test_a_best_value_at_an_edge_is_a_warning(self):
        study = self.read()
        walked = self.walk(study, bowl(1e-5))
        self.assertEqual(walked.tuned["adamw_bf16"].edges, {RATE: "low"})
        page = "\n".join(TuningPage(Findings(study, Known(study), walked)).lines([]))
        self.assertIn("**At an edge: AdamW BF16, optimizer.lr_additive", page)

    def test_a_diverged_point_is_the_last_choice(self):
        def loss(part, arm, cell):
            return math.inf if cell.value(RATE) > 3e-3 else bowl(1e-2)(part, arm, cell)

        tuned = self.walk(self.read(), loss).tuned["adamw_bf16"]
        self.assertLess(tuned.best.settings[RATE], 3e-3)

    def test_shared_values_are_chosen_once_before_the_tuning(self):
        def loss(_, arm, cell):
            rate = abs(math.log(cell.value(RATE) / 4e-3))
            return 3 + rate + abs(cell.value("optimizer.beta2") - 0.95) * (arm != "adamw_fp8")

        shared = {
            "name": "beta2",
            "arms": ["*_bf16"],
            "for": ["*"],
            "values": {"optimizer.beta2": [0.9, 0.95, 0.98]},
            "at": {RATE: [2e-3, 4e-3]},
            "seed": 101,
            "budget": 0.25,
        }
        walked = self.walk(self.read(shared=[shared]), loss)
        self.assertEqual(walked.shared[0].chosen, {"optimizer.beta2": 0.95})
        for arm in ("adamw_bf16", "madam_fp8"):
            self.assertEqual(walked.cells["main", arm][1].value("optimizer.beta2"), 0.95)
            self.assertEqual(walked.tuned[arm].trials[0].cell.value("optimizer.beta2"), 0.95)

    def test_an_arm_takes_another_s_values(self):
        found = of_study()
        found["arms"]["sr"] = {
            "config": "pico_bf16.json",
            "pieces": ["base/stochastic.json"],
            "tuned_as": "madam_bf16",
            "label": "M+Adam SR",
        }
        study = self.read(found)
        walked = self.walk(study, bowl(4e-3))
        cell = walked.cells["main", "sr"][2]
        best = walked.tuned["madam_bf16"].best.settings
        self.assertEqual({key: cell.value(key) for key in best}, best)
        self.assertEqual(cell.value("optimizer.weight_rounding"), "stochastic")
        page = "\n".join(ResultsPage(Findings(study, Known(study), walked)).lines([]))
        self.assertIn("tuned as M+Adam BF16", page)

    def test_one_edit_adds_arms(self):
        found = of_study()
        found["axes"]["optimizer"]["lion"] = {
            "config": "{scale}_{format}_adamw.json",
            "set": {"optimizer.beta1": 0.8},
            "label": "Other",
            "knobs": {RATE: {"low": 1e-4, "high": 1e-3}},
        }
        walked = self.walk(self.read(found), bowl(4e-3))
        self.assertEqual(len(walked.rows), 6)
        self.assertEqual(walked.cells["main", "lion_fp8"][1].value("optimizer.beta1"), 0.8)

    def test_own_configurations_lie_beside_the_study(self):
        own = {
            "include": [str(ROOT / "configs/pico_bf16_adamw.json")],
            "model": {"hidden_size": 32},
        }
        (self.directory / "own.json").write_text(json.dumps(own), encoding="utf-8")
        found = of_study()
        found["arms"]["own"] = {"config": "own.json", "tuned_as": "adamw_bf16"}
        walked = self.walk(self.read(found), bowl(4e-3))
        self.assertEqual(walked.cells["main", "own"][1].value("model.hidden_size"), 32)


# --- the file


class Check(WithStudy):
    def refuses(self, parts, found=None, **changes):
        with self.assertRaises(BadConfig) as caught:
            self.read(found, **changes)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_every_mistake_is_told_with_file_key_found_and_accepted(self):
        found = of_study(repeat=-1, titel="x")
        found["tuning"][0]["sampler"] = "sobal"
        found["results"][0]["budget"] = 0
        found["axes"]["optimizer"]["adamw"]["knobs"]["optimizer.lr_aditive"] = {"low": 1, "high": 0}
        self.refuses(
            [
                "study.json: the file.titel: found a key that is not known, expected title?",
                "study.json: repeat: found -1, expected a whole number, at least 0",
                "study.json: tuning[0].sampler: found sobal, expected grid or random or sobol",
                "study.json: results[0].budget: found 0, expected a number above 0",
                "optimizer.lr_aditive: found a key that configurations do not have, expected"
                " optimizer.lr_additive",
                "optimizer.lr_aditive.high: found 0, expected a number above 1",
            ],
            found,
        )

    def test_a_tuning_seed_is_never_reported(self):
        found = of_study()
        found["tuning"][0]["seed"] = 2
        self.refuses(["tuning[0].seed: found 2, expected a seed that is not reported"], found)

    def test_names_that_are_not_there(self):
        found = of_study()
        found["results"][0]["arms"] = ["adamw_*", "lion_*"]
        found["comparisons"][0]["arms"] = ["madm_{format}", "adamw_{format}"]
        found["arms"]["x"] = {"config": "pico_bf61.json", "tuned_as": "nobody"}
        self.refuses(
            [
                "results[0].arms[1]: found lion_*, expected an arm, such as",
                "found madm_bf16, expected an arm, such as madam_bf16",
                "arms.x.config",
                "pico_bf16.json",
                "arms.x.tuned_as: found nobody",
            ],
            found,
        )

    def test_lengths_are_budgets(self):
        self.refuses(["set.train.steps: found a length or seed"], set={"train.steps": 5})

    def test_what_a_piece_says_otherwise_is_not_left_out(self):
        key, found = "optimizer.weight_rounding", of_study()
        found["arms"]["rounded"] = {
            "config": "pico_bf16.json",
            "pieces": ["base/stochastic.json"],
            "tuned_as": "madam_bf16",
        }
        found["set"] = {key: "nearest"}
        with self.assertRaisesRegex(
            BadConfig, f"set.{key}: found nearest, expected stochastic, which a piece of rounded"
        ):
            self.read(found)
        found["set"] = {key: "stochastic"}
        self.read(found)
        found["set"] = {key: "nearest"}
        found["arms"]["rounded"]["set"] = {key: "stochastic"}
        self.read(found)

    def test_a_protocol_that_is_not_there(self):
        self.refuses(["protocol: found p.md, expected a file"], protocol="p.md")

    def test_what_is_wrong_with_a_configuration_is_told_once(self):
        found = of_study()
        for choice in found["axes"]["optimizer"].values():
            choice["config"] = "none.json"
        with self.assertRaises(BadConfig) as caught:
            self.read(found)
        self.assertEqual(str(caught.exception).count("none.json"), 1)

    def test_margins_belong_to_equivalence(self):
        found = of_study()
        found["comparisons"][0]["kind"] = "equivalence"
        self.refuses(["comparisons[0].margin: found nothing"], found)

    def test_a_grid_needs_values(self):
        found = of_study()
        found["tuning"][0]["sampler"] = "grid"
        self.refuses(["knob optimizer.lr_additive without a grid"], found)

    def test_a_grid_is_as_large_for_every_arm(self):
        found = of_study()
        found["tuning"][0].update(sampler="grid", rungs=[{"budget": 1}])
        for choice in found["axes"]["optimizer"].values():
            for knob in choice["knobs"].values():
                knob["count"] = 3
        self.refuses(["grids of 3 of adamw_bf16", "9 of madam_bf16", "as many for"], found)

    def test_no_arm_is_lost_behind_another_of_its_name(self):
        found = of_study()
        found["arms"]["adamw_bf16"] = {"config": "pico_bf16.json"}
        self.refuses(["found the arm adamw_bf16 again, expected each name once"], found)
        self.path.write_text('{"arms": {"a": {}, "a": {}}}', encoding="utf-8")
        with self.assertRaisesRegex(BadConfig, "found the key 'a' twice"):
            reader.read(self.path)

    def test_points_have_to_be_different(self):
        found = of_study()
        found["axes"]["optimizer"]["adamw"]["knobs"] = {RATE: {"values": [1e-3, 2e-3, 4e-3]}}
        self.refuses(["found 3 combinations of values, expected 4 different points"], found)

    def test_whatever_is_wrong_is_a_mistake_of_the_file(self):
        """Any value at any place is refused with a word, or read."""
        whole = of_study(
            shared=[
                {"arms": ["*"], "values": {"optimizer.beta2": [0.9, 0.95]}, "seed": 99, "budget": 1}
            ]
        )
        whole["tuning"][0]["widen"] = {"times": 1}
        whole["arms"]["{optimizer}_sr"] = {
            "config": "pico_bf16.json",
            "pieces": ["base/stochastic.json"],
            "set": {"optimizer.beta1": 0.8},
            "tuned_as": "{optimizer}_bf16",
            "only": {"optimizer": ["madam"]},
            "except": ["adamw_sr"],
            "style": {"color": "red"},
        }
        whole["axes"]["optimizer"]["adamw"]["knobs"][RATE]["step"] = 2
        whole["comparisons"].append(
            {
                "name": "more",
                "kind": "interaction",
                "arms": [["madam_bf16", "adamw_bf16"], ["madam_fp8", "adamw_fp8"]],
                "only": {},
                "except": [],
            }
        )
        for place in list(places(whole)):
            for value in (None, 3, -1.5, "x", "{format}", [], ["x"], {}, {"x": 1}, True):
                found = json.loads(json.dumps(whole))
                within = found
                for key in place[:-1]:
                    within = within[key]
                within[place[-1]] = value
                with self.subTest(place=place, value=value), contextlib.suppress(BadConfig):
                    check_all(self.read(found))

    def test_a_scale_needs_its_files(self):
        found = of_study()
        found["results"][0]["scale"] = "micro"
        self.refuses(["results[0].scale: found micro, but no micro_bf16_adamw.json"], found)

    def test_what_is_chosen_once_is_not_tuned(self):
        shared = {"arms": "*", "values": {RATE: [1e-3, 2e-3]}, "seed": 101, "budget": 1}
        self.refuses(["shared[0].values.optimizer.lr_additive: found a knob"], shared=[shared])

    def test_a_trial_has_short_runs_and_a_place_of_its_own(self):
        self.write()
        study = reader.read(self.path, 0.1)
        self.assertAlmostEqual(study.results[0].budget, 0.1)
        self.assertAlmostEqual(study.tuning[0].rungs[0].budget, 0.025)
        self.assertEqual(study.ledger, self.directory / "quick/runs.csv")

    def test_yaml_is_read_where_it_can_be(self):
        path = self.directory / "study.yaml"
        path.write_text(json.dumps(of_study()), encoding="utf-8")  # JSON is YAML
        message = "PyYAML, which is not installed: apt-get"
        with (
            mock.patch.dict(sys.modules, {"yaml": None}),
            self.assertRaisesRegex(BadConfig, message),
        ):
            reader.read(path)
        with contextlib.suppress(ModuleNotFoundError):
            import yaml  # noqa: F401

            self.assertEqual(len(reader.read(path).arms.by_name), 4)

    def test_it_says_what_the_study_consists_of(self):
        lines = "\n".join(check.described(self.read()))
        self.assertIn("rates: 4 arms, 6 cells each, 24 in all", lines)
        self.assertIn("main: 12 cells at budget 1", lines)


class Shown(WithStudy):
    """What the documentation shows is a study."""

    def test_the_example_and_the_page(self):
        self.assertEqual(len(reader.read(ROOT / "examples/study/study.json").arms.by_name), 3)
        rates = reader.read(ROOT / "scripts/reproduce/sweeps/learning_rate.json")
        self.assertEqual((len(rates.arms.by_name), len(rates.comparisons)), (8, 4))
        page = (ROOT / "docs/research/studies.md").read_text(encoding="utf-8")
        block = re.search(r"```json\n(.*?)```", page, re.S)[1]
        self.path.write_text(block, encoding="utf-8")
        shutil.copy(ROOT / "configs/pico_fp32_adamw.json", self.directory / "mine.json")
        (self.directory / "base").symlink_to(ROOT / "configs/base")
        found = reader.read(self.path).arms.by_name
        self.assertEqual(len(found), 9)
        self.assertEqual(found["adamw_bf16_sr"].label, "AdamW SR BF16")
        self.assertEqual(found["adamw_bf16_sr"].tuned_as, "adamw_bf16")

    def test_the_page_has_every_key(self):
        page = (ROOT / "docs/research/studies.md").read_text(encoding="utf-8")
        keys = [*reader.KEYS, *reader.SHARED_KEYS, *reader.TUNING_KEYS, *reader.WIDEN_KEYS]
        keys += [
            *reader.RESULTS_KEYS,
            *reader.COMPARISON_KEYS,
            *reader.DESCRIBED_KEYS,
            *arms.ARM_KEYS,
            *arms.KNOB_KEYS,
        ]
        missing = [key for key in keys if not re.search(rf'[`"]{key}[`"]', page)]
        self.assertEqual(missing, [])

    def test_the_formats_page_has_every_column(self):
        page = (ROOT / "docs/formats.md").read_text(encoding="utf-8").partition("## A study")[2]
        names = [field.name for field in dataclasses.fields(rows.Row)]
        self.assertEqual([name for name in names if f"`{name}`" not in page], [])

    def test_the_shipped_studies_tables_are_what_their_ledgers_give(self):
        shipped = [
            path for top in ("docs", "examples") for path in (ROOT / top).rglob("study.json")
        ]
        written = [path.parent for path in shipped if (path.parent / "results.csv").exists()]
        self.assertGreaterEqual(len(written), 3)
        for folder in written:
            words = ["report", str(ROOT / folder / "study.json"), "--no-figures"]
            words += ["--output", str(self.directory)]
            with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(sys, "argv", words):
                report.main()
            for path in sorted(self.directory.glob("*.csv")):
                committed = (ROOT / folder / path.name).read_text(encoding="utf-8")
                self.assertEqual(path.read_text(encoding="utf-8"), committed, path.name)
                path.unlink()


# --- tests


def comparison(kind="difference", arms=("a", "b"), margin=0.0, family="f", name="h"):
    return Comparison(name, kind, arms, "main", margin, family)


class Statistics(unittest.TestCase):
    # scipy 1.10.1: ttest_1samp, wilcoxon(mode="exact"), mannwhitneyu(method="exact")
    PAIRS = (-0.031, -0.012, 0.004, -0.027, -0.019, -0.008)

    def losses(self, pairs):
        return {
            "a": {seed: 3 + value for seed, value in enumerate(pairs)},
            "b": dict.fromkeys(range(len(pairs)), 3.0),
        }

    def outcome(self, losses, **more):
        one = comparison(**more)
        sample = hypotheses.sample_of(one, losses, math.log(512))
        return hypotheses.adjusted([hypotheses.tested(one, sample)])[0]

    def test_a_paired_t_test(self):
        found = self.outcome(self.losses(self.PAIRS))
        self.assertAlmostEqual(found.t, -2.9406241762406196, places=9)
        self.assertAlmostEqual(found.p, 0.032233341623120124, places=9)
        self.assertEqual(
            (found.sample.count, found.verdict, found.test), ("6", "lower", "paired t")
        )

    def test_equivalence_by_two_one_sided_tests(self):
        found = self.outcome(self.losses(self.PAIRS), kind="equivalence", margin=0.02)
        self.assertAlmostEqual(found.p, 0.2161215593429833, places=9)
        self.assertEqual(found.verdict, "equivalence not shown within 0.02; lower by its interval")
        around = [value - sum(self.PAIRS) / len(self.PAIRS) for value in self.PAIRS]
        none = self.outcome(self.losses(around), kind="equivalence", margin=1e-4)
        self.assertEqual(none.verdict, "equivalence not shown within 0.0001")
        wide = self.outcome(self.losses(self.PAIRS), kind="equivalence", margin=0.1)
        self.assertEqual(wide.verdict, "equivalent within 0.1")

    def test_ranks_and_signs_are_exact(self):
        below, _, both = rank_tests.signed_rank(self.PAIRS)
        self.assertEqual((below, both), (0.03125, 0.0625))
        self.assertEqual(rank_tests.sign(self.PAIRS)[2], 14 / 64)
        self.assertEqual(rank_tests.signed_rank([1, 1, -1])[2], 1.0)
        self.assertEqual(rank_tests.signed_rank([0, 0])[2], 1.0)
        found = rank_tests.rank_sum([1.1, 2.2, 3.5, 9], [2.5, 3.6, 4.4, 5.1, 6])
        self.assertAlmostEqual(found[2], 0.4126984126984127)

    def test_a_diverged_run_counts_as_the_worst(self):
        losses = self.losses([-0.02] * 7)
        losses["b"][0] = math.inf
        found = self.outcome(losses)
        self.assertEqual(found.sample.worst, math.log(512))
        self.assertEqual(found.sample.diverged, ("b seed 0",))
        self.assertTrue(math.isfinite(found.mean) and found.mean < -0.02)
        self.assertEqual((found.test, found.p, found.verdict), ("signed-rank", 2 / 128, "lower"))
        for few in (2, 3):  # never without a verdict
            losses = self.losses([0.1] * few)
            losses["a"][1] = math.inf
            self.assertEqual(self.outcome(losses).verdict, "no difference shown")

    def test_a_diverged_run_does_not_turn_the_direction_round(self):
        losses = self.losses([-0.02] * 12)
        losses["a"][0] = math.inf
        found = self.outcome(losses)
        self.assertGreater(found.mean, 0)  # by the one run, whose value is arbitrary
        self.assertLess(found.p, 0.05)
        self.assertEqual(found.verdict, "lower")
        self.assertTrue(math.isnan(found.smallest(0.05)))

    def test_a_run_that_diverged_in_both_arms_is_a_tie(self):
        losses = self.losses([-0.02] * 3)
        losses["a"][0] = losses["b"][0] = math.inf
        self.assertEqual(self.outcome(losses).sample.pairs[0], 0)

    def test_an_interaction_is_a_difference_of_differences(self):
        losses = {
            "a1": {1: 3.0, 2: 3.1, 3: 3.3},
            "a2": {1: 3.2, 2: 3.2, 3: 3.4},
            "b1": {1: 4.0, 2: 4.0, 3: 4.0},
            "b2": {1: 4.0, 2: 4.1, 3: 4.0, 9: 5.0},
        }
        arms = (("a1", "a2"), ("b1", "b2"))
        found = self.outcome(losses, kind="interaction", arms=arms)
        for value, expected in zip(found.sample.pairs, (-0.2, 0.0, -0.1)):
            self.assertAlmostEqual(value, expected)
        self.assertEqual(found.sample.unpaired, 1)

    def test_arms_without_a_common_seed_are_independent_samples(self):
        losses = {"a": {1: 1.1, 2: 2.2, 3: 3.5, 4: 9}, "b": {5: 2.5, 6: 3.6, 7: 4.4, 8: 5.1, 9: 6}}
        found = self.outcome(losses)
        self.assertEqual((found.test, found.sample.count), ("Welch's t", "4, 5"))
        self.assertAlmostEqual(found.p_rank, 0.4126984126984127)

    def test_holm_within_families_and_what_is_not_run_counts(self):
        strong = self.losses([-0.031, -0.029, -0.030, -0.033, -0.028])
        one, two = comparison(name="1"), comparison(name="2", arms=("x", "y"))
        alone = comparison(name="3", family="g")
        found = hypotheses.adjusted(
            [
                hypotheses.tested(each, hypotheses.sample_of(each, strong, 6))
                for each in (one, two, alone)
            ]
        )
        self.assertAlmostEqual(found[0].adjusted, 2 * found[0].p)
        self.assertEqual((found[1].adjusted, found[1].verdict), (1.0, "not run"))
        self.assertEqual(found[2].adjusted, found[2].p)
        self.assertEqual(student.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])

    def test_the_smallest_difference_that_can_be_shown(self):
        found = self.outcome(self.losses(self.PAIRS))
        # (t of 0.975 + t of 0.8) times the error, 5 degrees of freedom: 2.5706 + 0.9195
        self.assertAlmostEqual(found.smallest(0.05) / found.sample.error, 3.4901, places=3)


# --- ledger, provenance, pages


class Pages(WithStudy):
    def finished(self, loss=None, **changes):
        study, loss = self.read(**changes), loss or bowl(4e-3)
        search.walk(study, Runs(self, study, loss))
        return study

    def report(self, *more):
        words = ["report", str(self.path), "--no-figures", *more]
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(sys, "argv", words):
            report.main()
        return (self.directory / "results.md").read_text(encoding="utf-8")

    def test_it_is_written_from_the_ledger_alone(self):
        def loss(part, arm, cell):
            return bowl(4e-3)(part, arm, cell) + cell.seed / 100 + arm.startswith("adamw") / 10

        self.finished(loss)
        page = self.report()
        self.assertIn("12 of 12 runs of the results are finished.", page)
        self.assertNotIn("none of the study", page)
        self.assertIn("| gain, bf16: M+Adam BF16 − AdamW BF16 | 3 |", page)
        again = self.report()
        self.assertEqual(page, again)
        for name in ("tuning.md", "results.csv", "tuning.csv", "hypotheses.csv"):
            self.assertTrue((self.directory / name).exists(), name)

    def test_a_cell_in_two_parts_is_one_run(self):
        parts = [
            {"name": "main", "arms": "*", "budget": 1, "seeds": 3},
            {"name": "more", "arms": ["adamw_*"], "budget": 1, "seeds": 4},
        ]
        gain = {"name": "gain", "results": "main", "arms": ["madam_bf16", "adamw_bf16"]}
        self.finished(results=parts, comparisons=[gain])
        page = self.report()
        self.assertIn(
            "14 of 14 runs of the results are finished. 6 of them are in two parts.", page
        )

    def test_described_differences_have_an_interval_and_no_p(self):
        def loss(part, arm, cell):
            return bowl(4e-3)(part, arm, cell) + cell.seed / 100 + arm.startswith("adamw") / 10

        described = [{"name": "gain of {format}", "arms": ["madam_{format}", "adamw_{format}"]}]
        self.finished(loss, comparisons=[], described=described)
        page = self.report()
        self.assertNotIn("## Hypotheses", page)
        row = "| gain of fp8 | M+Adam FP8 − AdamW FP8 | main | 3 | -0.1000 | [-0.1000, -0.1000] |"
        self.assertIn(row, page)
        table = (self.directory / "differences.csv").read_text(encoding="utf-8")
        self.assertIn("gain of fp8,difference,main,3,-0.1", table)

    def test_cells_without_a_commit_are_said(self):
        cell = self.read().cell("adamw_bf16", 1, 1)
        rows = [self.row(cell, 3.0, version="v, 43c289b981b4-dirty"), self.row(cell, 3.0)]
        self.assertEqual(provenance.dirty(rows[1:]), [])
        self.assertIn(
            "**1 of 2 cells were computed by sources with changes", provenance.dirty(rows)[1]
        )

    def test_cells_of_an_earlier_file_are_said(self):
        study = self.finished()
        self.write(set={"optimizer.beta2": 0.9})
        self.assertIn("**36 finished cells of the ledger are none of the study", self.report())
        self.assertEqual(len(Known(study).rows), 36)

    def test_seeds_are_told_as_ranges(self):
        self.assertEqual(results_page.ranges([1, 2, 5, 7, 8, 9]), "1, 2, 5, 7 to 9")

    def test_missing_cells_are_said(self):
        study = self.read()
        with contextlib.suppress(KeyboardInterrupt):
            search.walk(study, Runs(self, study, bowl(4e-3), 24 + 5))
        page = self.report()
        self.assertIn("5 of 12 runs of the results are finished. What is missing is said", page)
        self.assertIn("| 2 of 3 |", page)
        self.assertIn("gain, fp8: madam_fp8 1 of 3 seeds, adamw_fp8 1 of 3 seeds.", page)

    def test_a_diverged_run_is_in_the_verdict(self):
        def loss(part, arm, cell):
            gone = part == "main" and arm == "adamw_fp8" and cell.seed == 2
            return math.inf if gone else bowl(4e-3)(part, arm, cell)

        self.finished(loss)
        page = self.report()
        self.assertIn("diverged: adamw_fp8 seed 2; counted as the loss", page)
        self.assertIn("The verdict is by ranks; t test p", page)

    def test_cells_of_other_programs_are_named_and_not_used(self):
        study = self.finished()
        cell = study.cell("adamw_bf16", 7, 1)
        Known(study).ledger.add(self.row(cell, 9.0, program="0" * 16))
        self.write(programs=["a" * 16])
        page = self.report()
        self.assertIn("0 of 12 runs", page)
        self.assertIn("Not used, of programs that are not accepted: 36 of `pppppp", page)

    def test_the_same_cell_by_two_programs_is_a_table(self):
        study = self.finished()
        walked = search.walk(study, Runs(self, study, None))
        cell = walked.cells["main", "adamw_bf16"][1]
        known = Known(study)
        one = known.get(cell).val_loss
        later = self.row(cell, one + 0.001, program="0" * 16, ended="2026-02-01T00:00:00Z")
        known.ledger.add(later)
        known.read()
        self.assertEqual(known.get(cell).val_loss, one)
        page = self.report()
        self.assertIn("### Same cell, two programs", page)
        self.assertIn("+0.001000 |", page)

    def test_what_is_repeated(self):
        study = self.finished(repeat=2)
        walked = search.walk(study, Runs(self, study, None))
        known = Known(study)
        self.assertEqual(run.repeated(study, known, walked, "p" * 16), [])
        cells = run.repeated(study, known, walked, "0" * 16)
        self.assertEqual(len(cells), 2)
        known.ledger.add(self.row(cells[0], 1.0, program="0" * 16, ended="2027"))
        known.read()
        self.assertEqual(run.repeated(study, known, walked, "0" * 16), cells)

    def test_cells_of_two_texts_are_not_mixed(self):
        study = self.finished()
        known = Known(study)
        known.ledger.add(self.row(study.cell("adamw_bf16", 7, 1), 9.0, corpus="d" * 16))
        with self.assertRaisesRegex(BadConfig, "corpus: found cells of c+, d+, expected"):
            self.report()
        self.write(corpus="c" * 64)
        self.assertIn("1 cells of other texts are not used", self.report())

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_the_protocol_s_hash_commit_and_the_cells_before_it(self):
        def git(*words):
            identity = ["-c", "user.name=n", "-c", "user.email=e"]
            command = ["git", "-C", str(self.directory), *identity, *words]
            subprocess.run(command, check=True, capture_output=True)

        (self.directory / "plan.md").write_text("the plan\n", encoding="utf-8")
        study = self.finished(protocol="plan.md")
        git("init", "-q")
        self.assertIn("**It is not committed.**", self.report())
        git("add", "plan.md")
        git("commit", "-qm", "plan")
        page = self.report()
        self.assertIn(f"SHA-256 `{protocol.sha256(self.directory / 'plan.md')}`", page)
        self.assertIn("36 of 36 cells ended before it was committed", page)
        self.assertIn("36 of 36 cells were run under another text", page)
        (self.directory / "plan.md").write_text("another plan\n", encoding="utf-8")
        self.assertIn("differs from what is committed", self.report())
        other = protocol.of_earlier(study, list(Known(study).rows))
        self.assertEqual(other, " 36 of them ended before the protocol was committed.")
        self.assertEqual(len(protocol.short_hash(study)), 16)


class Provenance(unittest.TestCase):
    def test_comments_and_blank_space_make_no_other_program(self):
        text = 'int a=1;  // one\n/* two\n lines */ auto s = R"(a // b)"; char c = \'"\'; f("//x");'
        other = 'int a = 1;\nauto s=R"(a // b)";\nchar c=\'"\';\nf("//x"); // end'
        self.assertEqual(program.stripped(text), program.stripped(other))
        for change in (text.replace("a=1", "a=2"), text.replace("a // b", "a // c")):
            self.assertNotEqual(program.stripped(change), program.stripped(text))
        self.assertNotEqual(program.stripped("a b"), program.stripped("ab"))
        self.assertEqual(program.stripped("1'000'000 // x"), "1'000'000")

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_the_sources_of_a_commit_without_the_command_line(self):
        head = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        done = subprocess.run(head, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest("not in a repository")
        found = program.sources_at(done.stdout.strip(), ROOT)
        self.assertIn("src/optim/schedule.h", found)
        self.assertFalse([path for path in found if path.startswith("src/cli/")])
        self.assertRegex(program.hash_of(found), "^[0-9a-f]{16}$")

    def test_a_summary_has_few_points_and_the_evaluations(self):
        class Recorded:
            def series(self, key):
                steps = list(range(1, 101)) if key == "loss" else list(range(4, 101, 4))
                return steps, [float(step) for step in steps]

        found = rows.summary(Recorded())
        self.assertEqual(found["step"], list(range(5, 101, 5)))
        self.assertEqual(found["train"][:2], [3.0, 8.0])
        self.assertEqual((len(found["val"]), found["val_step"][-1]), (20, 100))

    def test_new_names_have_a_look_of_their_own(self):
        looks = [style.optimizer(name) for name in ("Twin", "Other", "Twin", "AdamW")]
        self.assertEqual(looks[0], looks[2])
        self.assertEqual(len({tuple(look.values()) for look in looks}), 3)
        self.assertEqual(looks[3], {"color": style.BLUE, "marker": "o"})


def of_tensor(weights, asked, ratio, **more):
    """A tensor's update statistics, as a run records them."""
    return {
        "weights": [0, weights],
        "weight_rms": 0.5,
        "asked_rms": {"both": asked},
        "effective_rms": 2 * asked,
        "edq_ratio": ratio,
        "flipped": 0.0 if ratio is None else ratio,
        **more,
    }


class Updates(WithStudy):
    def recorded(self, *records):
        class Recorded:
            steps = {
                10 * (place + 1): {"update_survival": {"tensors": tensors}}
                for place, tensors in enumerate(records)
            }

        return Recorded()

    def test_matrices_of_layers_count_as_one_tensor(self):
        two = {
            "layers.0.q_proj.weight": of_tensor(300, 3.0, 1.0),
            "layers.0.k_proj.weight": of_tensor(100, 1.0, 0.5),
            "lm_head.weight": of_tensor(10**6, 100.0, 0.0),
        }
        found = updates.summary(self.recorded(two))
        asked = math.sqrt((300 * 9 + 100 * 1) / 400)
        expected = {
            "step": 10,
            "weight_rms": 0.5,
            "asked_both": updates.digits(asked),
            "effective_rms": updates.digits(2 * asked),
            "edq_ratio": updates.digits((2700 * 1.0 + 100 * 0.5) / 2800),
            "flipped": updates.digits((300 * 1.0 + 100 * 0.5) / 400),
        }
        self.assertEqual(updates.middle(found), expected)
        self.assertEqual(found["weight_rms"]["lm_head.weight"], [0.5, 0.5])

    def test_branches_and_what_is_not_there(self):
        one = {"layers.0.q_proj.weight": of_tensor(4, 1.0, None)}
        both = {"both": 0.0, "additive": 0.2, "multiplicative": 0.1}
        other = {"layers.0.q_proj.weight": of_tensor(4, 1.0, None, asked_rms=both)}
        records = updates.summary(self.recorded(one, other, other))["records"]
        self.assertEqual(records["asked_additive"], [None, 0.2, 0.2])
        self.assertEqual(records["edq_ratio"], [0.0, None, None])
        self.assertEqual(updates.summary(self.recorded()), {})
        earlier = {"layers.0.q_proj.weight": {"weights": [4]}}  # of a version before 0.3
        self.assertEqual(updates.summary(self.recorded(earlier))["records"], {"step": [10]})

    def test_the_page_shows_each_arm_once_whichever_program_recorded_it(self):
        study = self.read()
        walked = search.walk(study, Runs(self, study, bowl(4e-3)))
        known = Known(study)
        with contextlib.redirect_stdout(io.StringIO()):
            list(report.write(Findings(study, known, walked), self.directory, []))
        self.assertFalse((self.directory / "updates.csv").exists())
        recorded = self.recorded({"layers.0.q_proj.weight": of_tensor(4, 0.25, 0.75)})
        cell = walked.cells["main", "madam_fp8"][2]
        row = dataclasses.replace(
            known.get(cell), program="0" * 16, updates=updates.compact(recorded)
        )
        known.ledger.add(row)
        known.read()
        list(report.write(Findings(study, known, walked), self.directory, []))
        page = (self.directory / "results.md").read_text(encoding="utf-8")
        line = "| M+Adam FP8 | main | 2 | 10 | 0.5 | 0.25 |  |  | 0.5 | 0.75 | 0.75 |"
        self.assertEqual(page.count("| M+Adam FP8 | main | 2 | 10 |"), 1)
        self.assertIn(line, page)
        table = (self.directory / "updates.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(table[1], "main,madam_fp8,2,10,0.5,0.25,,,0.5,0.75,0.75")


class Looks(WithStudy):
    def test_arms_that_would_look_alike_are_told_apart(self):
        one, other = {"color": "red", "marker": "o"}, {"color": "red", "marker": "s"}
        study = self.read()
        walked = search.walk(study, Runs(self, study, bowl(4e-3)))
        drawn = figures.Figures(Findings(study, Known(study), walked), self.directory, [])
        first, second, third = list(study.arms.by_name)[:3]
        for arm, look in ((first, one), (second, other), (third, one)):
            study.arm(arm).style.update(look)
        apart = drawn.looks([first, second], ("color", "marker"))
        self.assertEqual([apart[first], apart[second]], [one, other])
        alike = drawn.looks([first, third], ("color", "marker"))
        self.assertNotEqual(alike[first]["color"], alike[third]["color"])


class Started(WithStudy):
    """The script with a program that trains nothing."""

    def setUp(self):
        super().setUp()
        tokens = self.directory / "tokens"
        tokens.mkdir()
        manifest = {
            "tokenizer": {"hash": "t"},
            "splits": {"train": {"shards": [{"hash": "a"}]}, "val": {"shards": [{"hash": "b"}]}},
        }
        (tokens / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        for name in ("train_000000.bin", "val_000000.bin"):
            (tokens / name).write_text(name, encoding="utf-8")
        (self.directory / "plan.json").write_text('{"2": "diverge"}', encoding="utf-8")

    def start(self, *words):
        command = [sys.executable, str(ROOT / "scripts/study.py"), *words]
        plan = {"FAKE_PLAN": str(self.directory / "plan.json")}
        environment = {**os.environ, **plan}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def run_it(self, *more):
        place = ["--tokens", str(self.directory / "tokens"), "--work", str(self.directory / "work")]
        words = ["run", str(self.path), "--program", str(FAKES / "mpretrain"), *place, *more]
        return self.start(*words, "--jobs", "2")

    def small(self, **changes):
        # 5 steps of 2048 tokens: what the fake makes
        budget = 5 * 2048 / 20 / 166208
        found = of_study(**changes)
        found["arms"] = {"{optimizer}_bf16": {}}
        found["arms"] = {
            name: {"config": f"pico_{file}.json"}
            for name, file in (("adamw_bf16", "bf16_adamw"), ("madam_bf16", "bf16"))
        }
        del found["tuning"], found["axes"]
        found["results"] = [{"name": "main", "arms": "*", "budget": budget, "seeds": 3}]
        found["comparisons"] = [{"name": "gain", "arms": ["madam_bf16", "adamw_bf16"]}]
        return found

    def test_run_and_report(self):
        self.write(self.small())
        dry = self.run_it("--dry-run")
        self.assertIn("main: 6 cells to run", dry.stdout)
        done = self.run_it("--only", "adamw_*")
        self.assertEqual(done.returncode, 0, done.stderr)
        ledger = (self.directory / "runs.csv").read_text(encoding="utf-8")
        self.assertEqual(len(ledger.splitlines()), 4)
        self.assertIn("binary:", ledger)
        self.assertEqual(self.run_it().returncode, 0)
        shutil.rmtree(self.directory / "work")
        shutil.rmtree(self.directory / "tokens")
        told = self.start("report", str(self.path), "--no-figures")
        self.assertEqual(told.returncode, 0, told.stderr)
        page = (self.directory / "results.md").read_text(encoding="utf-8")
        self.assertIn("6 of 6 runs", page)
        self.assertIn("diverged: madam_bf16 seed 2, adamw_bf16 seed 2", page)

    def test_a_start_with_nothing_to_run_says_so(self):
        self.write(self.small())
        self.assertEqual(self.run_it().returncode, 0)
        said = f"nothing to run: 6 cells are in {self.directory / 'runs.csv'}; with --ledger"
        for words in ((), ("--dry-run",)):
            again = self.run_it(*words)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertIn(said, again.stdout)
            self.assertNotIn("cells above", again.stdout)
        self.assertIn("nothing to run: 3 cells", self.run_it("--only", "adamw_*").stdout)
        elsewhere = self.run_it("--ledger", str(self.directory / "other.csv"))
        self.assertNotIn("nothing to run", elsewhere.stdout)
        self.assertTrue((self.directory / "other.csv").exists())

    def test_refusals(self):
        self.write(self.small(corpus="0" * 64))
        done = self.run_it()
        self.assertEqual(done.returncode, 1)
        self.assertIn("study.json: corpus: found ", done.stderr)
        self.write(self.small(programs=["0" * 16]))
        self.assertIn("programs: found --program", self.run_it().stderr)
        self.write(self.small())
        self.assertIn("--only nothing: found no such part", self.run_it("--only", "nothing").stderr)


if __name__ == "__main__":
    unittest.main()
