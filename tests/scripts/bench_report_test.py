#!/usr/bin/env python3
"""Tests of the benchmark report: what is read from programs, kept, compared with what is stored,
and shown.

tests/scripts/bench_report_test.py [CLASS[.TEST] ...]
"""

import argparse
import contextlib
import io
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from mpretrain_tools.bench import (
    child,
    competitors,
    disturbance,
    goals,
    gpu_check_report,
    growth,
    machine,
    page,
    parts,
    programs,
    ratios,
    report,
    spread,
)
from mpretrain_tools.bench.shapes import SHAPES, configuration, write_tokens

ROOT = pathlib.Path(__file__).resolve().parents[2]


def google(*benchmarks):
    return json.dumps({"context": {}, "benchmarks": list(benchmarks)})


def measured(name, milliseconds=2.0, **counters):
    return {
        "name": name + "/real_time",
        "run_name": name + "/real_time",
        "run_type": "iteration",
        "iterations": 7,
        "threads": 1,
        "repetitions": 1,
        "real_time": milliseconds,
        "cpu_time": 9.0,
        "time_unit": "ms",
        **counters,
    }


def entry(name, label="", **counters):
    return {"name": name, "label": label, "counters": counters}


def record(*rounds, part="step", machine="a"):
    return {
        "part": part,
        "settings": {},
        "commit": "c",
        "machine": {"processor": machine},
        "rounds": [
            {"date": f"2026-01-0{n + 1} 00:00 UTC", "load": 0.5, "benchmarks": list(b)}
            for n, b in enumerate(rounds)
        ],
    }


def running(pid):
    """Not ended, nor a zombie."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


class Place(unittest.TestCase):
    """A directory for files, and a build directory with made-up programs."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name)
        self.build = self.path / "build"

    def program(self, name, text):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def report(self, *more):
        """(exit status, what it printed) of scripts/bench.py report on the made-up build."""
        arguments = [
            "--build",
            self.build,
            "--output",
            self.path / "out",
            "--page",
            self.path / "cpu.md",
            "--ratios",
            self.path / "ratios.json",
            "--only",
            "ops",
            *more,
        ]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            status = report.main([str(a) for a in arguments])
        return status, printed.getvalue()

    def ops_bench(self, *limits):
        """Gives one %limit after another in successive calls, the last one ever after."""
        texts = [google(measured("a/A/x", **{"%limit": limit})) for limit in limits]
        for number, text in enumerate(texts):
            (self.path / f"call_{number}").write_text(text, encoding="utf-8")
        count = self.path / "count"
        count.unlink(missing_ok=True)
        self.program(
            "bench/ops_bench",
            f"""#!/bin/sh
n=$(cat {count} 2>/dev/null || echo 0)
echo $((n + 1)) >{count}
[ $n -lt {len(texts)} ] || n={len(texts) - 1}
cat {self.path}/call_$n
""",
        )

    def calls(self):
        return int((self.path / "count").read_text(encoding="utf-8"))


