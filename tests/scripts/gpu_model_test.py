#!/usr/bin/env python3
"""Tests of the predicted step on a GPU: that it follows from what the program counts, that costs
cost something, and that docs/benchmarks/gpu_model.md is what comes out.

    PYTHONPATH=scripts tests/scripts/gpu_model_test.py --program build/cpu/mpretrain [CLASS[.TEST]]
"""

import dataclasses
import unittest

from mpretrain_tools.bench import gpu_model
from mpretrain_tools.bench import step_model as m
from tested_program import PROGRAM, main

RATES = [name for name in m.ASSUMED if m.ASSUMED[name].unit in ("TFLOP/s", "TB/s")]


def step(size="60m", regime="bf16", **more):
    return m.Step(PROGRAM[0], size, regime, **more)


class Rates(unittest.TestCase):
    def test_between_known_ones_they_rise_with_the_logarithm(self):
        rates = {512: 500, 2048: 700}
        self.assertEqual(
            [m.at(rates, n) for n in (16, 512, 1024, 2048, 9999)], [500, 500, 600, 700, 700]
        )

    def test_every_assumption_names_its_source(self):
        for name, of in m.ASSUMED.items():
            self.assertTrue(of.what and of.why, name)
            self.assertEqual(vars(m.assumptions())[name], of.value)

    def test_changes_change_one(self):
        a = m.assumptions()
        for name in m.ASSUMED:
            other = vars(m.changed(a, name, 2))
            self.assertEqual([k for k in other if other[k] != vars(a)[k]], [name])


class Predicted(unittest.TestCase):
    def setUp(self):
        self.a = m.assumptions()

    def test_flops_are_those_of_the_plan(self):
        for regime in m.REGIMES:
            one = step(regime=regime)
            gemms = sum(gemm["flops"] for gemm in one.work["gemms"])
            attention = one.work["attention_flops"]["forward"] * 3 * 1024 / 1025
            self.assertAlmostEqual((gemms + attention) / one.plan["flops_per_token"], 1, places=12)

    def test_faster_rates_shorten_what_they_are_of(self):
        for name in RATES:
            if name == "bf16_peak":  # only what shares refer to
                continue
            with self.subTest(name=name):
                now, then = (
                    sum(step(regime=r).seconds(a) for r in ("bf16", "fp8"))
                    for a in (self.a, m.changed(self.a, name, 2))
                )
                self.assertLess(then, now)

    def test_shares_refer_to_the_rate(self):
        one = step()
        of_parts = one.plan["flops_per_step"] / sum(one.parts(self.a).values())
        self.assertAlmostEqual(one.percent(self.a), 100 * of_parts / 688e12)

    def test_micro_batches_are_as_large_as_the_memory_holds(self):
        self.assertEqual(step("1b").micro_batches(m.changed(self.a, "memory", 100)), 1)
        half = step("1b").micro_batches(m.changed(self.a, "memory", 0.5))
        self.assertGreater(half, step("1b").micro_batches(self.a))
        self.assertEqual(step("60m", rows=32).micro_batches(self.a), 4)

    def test_several_micro_batches_cost_sums_kernels_and_perhaps_casts(self):
        whole, parts = (step(regime="fp8", rows=rows).parts(self.a) for rows in (128, 8))
        self.assertEqual(whole["sums of gradients"], 0)
        for name in ("sums of gradients", "gaps, host", "norm, update"):
            self.assertGreater(parts[name], whole[name])
        self.assertGreater(parts["weights to FP8"], 10 * whole["weights to FP8"])
        kept = dataclasses.replace(step(regime="fp8", rows=8), codes="all_layers")
        self.assertLess(kept.parts(self.a)["weights to FP8"], whole["weights to FP8"])

    def test_fp8_multiplies_faster_and_moves_more(self):
        bf16, fp8 = (step("350m", r).parts(self.a) for r in ("bf16", "fp8"))
        self.assertLess(fp8["GEMMs"], bf16["GEMMs"])
        self.assertEqual(fp8["head"], bf16["head"])
        self.assertGreater(fp8["passes, casts"], bf16["passes, casts"])
        self.assertEqual(bf16["weights to FP8"], 0)
        self.assertGreater(
            step(regime="nvfp4").kernels(self.a, 1), step(regime="fp8").kernels(self.a, 1)
        )


class Published(unittest.TestCase):
    def test_the_page_is_what_comes_out(self):
        written = gpu_model.PAGE.read_text(encoding="utf-8")
        self.assertEqual(
            written.splitlines(),
            gpu_model.Page(PROGRAM[0]).text().splitlines(),
            "run scripts/bench.py gpu_model",
        )

    def test_every_other_part_says_that_it_was_not_measured(self):
        written = gpu_model.PAGE.read_text(encoding="utf-8")
        measured = [s for s in written.split("\n## ") if gpu_model.MARK not in s]
        self.assertEqual([s.splitlines()[0] for s in measured], [gpu_model.MEASURED_TITLE])
        for name in m.ASSUMED:
            self.assertEqual(written.count(f"| `{name}` |"), 2, name)


if __name__ == "__main__":
    main()
