#!/usr/bin/env python3
"""Tests of what reads, compares and draws the metrics of runs, from made-up records. Nothing is
drawn: no matplotlib is needed.

tests/scripts/runs_test.py [CLASS[.TEST] ...]
"""

import contextlib
import io
import json
import math
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

from mpretrain_tools.plots import curves as plot_curves
from mpretrain_tools.plots import survival as plot_survival
from mpretrain_tools.runs import compare as compare_runs
from mpretrain_tools.runs.metrics import BadRun, NoSteps, Run, labelled_runs


class Runs(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="runs_"))
        self.addCleanup(shutil.rmtree, self.directory)

    def write(self, name, records):
        run = self.directory / name
        run.mkdir()
        (run / "metrics.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
        )
        return str(run)

    def trained(self, name, val_loss=3.0):
        return self.write(
            name,
            [
                {
                    "step": 1,
                    "tokens": 10,
                    "loss": 4.0,
                    "tokens_per_second": 5.0,
                    "step_seconds": 2.0,
                },
                {
                    "step": 2,
                    "tokens": 20,
                    "loss": 3.5,
                    "tokens_per_second": 5.0,
                    "step_seconds": 2.5,
                    "val_loss": val_loss,
                },
            ],
        )

    def started(self, name):
        """Has a directory, and has not trained yet."""
        (self.directory / name).mkdir()
        return str(self.directory / name)

    def manifest(self, entropy):
        path = self.directory / "manifest.json"
        path.write_text(
            json.dumps({"splits": {"val": {"unigram_entropy_nats": entropy}}}), encoding="utf-8"
        )
        return str(path)


class Smoothed(unittest.TestCase):
    def test_does_not_lag(self):
        falling = [10.0 - i for i in range(9)]
        self.assertEqual(plot_curves.smoothed(falling, 5)[2:-2], falling[2:-2])

    def test_the_window_is_as_wide_as_said_and_an_even_one_takes_one_more(self):
        spike = [0.0] * 4 + [6.0] + [0.0] * 4
        self.assertEqual(plot_curves.smoothed(spike, 3), [0, 0, 0, 2, 2, 2, 0, 0, 0])
        self.assertEqual(plot_curves.smoothed(spike, 2), plot_curves.smoothed(spike, 3))

    def test_a_window_of_one_changes_nothing(self):
        self.assertEqual(plot_curves.smoothed([3.25, 1.5, 2.0], 1), [3.25, 1.5, 2.0])

    def test_is_cut_off_at_the_ends(self):
        self.assertEqual(plot_curves.smoothed([1.0, 2.0, 6.0], 3), [1.5, 3.0, 4.0])
        self.assertEqual(plot_curves.smoothed([2.0], 100), [2.0])
        self.assertEqual(plot_curves.smoothed([], 3), [])

    def test_a_gap_stays_a_gap_and_counts_for_nothing(self):
        found = plot_curves.smoothed([1.0, math.nan, 3.0, math.inf], 3)
        self.assertEqual([found[0], found[2]], [1.0, 3.0])
        self.assertTrue(math.isnan(found[1]) and math.isnan(found[3]))

    def test_a_huge_loss_leaves_nothing_behind(self):
        self.assertEqual(plot_curves.smoothed([1e300, 0.0, 1.0, 1.25], 1)[2:], [1.0, 1.25])


class Axes(Runs):
    def test_losses_stand_where_the_axis_says(self):
        run = Run(self.trained("a"))
        self.assertEqual(run.curve("loss"), ([1, 2], [4.0, 3.5]))
        self.assertEqual(run.curve("loss", "tokens"), ([10, 20], [4.0, 3.5]))
        self.assertEqual(run.curve("loss", "seconds"), ([2.0, 4.5], [4.0, 3.5]))
        self.assertEqual(run.curve("val_loss", "seconds"), ([4.5], [3.0]))

    def test_an_axis_that_is_not_recorded_is_named(self):
        run = Run(self.write("old", [{"step": 1, "loss": 4.0}]))
        with self.assertRaisesRegex(
            BadRun, "no step_seconds is recorded in it, which --x seconds needs"
        ):
            run.curve("loss", "seconds")