class Child(Place):
    def test_output_time_and_peak(self):
        code = "b = bytearray(100 << 20); b[::4096] = bytes([1]) * len(b[::4096]); print('said')"
        finished = child.run([sys.executable, "-c", code])
        self.assertEqual(finished.output, "said\n")
        # 100 MiB were touched; an interpreter itself has well below 60.
        self.assertGreater(finished.peak_bytes, 100 << 20)
        self.assertLess(finished.peak_bytes, 160 << 20)
        self.assertGreater(finished.seconds, 0)

    def test_failure_says_who_and_what(self):
        with self.assertRaisesRegex(child.Failed, r"sh: exit status 3: oh dear"):
            child.run(["/bin/sh", "-c", "echo oh dear >&2; exit 3"])
        with self.assertRaisesRegex(child.Failed, "no/such/program: No such file"):
            child.run(["no/such/program"])

    def test_what_hangs_is_stopped(self):
        with self.assertRaisesRegex(child.Failed, "stopped after"):
            child.run(["/bin/sleep", "60"], timeout=0.2)

    def test_a_terminated_script_leaves_nothing_running(self):
        code = (
            "from mpretrain_tools.bench import child\n"
            "child.end_children_when_terminated()\n"
            f"child.run(['/bin/sh', '-c', 'echo $$ >{self.path}/pid; exec sleep 60'])"
        )
        script = subprocess.Popen([sys.executable, "-c", code])
        pid = self.path / "pid"
        while not (pid.exists() and pid.read_text(encoding="utf-8").strip()):
            time.sleep(0.01)
        script.terminate()
        self.assertEqual(script.wait(60), 128 + 15)
        end = time.monotonic() + 60  # whoever adopted it reaps it
        while running(int(pid.read_text(encoding="utf-8"))) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(running(int(pid.read_text(encoding="utf-8"))))

    def test_environment_comes_on_top(self):
        self.assertEqual(
            child.run(
                ["/bin/sh", "-c", "echo $BENCH_TEST $HOME"], {"BENCH_TEST": "x"}
            ).output.strip(),
            f"x {os.environ.get('HOME', '')}".strip(),
        )


class Disturbance(unittest.TestCase):
    def test_what_is_not_ours_counts(self):
        # Not waited for until the clock has stopped, so that it is none of the children that belong
        # to what is measured.
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            with disturbance.Clock() as clock:
                time.sleep(0.5)
            other.kill()
        if not math.isnan(clock.others):  # a kernel that counts
            self.assertGreater(clock.others, 0.2)

    def test_the_first_undisturbed_attempt_counts(self):
        for others, kept, calls in (
            ([0.0, 0.9], 0, 1),
            ([0.5, 0.05, 0.0], 1, 2),
            ([0.5, 0.3, 0.4], 1, 3),
            ([math.nan, 0.0], 0, 1),
        ):
            with unittest.mock.patch.object(
                disturbance.Clock,
                "__exit__",
                lambda clock, *_: setattr(clock, "others", others[len(done) - 1]),
            ):
                done = []
                found, told = disturbance.least_disturbed(
                    lambda: done.append(0) or len(done) - 1, 3
                )
            self.assertEqual((found, len(done)), (kept, calls))
            self.assertEqual(str(told), str(others[kept]))


class Reading(Place):
    def test_counters_and_units(self):
        text = google(
            {
                **measured("A/fp32/adamw", 3.0, **{"tokens/s": 10.0, "%limit": 40.0}),
                "time_unit": "us",
                "label": "l",
            }
        )
        text = text.replace("adamw/real_time", "adamw/process_time/real_time")
        self.assertEqual(
            parts.benchmarks_of(text, "p"),
            [entry("A/fp32/adamw", "l", **{"ms": 0.003, "tokens/s": 10.0, "%limit": 40.0})],
        )

    def test_repetitions_become_their_median_and_aggregates_are_left_out(self):
        aggregate = {**measured("a", 99.0), "run_type": "aggregate", "name": "a_mean"}
        text = google(
            measured("a", 1.0, x=5.0),
            measured("a", 9.0, x=1.0),
            measured("a", 2.0, x=3.0),
            aggregate,
        )
        self.assertEqual(parts.benchmarks_of(text, "p"), [entry("a", ms=2.0, x=3.0)])

    def test_failures_are_kept(self):
        text = google({**measured("a"), "error_occurred": True, "error_message": "no memory"})
        self.assertEqual(parts.benchmarks_of(text, "p"), [entry("a", failed="no memory")])

    def test_none_at_all(self):
        self.assertEqual(parts.benchmarks_of(google(), "p"), [])

    def test_wait_is_the_row_of_data(self):
        table = (
            "operation                        calls         ms    self ms  self %    GFLOP/s  % of"
            " rate\nstep                                 1    100.000      2.000    2.00\n  data   "
            "                            1      0.300      0.300    0.25\n"
        )
        self.assertEqual(parts.waited(table), {"%wait": 0.25})
        self.assertEqual(parts.waited("operation  self %\nstep 1\n"), {})

    def test_something_else_names_the_program(self):
        with self.assertRaisesRegex(child.Failed, "ops_bench: .*benchmark_format=json"):
            parts.benchmarks_of("Segmentation fault", "ops_bench")


