#!/usr/bin/env python3
"""Tests of what is said of differences over seeds: Student's distribution, Holm's correction,
intervals, words, diverged runs.

tests/scripts/compare_test.py [CLASS[.TEST] ...]
"""

import math
import pathlib
import tempfile
import unittest

from mpretrain_tools.reproduce import compare, seed_tables, student
from mpretrain_tools.sweeps.configuration import BadConfig
from tables import line_with


class Student(unittest.TestCase):
    def test_quantiles_are_those_of_tables(self):
        for probability, freedom, expected in (
            (0.975, 1, 12.706205),
            (0.975, 2, 4.302653),
            (0.975, 4, 2.776445),
            (0.995, 7, 3.499483),
            (0.975, 30, 2.042272),
            (0.95, 120, 1.657651),
        ):
            with self.subTest(freedom=freedom):
                self.assertAlmostEqual(student.quantile(probability, freedom), expected, delta=5e-7)

    def test_probabilities_in_closed_form(self):
        for t in (0.01, 0.5, 2.0, 4.0, 50.0):
            self.assertAlmostEqual(
                student.two_sided(t, 1), 1 - 2 / math.pi * math.atan(t), delta=1e-13
            )
            self.assertAlmostEqual(
                student.two_sided(-t, 2), 1 - t / math.sqrt(2 + t * t), delta=1e-13
            )
        self.assertEqual(student.two_sided(0, 3), 1)
        self.assertAlmostEqual(
            student.two_sided(2, 2), 0.1835, delta=5e-5
        )  # what "two standard errors" are of three seeds

    def test_incomplete_beta_at_its_ends_and_mirrored(self):
        self.assertEqual([student.incomplete_beta(2, 3, x) for x in (0, 1)], [0, 1])
        self.assertAlmostEqual(
            student.incomplete_beta(2, 3, 0.3), 0.3483, delta=1e-12
        )  # 6x^2 - 8x^3 + 3x^4
        self.assertAlmostEqual(student.incomplete_beta(3, 2, 0.7), 1 - 0.3483, delta=1e-12)

    def test_holm_steps_down_and_never_falls(self):
        for values, expected in (
            ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
            ([0.5, 0.9], [1.0, 1.0]),
            ([0.02], [0.02]),
            ([], []),
        ):
            found = student.holm(values)
            self.assertEqual([round(p, 12) for p in found], expected)


class Differences(unittest.TestCase):
    def test_are_of_pairs_of_a_seed(self):
        found = compare.difference({1: 2.0, 2: 3.0, 3: 9.0}, {1: 2.1, 2: 3.3, 4: 0.0})
        self.assertAlmostEqual(found.mean, -0.2, delta=1e-15)
        self.assertAlmostEqual(
            found.error, 0.1, delta=1e-15
        )  # deviation 0.2/sqrt(2) of two, over sqrt(2)
        self.assertEqual((str(found), found.count, found.freedom), ("-0.2000", "2", 1))
        for end, expected in zip(found.interval, (-0.2 - 1.2706205, -0.2 + 1.2706205)):
            self.assertAlmostEqual(end, expected, delta=5e-8)
        self.assertAlmostEqual(found.p, 1 - 2 / math.pi * math.atan(2), delta=1e-12)

    def test_of_shipped_losses(self):
        """NVFP4 of the main table of pico."""
        found = compare.difference(
            {1: 2.890807, 2: 2.902515, 3: 2.882705}, {1: 2.966581, 2: 2.998236, 3: 2.938230}
        )
        self.assertEqual(
            [f"{value:.4f}" for value in (*found.interval, found.p)],
            ["-0.1256", "-0.0257", "0.0227"],
        )

    def test_without_a_common_seed_are_welchs(self):
        """Sleep of Student (1908), group 1 against 2: R's t.test gives t = -1.8608, df = 17.776, p
        = 0.07939.
        """
        ours = dict(enumerate((0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)))
        theirs = dict(enumerate((1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4), start=100))
        found = compare.difference(ours, theirs)
        self.assertEqual(found.count, "10, 10")
        for value, expected in zip(
            (found.mean / found.error, found.freedom, found.p, *found.interval),
            (-1.8608, 17.776, 0.07939, -3.3654832, 0.2054832),
        ):
            self.assertAlmostEqual(value, expected, delta=1e-4 * abs(expected))
        self.assertFalse(compare.difference({1: 2.0}, {2: 2.0, 3: 2.1}).is_testable)

    def test_of_a_single_seed_have_no_test(self):
        found = compare.difference({1: 2.0}, {1: 2.5})
        self.assertEqual((str(found), found.interval, found.p), ("-0.5000", None, 1.0))
        self.assertTrue(found.is_below())

    def test_of_equal_rows_are_no_division_by_zero(self):
        self.assertEqual(compare.difference({1: 2.0, 2: 3.0}, {1: 2.0, 2: 3.0}).p, 1.0)
        self.assertEqual(compare.difference({1: 2.5, 2: 3.5}, {1: 2.0, 2: 3.0}).p, 0.0)
        self.assertEqual(compare.difference({1: 2.0, 2: 2.0}, {3: 2.0, 4: 2.0}).p, 1.0)

    def test_are_none_where_a_row_has_no_run(self):
        self.assertIsNone(compare.difference({1: 2.0}, {}))
        self.assertIsNone(compare.difference({}, {}))

    def test_a_diverged_seed_is_the_worst_and_is_named(self):
        worse = compare.difference({1: 2.0, 2: math.inf}, {1: 2.5, 2: 2.5})
        self.assertEqual((worse.mean, worse.is_below(), worse.reduction), (math.inf, False, None))
        self.assertEqual(str(worse), "diverged: 1 run, 0 of the other")
        self.assertTrue(compare.difference({1: 2.6, 2: 2.6}, {1: 2.5, 2: math.inf}).is_below())
        self.assertFalse(compare.difference({1: math.inf}, {1: math.inf}).is_below())

    def test_reductions_are_those_of_perplexity(self):
        found = compare.difference(
            {1: math.log(16.607)}, {1: math.log(19.156)}
        )  # the paper's, 350M
        self.assertAlmostEqual(found.reduction, 13.31, delta=0.005)


