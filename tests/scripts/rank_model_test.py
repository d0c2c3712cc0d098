#!/usr/bin/env python3
"""Tests of what is said of training over many ranks: that the program counts it, that times follow
from the counts, and that docs/scaling.md has what comes out.

    PYTHONPATH=scripts tests/scripts/rank_model_test.py --program build/cpu/mpretrain [CLASS[.TEST]]
"""

import dataclasses
import pathlib
import re
import unittest
from unittest import mock

from mpretrain_tools import rank_model as m
from mpretrain_tools.rank_model import case, counted, page
from mpretrain_tools.sweeps.configuration import BadConfig
from mpretrain_tools.sweeps.plan import plan
from tested_program import PROGRAM, main

SCALING = pathlib.Path(__file__).resolve().parents[2] / "docs/scaling.md"
PRODUCTS = dataclasses.replace(m.H100, kernel=0.0)


def case_of(regime, ranks, **changes):
    """Of the nano model on a CPU, for which every program plans."""
    shape, batch = m.model("nano")
    return m.Case(PROGRAM[0], shape, batch, regime, ranks=ranks, backend="cpu", **changes)


class Counted(unittest.TestCase):
    def test_shapes_have_the_parameters_that_the_program_counts(self):
        for size in m.SMALL:
            with self.subTest(size=size):
                counted = plan(PROGRAM[0], f"{size}_bf16.json")["parameters"]
                self.assertEqual(m.model(size)[0].parameters, counted)

    def test_formats_are_those_of_the_case(self):
        stored = [case_of(r, 1).counted.stored_bytes for r in ("fp32", "bf16", "fp8", "nvfp4")]
        self.assertEqual(stored, sorted(stored, reverse=True))
        self.assertEqual(stored[0], 4 * m.model("nano")[0].parameters)
        states = {
            optimizer: case_of("bf16", 1, optimizer=optimizer).counted.state_bytes_a_parameter
            for optimizer in ("adamw", "m_plus_adam", "adamw_kahan", "kahan")
        }
        self.assertEqual(list(states.values()), [4, 6, 6, 8])

    def test_one_rank_has_all_and_sends_nothing(self):
        counted = case_of("nvfp4", 1).counted
        self.assertEqual(counted.sent_bytes, 0)
        self.assertEqual(counted.most_elements, m.model("nano")[0].parameters)
        self.assertEqual(counted.total, sum(counted.memory.values()))

    def test_several_exchange_every_group_once(self):
        case = case_of("nvfp4", 3, bucket_mib=1)
        groups = [
            bucket["first_group"] + k
            for bucket in case.counted.buckets
            for k in range(bucket["groups"])
        ]
        self.assertEqual(groups, list(range(case.shape.layers + 2)))
        self.assertGreater(len(case.counted.buckets), 1)
        self.assertGreater(case.counted.sent["gradients"], case.counted.sent["weights"])
        third = case.shape.parameters / 3
        self.assertAlmostEqual(case.counted.most_elements / third, 1, places=1)

    def test_a_program_that_is_not_there_is_named(self):
        case = dataclasses.replace(case_of("bf16", 1), program="no/such/mpretrain")
        with self.assertRaisesRegex(BadConfig, "no/such/mpretrain"):
            self.fail(case.counted)


class Predicted(unittest.TestCase):
    def test_a_step_is_computing_and_what_it_waits_for(self):
        for regime in ("bf16", "nvfp4"):
            one, eight = (m.simulate(case_of(regime, n), m.H100) for n in (1, 8))
            self.assertEqual((one.exposed, one.launches), (0, 0))
            self.assertGreater(eight.exposed, 0)
            self.assertLess(eight.computing, one.computing)
            self.assertLess(m.efficiency(case_of(regime, 8), m.H100), 1)

    def test_without_a_cost_no_step_takes_longer(self):
        case = case_of("nvfp4", 16)
        now = m.simulate(case, m.H100).total
        for change in (m.without_bytes, m.without_latency, m.without_launches):
            self.assertLess(m.simulate(case, change(m.H100)).total, now)

    def test_more_rows_take_proportionally_longer(self):
        case = case_of("fp32", 1)
        batch = dataclasses.replace(case.batch, rows=2 * case.batch.rows)
        twice = dataclasses.replace(case, batch=batch)
        update = m.update_seconds(case, PRODUCTS)
        once = m.simulate(case, PRODUCTS).total - update
        self.assertAlmostEqual((m.simulate(twice, PRODUCTS).total - update) / once, 2)

    def test_sharding_further_holds_less_and_sends_more(self):
        case = case_of("nvfp4", 8)
        two, three = (m.sharded_further(case, weights) for weights in ("whole", "sharded"))
        self.assertLess(three.memory, two.memory)
        self.assertGreater(three.gathers, two.gathers)


def counted_of_any(program, config, ranks, settings):
    """Made up, the same for every case."""
    parts = {
        "bytes": 900,
        "largest_part_bytes": 300,
        "memory_bytes": 800,
        "spans": 9,
        "own_spans": 3,
        "cut_spans": 2,
    }
    buckets = [
        {"first_group": group, "groups": 1, "norm_sums": 5, "reduced": parts, "gathered": parts}
        for group in range(90)
    ]
    return counted.Counted(
        memory=dict.fromkeys(page.DRAWN_PURPOSES, 10**9),
        total=8 * 10**9,
        stored_bytes=10**9,
        state_bytes_a_parameter=6.0,
        micro_batch_rows=1,
        micro_batches=2,
        sent=dict.fromkeys(counted.KINDS, 1000),
        most_elements=10**6,
        buckets=tuple(buckets),
    )


class Tables(unittest.TestCase):
    def test_every_table_has_a_cell_for_each_column(self):
        with mock.patch.object(case, "count", counted_of_any):
            for name, make in page.TABLES.items():
                lines = [line for line in make(page.Cases("none")) if line.startswith("|")]
                with self.subTest(table=name):
                    self.assertGreater(len(lines), 3)
                    self.assertEqual(len({line.count("|") for line in lines}), 1)


class Published(unittest.TestCase):
    """A row of a table stands for all: --verify compares every one, which takes minutes."""

    def setUp(self):
        try:
            self.assertTrue(dataclasses.replace(case_of("bf16", 1), backend="cuda").counted)
        except BadConfig as problem:
            if not re.search("built without CUDA|cuDNN attention is not part", str(problem)):
                raise
            self.skipTest("the page is of a program with CUDA and cuDNN")

    def check_lines(self, lines):
        published = SCALING.read_text(encoding="utf-8").splitlines()
        self.assertEqual([line for line in lines if line not in published], [])

    def test_the_page_has_what_comes_out(self):
        cases = page.Cases(PROGRAM[0])
        with mock.patch.object(page, "SIZES", ["60m"]):
            for make in (page.memory_table, page.traffic_table, page.TABLES["strong"]):
                self.check_lines(make(cases))

    def test_a_table_without_its_place_is_named(self):
        with self.assertRaisesRegex(SystemExit, "no <!-- bytes -->"):
            page.filled("# Nothing\n", page.Cases(PROGRAM[0]))


if __name__ == "__main__":
    main()