class Spread(unittest.TestCase):
    def test_median_and_range(self):
        self.assertEqual(spread.range_text([1.0, 3.0, 2.0]), "2.00 (1.00-3.00)")

    def test_deviation_from_the_range(self):
        # 3 normal values span 1.693 deviations on average (tables of control charts).
        self.assertAlmostEqual(spread.deviation([0.0, 1.693, 1.0]), 1.0)
        self.assertTrue(math.isnan(spread.deviation([1.0])))
        many = [float(i % 5) for i in range(40)]
        self.assertAlmostEqual(spread.deviation(many), statistics.stdev(many))

    def test_tolerance_shrinks_with_rounds_down_to_the_floor(self):
        few, more = spread.tolerance(100.0, 2.0, 3, 3), spread.tolerance(100.0, 2.0, 9, 9)
        # 3 deviations of a difference of two medians of 3: 3 * sqrt(pi/2) * 2 * sqrt(2/3).
        self.assertAlmostEqual(few, 6.14, delta=0.01)
        self.assertAlmostEqual(few / more, math.sqrt(3))
        self.assertEqual(spread.tolerance(100.0, 0.0, 3, 3), 100.0 * spread.FLOOR)


def a_round_of_peers(**changes):
    counters = {
        "ours_fp32": {"tokens/s": 300.0, "peak MiB": 9.0},
        "mpretrain": {"peak MiB": 102.0, "plan MiB": 100.0},
        "pytorch_blis": {"tokens/s": 200.0, "peak MiB": 408.0},
        "pytorch2_eager": {"tokens/s": 250.0, "peak MiB": 306.0},
        "pytorch2_compiled": {"tokens/s": 100.0, "peak MiB": 999.0},
        **changes,
    }
    return [entry(f"A/{key}", key, **values) for key, values in counters.items()]


class Ratios(unittest.TestCase):
    def test_percentages_of_any_program(self):
        found = ratios.of_round(
            "ops",
            [entry("a/A", **{"%limit": 40.0, "GB/s": 3.0, "x_one": 2.0}), entry("b", failed="x")],
        )
        self.assertEqual(found, {"ops: a/A %limit": 40.0, "ops: a/A x_one": 2.0})

    def test_steps_against_their_own_fp32_and_adamw(self):
        found = ratios.of_round(
            "step",
            [
                entry("A/fp32/adamw", **{"tokens/s": 100.0}),
                entry("A/bf16/adamw", **{"tokens/s": 90.0}),
                entry("A/bf16/m_plus_adam", **{"tokens/s": 45.0}),
                entry("B/bf16/adamw", **{"tokens/s": 1.0}),
            ],
        )
        self.assertEqual(
            found,
            {
                "step: A/bf16/adamw / A/fp32/adamw": 0.9,
                "step: A/bf16/m_plus_adam / A/bf16/adamw": 0.5,
            },
        )

    def test_optimizers_by_what_they_take_themselves(self):
        found = ratios.of_round(
            "step",
            [
                entry("A/bf16/adamw", **{"ms": 100.0, "optimizer ms": 2.0}),
                entry("A/bf16/m_plus_adam", **{"ms": 150.0, "optimizer ms": 4.0}),
            ],
        )
        self.assertAlmostEqual(
            found["step: A/bf16/m_plus_adam for its optimizer / A/bf16/adamw"], 100 / 102
        )

    def test_peers(self):
        found = ratios.of_round("peers", a_round_of_peers())
        self.assertEqual(found["peers: A ours_fp32 / pytorch_tuned"], 1.5)
        self.assertEqual(found["peers: A ours_fp32 / pytorch2"], 1.2)  # eager is the faster one
        self.assertEqual(found["peers: A memory of pytorch2 / ours"], 3.0)
        self.assertEqual(
            found["peers: A memory of pytorch_tuned / ours"], 4.0
        )  # of mpretrain, not of the benchmark
        self.assertAlmostEqual(found["peers: A peak / plan"], 1.02)
        self.assertNotIn("peers: A ours_fp32 / llmc", found)

    def test_the_better_way_of_a_peer_counts(self):
        found = ratios.of_round(
            "peers", a_round_of_peers(pytorch_allocator={"tokens/s": 240.0, "peak MiB": 204.0})
        )
        self.assertEqual(found["peers: A ours_fp32 / pytorch_tuned"], 1.25)
        self.assertEqual(found["peers: A memory of pytorch_tuned / ours"], 2.0)

    def test_a_failed_variant_leaves_the_other(self):
        found = ratios.of_round(
            "peers", a_round_of_peers(pytorch2_compiled={"failed": "no compiler"})
        )
        self.assertEqual(found["peers: A ours_fp32 / pytorch2"], 1.2)

    def test_rounds_are_gathered_by_name(self):
        found = ratios.of_parts(
            {"ops": record([entry("a", **{"%x": 1.0})], [entry("a", **{"%x": 3.0})], part="ops")}
        )
        self.assertEqual(found, {"ops: a %x": [1.0, 3.0]})