class Words(unittest.TestCase):
    """Of differences of a mean of -1 over three pairs, that lie so far from one another."""

    @staticmethod
    def of(spread, sign=1):
        return compare.difference(
            {1: -sign - spread, 2: -sign, 3: -sign + spread}, {1: 0, 2: 0, 3: 0}
        )

    def test_follow_the_adjusted_p(self):
        near, far = self.of(0.3), self.of(1.0)  # p = .028 and .23
        self.assertEqual(compare.tested({"a": near})["a"].outcome, "lower")
        self.assertEqual(compare.tested({"a": self.of(0.3, sign=-1)})["a"].outcome, "higher")
        found = compare.tested({"a": near, "b": far, "not run": None})
        self.assertAlmostEqual(found["a"].adjusted, 2 * near.p, delta=1e-15)
        self.assertEqual([one.outcome for one in found.values()], ["no difference shown"] * 2)

    def test_a_single_seed_is_no_test_and_a_diverged_one_is_among_them(self):
        near, single = self.of(0.3), compare.difference({1: 1.0}, {1: 2.0})
        diverged = compare.difference({1: 1.0, 2: 1.0}, {1: 2.0, 2: math.inf})
        found = compare.tested({"a": near, "b": single})
        self.assertEqual((found["a"].adjusted, found["b"].outcome), (near.p, "one seed, no test"))
        found = compare.tested({"a": near, "b": diverged})
        self.assertEqual((found["a"].adjusted, found["b"].outcome), (2 * near.p, "diverged"))

    def test_of_a_table(self):
        lines = compare.tested_table(
            ["row"],
            {
                ("a",): self.of(0.3),
                ("b",): compare.difference({1: math.inf}, {1: 1.0}),
                ("c",): None,
            },
        )
        self.assertEqual(
            line_with(lines, "a")[1:],
            ["3", "-1.0000", "[-1.7452, -0.2548]", "0.029", "0.057", "no difference shown"],
        )
        self.assertEqual(
            line_with(lines, "b")[1:],
            ["1, 1", "diverged: 1 run, 0 of the other", "", "", "", "diverged"],
        )
        self.assertEqual(line_with(lines, "c")[1:], ["", "not run", "", "", "", ""])

    def test_of_a_verdict(self):
        found = {
            "a": self.of(0.1),
            "b": self.of(1.0),
            "c": compare.difference({1: 1.0}, {1: 2.0}),
            "d": compare.difference({1: math.inf}, {1: 1.0}),
        }
        self.assertEqual(
            compare.verdict("It is below", found, "rows"),
            "It is below in the mean in 3 of 4 rows; a difference is shown (Holm-adjusted p below"
            " 0.05) in 1 of them; 1 is of one seed and not tested; d: diverged: 1 run, 0 of the"
            " other.",
        )


class SeedTables(unittest.TestCase):
    HEAD = "regime,optimizer,row,seed,val_loss\n"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name)

    def test_contrasts_are_of_seeds_that_all_rows_have(self):
        losses = {
            "a": {1: 3.0, 2: 3.5, 3: 9.0},
            "b": {1: 2.0, 2: 2.0},
            "c": {1: 1.0, 2: 1.25},
            "d": {2: 1.0, 1: 1.0},
        }
        self.assertEqual(seed_tables.sums("", {"a": 1, "b": -1}, losses), [1.0, 1.5])
        of_gaps = {"a": 1, "b": -1, "c": -1, "d": 1}
        self.assertEqual(seed_tables.sums("", of_gaps, losses), [1.0, 1.25])
        with self.assertRaisesRegex(BadConfig, "gap: found no row z; expected one of a, b, c, d"):
            seed_tables.sums("gap", {"a": 1, "z": -1}, losses)

    def test_another_files_seeds_are_added(self):
        for name, losses in (("one", "1,2.0\nr,o,a,2,2.1"), ("other", "3,2.4")):
            text = f"{self.HEAD}r,o,a,{losses}\nr,o,b,1,2.5\nr,o,b,2,2.5\nr,o,b,3,2.5\n"
            (self.path / f"{name}.csv").write_text(text, encoding="utf-8")
        family = seed_tables.Family("A heading", {"a less b": {"a": 1, "b": -1}}, ["other"])
        page = seed_tables.Page("one", "One", [family])
        lines = seed_tables.tests(page, self.path)
        self.assertEqual(line_with(lines, "a less b")[1:3], ["3", "-0.3333"])

    def test_what_is_no_table_of_losses_is_named(self):
        path = self.path / "x.csv"
        with self.assertRaisesRegex(BadConfig, "x.csv: No such file"):
            seed_tables.read(path)
        path.write_text("regime,row,seed\n", encoding="utf-8")
        with self.assertRaisesRegex(BadConfig, "x.csv:1: no column optimizer, val_loss"):
            seed_tables.read(path)


if __name__ == "__main__":
    unittest.main()