class ValidationSets(Runs):
    def test_are_found_by_name_with_what_they_record(self):
        path = self.write(
            "mixed",
            [
                {"step": 1, "loss": 4.0},
                {
                    "step": 2,
                    "loss": 3.5,
                    "validation": {"web": {"loss": 3.25}, "books": {"loss": None}},
                },
            ],
        )
        run = Run(path)
        self.assertEqual(run.validation_sets(), ["books", "web"])
        self.assertEqual(run.curve(("validation", "web", "loss")), ([2], [3.25]))
        self.assertTrue(math.isnan(run.last(("validation", "books", "loss"))))
        self.assertEqual(run.series(("validation", "books", "tokens")), ([], []))


class Compare(Runs):
    def compare(self, *arguments):
        """(what is printed, what is said, the error)"""
        out, said, problem = io.StringIO(), io.StringIO(), None
        with (
            mock.patch.object(sys, "argv", ["compare_runs.py", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            try:
                compare_runs.main()
            except BadRun as found:
                problem = found
        return out.getvalue(), said.getvalue(), problem

    def test_needs_no_manifest(self):
        out, _, problem = self.compare(f"A={self.trained('a')}", self.trained("b", val_loss=2.0))
        self.assertIsNone(problem)
        self.assertEqual(
            out.splitlines()[0].split("  "), ["run", "steps", "val loss", "perplexity", "tokens/s"]
        )
        self.assertEqual(
            [line.split() for line in out.splitlines()[2:]],
            [["A", "2", "3.0000", "20.09", "5"], ["b", "2", "2.0000", "7.39", "5"]],
        )

    def test_the_manifest_adds_the_entropy_and_is_what_a_run_has_to_beat(self):
        run = self.trained("a")
        out, _, problem = self.compare("--manifest", self.manifest(3.5), run)
        self.assertIn("unigram entropy", out)
        self.assertIn("3.5000", out)
        self.assertIsNone(problem)
        out, _, problem = self.compare("--manifest", self.manifest(2.5), run)
        self.assertIn("a: validation loss is not below the unigram entropy", str(problem))

    def test_runs_without_a_step_are_named_and_left_out(self):
        out, said, problem = self.compare(
            self.started("begun"), self.trained("a"), self.write("torn", [])
        )
        self.assertIsNone(problem)
        self.assertEqual(len(out.splitlines()), 3)
        self.assertEqual(len(said.splitlines()), 2)
        self.assertIn("begun: no metrics.jsonl in it", said)
        self.assertIn("torn/metrics.jsonl: no step is recorded", said)

    def test_fails_where_no_run_has_a_step(self):
        _, _, problem = self.compare(self.started("begun"), self.write("torn", []))
        self.assertIsInstance(problem, NoSteps)
        self.assertIn("begun", str(problem))
        self.assertIn("torn", str(problem))

    def test_a_path_that_is_not_there_is_an_error(self):
        _, _, problem = self.compare(self.trained("a"), str(self.directory / "typo"))
        self.assertIn("typo: No such file or directory", str(problem))

    def test_a_run_without_a_finite_validation_loss_is_an_error(self):
        out, _, problem = self.compare(self.trained("a"), self.trained("diverged", val_loss="nan"))
        self.assertEqual(len(out.splitlines()), 4)
        self.assertEqual(str(problem), "diverged: no finite validation loss")

    def test_a_perplexity_beyond_all_numbers_is_infinite(self):
        out, _, _ = self.compare(self.trained("a", val_loss=1e4))
        self.assertIn("inf", out)

    def test_differences_are_of_every_step_from_the_first_run(self):
        whole = self.trained("whole")
        other = self.write(
            "other",
            [
                {"step": 1, "loss": 4.0, "tokens_per_second": 5.0},
                {"step": 2, "loss": 3.25, "tokens_per_second": 5.0, "val_loss": 3.0},
            ],
        )
        begun = self.write(
            "begun", [{"step": 1, "loss": 4.0, "tokens_per_second": 5.0, "val_loss": 3.0}]
        )
        out, _, problem = self.compare("--differences", whole, other, begun)
        self.assertIsNone(problem)
        self.assertEqual(
            [line.split()[-4:] for line in out.splitlines()[2:]],
            [["2", "of", "2", "0.0e+00"], ["1", "of", "2", "2.5e-01"], ["1", "of", "2", "0.0e+00"]],
        )

    def test_plots_leave_out_the_same_runs(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = labelled_runs([self.started("begun"), f"A={self.trained('a')}"])
        self.assertEqual([label for label, _ in found], ["A"])
        self.assertIn("begun", said.getvalue())


class Panel:
    """Stands in for matplotlib's axes: remembers the lines."""

    def __init__(self):
        self.lines = []

    def plot(self, places, values, **style):
        self.lines.append((list(values), style))

    def bar(self, *_, **__):
        pass

    set = legend = set_xticks = set_xticklabels = bar


class Survival(unittest.TestCase):
    def lines_of(self, draw, *arguments):
        panel = Panel()
        draw(panel, *arguments)
        return panel.lines

    def test_lines_that_are_equal_are_all_seen(self):
        counts = {
            "vanished": [0, 5],
            "sign_changed": [0, 1],
            "left_zero": [0, 1],
            "entered_zero": [0, 1],
        }
        tensors = {
            "proj": {
                "weights": [0, 10],
                "both": counts,
                "additive": counts,
                "multiplicative": counts,
            }
        }
        found = {10: tensors, 20: tensors}
        for lines in (
            self.lines_of(plot_survival.draw_by_magnitude, tensors, [0, 1], 20),
            self.lines_of(plot_survival.draw_vanished, found),
            self.lines_of(plot_survival.draw_crossings, found),
        ):
            self.assertEqual(len(lines), 3)
            self.assertEqual({tuple(values) for values, _ in lines}, {tuple(lines[0][0])})
            widths = [style["linewidth"] for _, style in lines]
            self.assertEqual(
                widths, sorted(set(widths), reverse=True)
            )  # what is drawn later covers less
            for key in ("color", "linestyle", "marker"):
                self.assertEqual(len({style[key] for _, style in lines}), 3)

    def test_shares_are_of_all_weights(self):
        found = {
            10: {
                "a": {"weights": [1, 9], "both": {"vanished": [0, 2]}},
                "b": {"weights": [0, 10], "both": {"vanished": [0, 3]}},
            }
        }
        self.assertEqual(plot_survival.share_over_run(found, "both", "vanished"), ([10], [0.25]))

    def test_sizes_are_those_of_all_tensors_together(self):
        # d = 3, 3, 3, 3 and 0, 1: squares 36 + 1 over 6 weights; e is d / 2 and d.
        found = {
            10: {
                "a": {
                    "weights": [1, 3],
                    "asked_rms": {"both": 3.0},
                    "effective_rms": 1.5,
                    "edq_ratio": 0.5,
                },
                "b": {
                    "weights": [0, 2],
                    "asked_rms": {"both": 0.5**0.5},
                    "effective_rms": 0.5**0.5,
                    "edq_ratio": 1.0,
                },
            },
            20: {
                "a": {
                    "weights": [1, 3],
                    "asked_rms": {"both": 0.0},
                    "effective_rms": 0.0,
                    "edq_ratio": None,
                }
            },
        }
        self.assertTrue(plot_survival.has_sizes(found))
        asked, effective = self.lines_of(plot_survival.draw_sizes, found)
        self.assertAlmostEqual(asked[0][0], (37 / 6) ** 0.5)
        self.assertAlmostEqual(effective[0][0], (10 / 6) ** 0.5)
        self.assertEqual(asked[0][1], 0)
        ((ratios, _),) = self.lines_of(plot_survival.draw_edq, found)
        self.assertEqual(len(ratios), 1)
        self.assertAlmostEqual(ratios[0], 19 / 37)

    def test_runs_of_old_versions_have_no_sizes(self):
        found = {10: {"a": {"weights": [1, 9], "both": {"vanished": [0, 2]}}}}
        self.assertFalse(plot_survival.has_sizes(found))
        self.assertEqual(self.lines_of(plot_survival.draw_sizes, found), [])
        self.assertEqual(self.lines_of(plot_survival.draw_edq, found), [])


if __name__ == "__main__":
    unittest.main()