class Check(Place):
    def test_store_and_compare_both_ways(self):
        stored = ratios.to_store(
            {"ops: a %limit": [50.0, 51.0, 52.0], "profile: l %wait": [1.0, 1.0, 1.0]}, {}
        )
        for now, worse in ((51.0, []), (60.0, []), (46.0, ["ops: a %limit"])):
            verdicts, absent = ratios.compare(stored, {"ops: a %limit": [now] * 3})
            self.assertEqual([v.name for v in verdicts if v.worse], worse)
            self.assertEqual(absent, ["profile: l %wait"])
        for now, worse in ((0.5, False), (1.4, False), (1.6, True)):
            self.assertEqual(ratios.compare(stored, {"profile: l %wait": [now]})[0][0].worse, worse)

    def test_too_few_rounds_to_store(self):
        with self.assertRaisesRegex(ratios.BadStore, "ops: a %limit: 2 rounds; 3 or more"):
            ratios.to_store({"ops: a %limit": [50.0, 51.0]}, {})

    def test_bad_files_are_named(self):
        path = self.path / "ratios.json"
        for text, message in (
            ("{", "ratios.json.*expected"),
            ('{"ratios": {"r": {"value": "x"}}}', "ratios.json"),
            (
                '{"ratios": {"r": {"value": "x", "deviation": 1, "rounds": 3}}}',
                "ratios.json: r: expected numbers",
            ),
        ):
            path.write_text(text, encoding="utf-8")
            with self.assertRaisesRegex(ratios.BadStore, message):
                ratios.read_store(path)
        with self.assertRaisesRegex(ratios.BadStore, "none.json: No such file.*--store"):
            ratios.read_store(self.path / "none.json")

    def test_exit_status_of_the_command(self):
        self.ops_bench(50.0, 51.0, 52.0)
        self.assertEqual(self.report("--store")[0], 0)
        self.assertEqual(self.report("--check")[0], 0)
        self.ops_bench(40.0)
        status, printed = self.report("--check", "--again")
        self.assertEqual(status, 1)
        self.assertIn("worse: ops: a/A/x %limit: 40, stored 51", printed)
        self.ops_bench(80.0)
        self.assertEqual(self.report("--check", "--again")[0], 0)

    def test_parts_are_stored_beside_others(self):
        stored = {"machine": {"a": 1}, "ratios": {"ops: old %limit": {}, "step: x / y": {}}}
        content = {"machine": {"a": 1}, "ratios": {"ops: new %limit": {"value": 1}}}
        self.assertEqual(
            list(ratios.merged(stored, content, ["ops"])["ratios"]),
            ["ops: new %limit", "step: x / y"],
        )
        with self.assertRaisesRegex(ratios.BadStore, "another machine"):
            ratios.merged(stored, {**content, "machine": {"a": 2}}, ["ops"])
        self.ops_bench(50.0, 51.0, 52.0)
        path = self.path / "ratios.json"
        self.report("--store")
        content = json.loads(path.read_text(encoding="utf-8"))
        content["ratios"]["step: x / y"] = {"value": 1, "deviation": 0, "rounds": 3}
        path.write_text(json.dumps(content), encoding="utf-8")
        self.report("--store")
        self.assertEqual(
            list(json.loads(path.read_text(encoding="utf-8"))["ratios"]),
            ["ops: a/A/x %limit", "step: x / y"],
        )

    def test_nothing_to_compare_fails(self):
        self.ops_bench(50.0)
        self.assertEqual(self.report("--check")[0], 1)  # no file
        (self.path / "ratios.json").write_text('{"ratios": {}}', encoding="utf-8")
        self.assertEqual(self.report("--check")[0], 1)


class Machine(Place):
    def test_without_git_the_commit_is_unknown(self):
        with unittest.mock.patch.dict(os.environ, {"PATH": str(self.path)}):
            self.assertEqual(machine.commit(), "unknown")


class Measuring(Place):
    def test_rounds_are_added_and_kept(self):
        self.ops_bench(50.0, 51.0, 52.0)
        self.report("--rounds", 1)
        self.assertEqual(self.calls(), 1)
        self.report("--rounds", 3)
        self.assertEqual(self.calls(), 3)
        self.report("--rounds", 3)
        self.assertEqual(self.calls(), 3)
        kept = parts.Store(self.path / "out").read("ops")
        self.assertEqual(
            [r["benchmarks"][0]["counters"]["%limit"] for r in kept["rounds"]], [50.0, 51.0, 52.0]
        )
        self.assertTrue(all("UTC" in r["date"] and r["load"] >= 0 for r in kept["rounds"]))

    def disturbed_bench(self, *calls):
        """Each call {name: (limit, others)}; a call gives what passes the filter, as the library
        does.
        """
        self.program(
            "bench/ops_bench",
            f"""#!/usr/bin/env python3
import json, pathlib, re, sys
count = pathlib.Path("{self.path}/count")
n = int(count.read_text()) if count.exists() else 0
count.write_text(str(n + 1))
wanted = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--benchmark_filter="))
print(json.dumps({{"benchmarks": [
    {{"name": name + "/real_time", "real_time": 1.0, "time_unit": "ms", "%limit": limit,
      "others": others}}
    for name, (limit, others) in {calls!r}[n].items() if re.search(wanted, name + "/real_time")]}}))
""",
        )

    def kept(self):
        benchmarks = parts.Store(self.path / "out").read("ops")["rounds"][0]["benchmarks"]
        return {b["name"]: (b["counters"]["%limit"], b["others"]) for b in benchmarks}

    def test_what_was_disturbed_is_measured_again_and_nothing_else(self):
        self.disturbed_bench(
            {"a/A": (50.0, 0.0), "a/A.x+y": (20.0, 0.8), "a/B": (21.0, 0.5)},
            {"a/A": (1.0, 0.0), "a/A.x+y": (30.0, 0.05), "a/B": (22.0, 0.7)},
            {"a/A": (1.0, 0.0), "a/A.x+y": (2.0, 0.0), "a/B": (40.0, 0.1)},
        )
        self.report("--rounds", 1)
        self.assertEqual(
            self.kept(), {"a/A": (50.0, 0.0), "a/A.x+y": (30.0, 0.05), "a/B": (40.0, 0.1)}
        )
        self.assertEqual(self.calls(), 3)

    def test_after_the_last_attempt_the_least_disturbed_counts_and_is_told(self):
        self.disturbed_bench({"a": (20.0, 0.8)}, {"a": (30.0, 0.2)}, {"a": (25.0, 0.5)})
        self.report("--rounds", 1, "--attempts", 3)
        self.assertEqual(self.kept(), {"a": (30.0, 0.2)})
        self.assertIn(
            "| 1 of 1, up to 0.20 cores |", (self.path / "cpu.md").read_text(encoding="utf-8")
        )

    def test_other_settings_begin_anew(self):
        self.ops_bench(50.0)
        self.report("--rounds", 2)
        self.report("--rounds", 1, "--quick")  # another filter
        self.assertEqual(len(parts.Store(self.path / "out").read("ops")["rounds"]), 1)

    def test_unfinished_rounds_of_another_commit_are_not_added_to(self):
        self.ops_bench(50.0)
        self.report("--rounds", 1)
        store = parts.Store(self.path / "out")
        store.write("ops", {**store.read("ops"), "commit": "older"})
        self.report("--rounds", 1)
        self.assertEqual(store.read("ops")["commit"], "older")  # complete: stays
        self.report("--rounds", 2)
        self.assertEqual(self.calls(), 3)

    def test_complete_rounds_of_another_commit_are_not_compared(self):
        self.ops_bench(50.0)
        self.report("--rounds", 1, "--store")
        store = parts.Store(self.path / "out")
        store.write("ops", {**store.read("ops"), "commit": "older"})
        self.ops_bench(40.0)
        self.assertEqual(self.report("--rounds", 1, "--check")[0], 1)
        self.assertNotEqual(store.read("ops")["commit"], "older")

    def test_what_is_missing_is_said(self):
        self.report()
        text = (self.path / "cpu.md").read_text(encoding="utf-8")
        self.assertIn("Nothing was measured", text)
        parts.Store(self.path / "out").write("step", record([entry("A/fp32/adamw", ms=1.0)]))
        self.report()
        text = (self.path / "cpu.md").read_text(encoding="utf-8")
        self.assertIn("| ops | missing: ops_bench is not built", text)
        self.assertIn("Missing: ops_bench is not built", text)

    def test_a_program_that_fails_is_missing_with_its_words(self):
        parts.Store(self.path / "out").write("step", record([entry("A/fp32/adamw", ms=1.0)]))
        self.program("bench/ops_bench", "#!/bin/sh\necho out of luck >&2\nexit 1\n")
        self.report()
        self.assertIn("out of luck", (self.path / "cpu.md").read_text(encoding="utf-8"))


class Page(unittest.TestCase):
    def test_tables_are_by_counters_and_failures_are_listed(self):
        one = [
            entry("a", **{"ms": 1.0, "GB/s": 5.0}),
            entry("b", **{"ms": 4.0, "GB/s": 7.0}),
            entry("c", ms=2.0),
            entry("d", failed="x|y"),
        ]
        two = [entry("a", **{"ms": 3.0, "GB/s": 5.0})]
        lines = page.counter_tables(record(one, two))
        self.assertIn("| benchmark | ms | GB/s |", lines)
        self.assertIn("| a | 2.00 (1.00–3.00) | 5.00 (5.00–5.00) |", lines)
        self.assertIn("| benchmark | ms |", lines)
        self.assertIn("* d: failed: x\\|y", lines)

    def test_goals_reached_missed_and_missing(self):
        found = ratios.of_parts({"peers": record(a_round_of_peers(), part="peers")})
        text = "\n".join(page.goal_table(found))
        self.assertIn("| peers: A ours_fp32 / pytorch_tuned | 1.50 | at least 1.12 | yes |", text)
        self.assertIn("| peers: A peak / plan | 1.02 | at least 0.95, at most 1.05 | yes |", text)
        self.assertIn("| FP32 step against its bound, % |  | – |  | **missing** |", text)
        slow = [
            entry(b["name"], **{**b["counters"], "tokens/s": 201.0})
            for b in a_round_of_peers()
            if b["name"] == "A/ours_fp32"
        ]
        found = ratios.of_parts({"peers": record([*a_round_of_peers()[1:], *slow], part="peers")})
        self.assertIn("| 1.00 | at least 1.12 | **no** |", "\n".join(page.goal_table(found)))

    def test_a_bound_by_shape(self):
        found = goals.outcomes(
            {
                "peers: C ours_fp32 / pytorch_tuned": [1.07],
                "peers: B ours_fp32 / pytorch_tuned": [1.07],
            }
        )
        self.assertEqual([o.reached for o in found if o.name], [True, False])

    def test_peers_in_words(self):
        labelled = [
            *a_round_of_peers(),
            entry("A/llmc", "llm.c, GPT-2 (another model)", failed="no cc"),
            entry("missing/0", failed="none"),
        ]
        lines = page.peer_lines(record(labelled, part="peers"))
        self.assertIn("| A | pytorch_blis | 200 | 1.50 (1.50-1.50) | 408 | – |", lines)
        self.assertIn("| A | pytorch2_compiled | 100 | 3.00 (3.00-3.00) | 999 | – |", lines)
        self.assertIn("* A, llm.c, GPT-2 (another model): failed: no cc", lines)
        self.assertIn("* Missing: none", lines)

    def test_parts_of_two_machines_are_told_apart(self):
        both = {
            "step": record([entry("a", ms=1.0)]),
            "ops": record([entry("a", ms=1.0)], part="ops", machine="b"),
        }
        self.assertIn("Not all parts were measured on this machine", page.report(both, {}))
        self.assertNotIn("Not all parts", page.report({"step": both["step"]}, {}))

    def test_what_stands_around_the_marks_stays(self):
        first = page.placed("# Title\n\nBefore.\n", page.report({}, {}))
        second = page.placed(first + "\nAfter.\n", page.BEGIN + "\nnew\n" + page.END + "\n")
        self.assertTrue(second.startswith("# Title\n\nBefore.\n"))
        self.assertTrue(second.endswith("\nAfter.\n"))
        self.assertIn("new", second)
        self.assertNotIn("Nothing was measured", second)

    def test_directories_of_the_machine_are_left_out(self):
        found = page.public(
            {
                "a": ["/usr/bin/cc: no /tmp/x1/y.c, A/fp32/adamw / B", 1.5],
                "b": "src/a.cpp\n/opt/b/c",
            }
        )
        self.assertEqual(found, {"a": ["cc: no y.c, A/fp32/adamw / B", 1.5], "b": "src/a.cpp\nc"})

    def test_digits(self):
        self.assertEqual(
            [page.digits(x) for x in (0.0, 0.01234, 1.0, 56.78, 999.4, 12345.6)],
            ["0", "0.0123", "1.00", "56.8", "999", "12,346"],
        )


class Files(Place):
    def test_tokens_are_a_shard_of_llm_c(self):
        for count in (1, 70000):
            content = write_tokens(self.path / "t.bin", count, 500).read_bytes()
            self.assertEqual(struct.unpack("<3i", content[:12]), (20240520, 1, count))
            tokens = struct.unpack(f"<{count}H", content[1024:])
            self.assertLess(max(tokens), 500)

    def test_checkpoint_of_gpt2_has_every_parameter(self):
        shape = SHAPES["A"]._replace(hidden=4, layers=2, heads=1, vocab=130, length=3)
        competitors.write_gpt2(self.path / "g.bin", shape)
        # train_gpt2.c: V' and T rows of C; 12 C^2 + 13 C of a layer; 2 C at the end.
        expected = 256 * 4 + 3 * 4 + 2 * (12 * 16 + 13 * 4) + 2 * 4
        content = (self.path / "g.bin").read_bytes()
        self.assertEqual(len(content), 1024 + 4 * expected)
        self.assertEqual(struct.unpack("<8i", content[:32]), (20240326, 3, 3, 130, 2, 1, 4, 256))

    def test_sections_are_merged_into_a_configuration(self):
        config = configuration(
            SHAPES["A"], "n", "t", "o", 3, device={"threads": 2}, batch={"tokens_per_step": 512}
        )
        self.assertEqual(config["device"], {"type": "cpu", "threads": 2})
        self.assertEqual(config["batch"], {"seq_len": 256, "tokens_per_step": 512})


class GpuCheck(Place):
    """The report on a GPU says which attention its steps ran with."""

    def said(self, *attention):
        raw = self.path / "raw"
        raw.mkdir(exist_ok=True)
        (raw / "steps_60m.json").write_text(json.dumps([{"attention": one} for one in attention]))
        return gpu_check_report.attention_text(gpu_check_report.Raw(raw))

    def test_figures_of_another_commit_are_not_shown_as_this_ones(self):
        directory = self.path / "raw"
        directory.mkdir()
        (directory / "machine.txt").write_text("commit: new\n", encoding="utf-8")
        (directory / "steps_60m.json").write_text("[]", encoding="utf-8")
        for commit, found in (("new", []), ("old", None)):
            log = f"command: x\ncommit: {commit}\n"
            (directory / "steps_60m.log").write_text(log, encoding="utf-8")
            self.assertEqual(gpu_check_report.Raw(directory).json("steps_60m"), found)

    def test_attention(self):
        raw = gpu_check_report.Raw(self.path / "raw")
        self.assertEqual(gpu_check_report.attention_text(raw), "not measured")
        self.assertIn(("attention of the steps", "not measured"), gpu_check_report.correctness(raw))
        self.assertEqual(self.said("cuDNN 9.19.0", "cuDNN 9.19.0"), "cuDNN 9.19.0")
        self.assertEqual(
            self.said("cuDNN 9.19.0", "GEMMs (this build has no cuDNN attention)"),
            "**GEMMs (this build has no cuDNN attention); cuDNN 9.19.0**",
        )
        self.assertEqual(self.said(""), "not measured")  # on a CPU


class Growth(Place):
    def test_slope_of_a_power(self):
        self.assertAlmostEqual(growth.slope([1, 2, 4, 8], [3 * x**1.5 for x in (1, 2, 4, 8)]), 1.5)
        self.assertTrue(math.isnan(growth.slope([1], [2])))
        self.assertTrue(math.isnan(growth.slope([2, 2], [1, 3])))

    def test_results_are_kept_by_point_and_round(self):
        ledger = growth.Ledger(self.path / "growth.json")
        calls = []

        def measure():
            calls.append(1)
            return {"seconds": 1.0}

        for _ in range(2):
            ledger.measured("batch", 4, 0, measure)
        growth.Ledger(self.path / "growth.json").measured("batch", 4, 0, measure)
        self.assertEqual(len(calls), 1)
        ledger.measured("batch", 4, 1, measure)
        self.assertEqual(len(calls), 2)
        self.assertEqual(ledger.values("batch", 4, "seconds"), [1.0, 1.0])

    def test_expected_slope_is_that_of_the_operations(self):
        axis = next(a for a in growth.AXES if a.name == "batch")
        self.assertAlmostEqual(
            growth.slope(*zip(*growth.expected_points(axis, "seconds", axis.points))), 1.0
        )


class Programs(unittest.TestCase):
    def rounds(self, measure):
        args = argparse.Namespace(
            program=[("a", "x"), ("b", "xxx")], config=["c", "d"], rounds=2, attempts=1, steps=9
        )
        with unittest.mock.patch.object(programs, "tokens_per_second", measure):
            return list(programs.measured_rounds(args))

    def test_every_program_is_measured_and_compared_with_the_first(self):
        rounds = self.rounds(lambda path, *_: {"tokens/s": 1e3 * len(path)})
        rows = list(programs.table_rows("d", ["a", "b"], rounds))
        self.assertEqual([row[:2] for row in rows], [("d", "a"), ("d", "b")])
        self.assertEqual(rows[1][2:4], ("3,000 (3,000–3,000)", "3.000 (3.000-3.000)"))

    def test_what_fails_ends_all(self):
        def failing(path, *_):
            raise child.Failed(f"{path} has failed")

        with self.assertRaisesRegex(child.Failed, "x has failed"):
            self.rounds(failing)


if __name__ == "__main__":
    unittest.main()
