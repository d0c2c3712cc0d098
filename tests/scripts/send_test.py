#!/usr/bin/env python3
"""Tests of what sends a run's records to trackers: with a tracker that remembers what it is told,
and with those that are installed.

tests/scripts/send_test.py [CLASS[.TEST] ...]
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

from mpretrain_tools.runs import send
from mpretrain_tools.runs.metrics import BadRun


class Remembering:
    """Stands in for the package trackio. A run is {(tag, step): [value, ...]}."""

    def __init__(self):
        self.runs, self.deleted, self.die_at = {}, [], None

    def module(self):
        module = types.ModuleType("trackio")
        module.init, module.Api = self.init, lambda: types.SimpleNamespace(runs=self.listed)
        return module

    def init(self, *, project, name, config, **_):
        points = self.runs.setdefault(name, {})

        def log(values, step):
            if step == self.die_at:
                raise KeyboardInterrupt
            for tag, value in values.items():
                points.setdefault((tag, step), []).append(value)

        return types.SimpleNamespace(log=log, finish=lambda: None)

    def listed(self, project):
        return [
            types.SimpleNamespace(name=name, delete=lambda name=name: self._delete(name))
            for name in list(self.runs)
        ]

    def _delete(self, name):
        self.deleted.append(name)
        del self.runs[name]


class Sending(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="send_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.run = self.directory / "a run"
        self.run.mkdir()
        (self.run / "config.json").write_text('{"name": "a run", "train": {"steps": 6}}')
        (self.run / "report.json").write_text('{"plan": {"steps": 6}}')
        self.tracker = Remembering()
        modules = mock.patch.dict(sys.modules, {"trackio": self.tracker.module()})
        modules.start()
        self.addCleanup(modules.stop)

    def add(self, *records):
        with open(self.run / "metrics.jsonl", "a", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record) + "\n")

    def steps(self, first, last, loss=1.0):
        self.add(
            *({"step": s, "loss": loss * s, "data_hash": "0f", "tokens_per_second": time.time()}
              for s in range(first, last + 1))
        )  # fmt: skip

    def back_to(self, step):
        self.add({"event": "resume", "step": step})

    def send(self, *more, to="trackio"):
        arguments = ["send_run.py", str(self.run), "--to", to, *more]
        with (
            mock.patch.object(sys, "argv", arguments),
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            self.assertEqual(send.main(), 0)
        return said.getvalue()

    def losses(self):
        """{step: loss} of the only run, each once."""
        self.assertEqual(len(self.tracker.runs), 1)
        (points,) = self.tracker.runs.values()
        for place, values in points.items():
            self.assertEqual(len(values), 1, place)
        return {step: values[0] for (tag, step), values in points.items() if tag == "train/loss"}


class Once(Sending):
    def test_all_scalars_by_tag(self):
        self.add(
            {"step": 1, "loss": 2.5, "lr": 1, "data_hash": "0f", "skipped": True, "grad_norm": None,
             "val_loss": 3.5, "validation": {"books": {"loss": 4.5}}}
        )  # fmt: skip
        self.assertIn("1 steps sent, up to 1", self.send())
        (points,) = self.tracker.runs.values()
        self.assertEqual(
            points,
            {("train/loss", 1): [2.5], ("train/lr", 1): [1.0], ("validation/loss", 1): [3.5],
             ("validation/books/loss", 1): [4.5]},
        )  # fmt: skip

    def test_given_again_it_sends_what_is_new(self):
        self.steps(1, 3)
        self.send()
        self.assertIn("0 steps sent, up to 3", self.send())
        self.steps(4, 5)
        self.assertIn("2 steps sent, up to 5", self.send())
        self.assertEqual(self.losses(), {s: float(s) for s in range(1, 6)})

    def test_a_resumed_run_that_repeats_its_steps(self):
        self.steps(1, 4)
        self.send()
        self.back_to(2)
        self.steps(3, 6)
        self.send()
        self.assertEqual(self.losses(), {s: float(s) for s in range(1, 7)})
        self.assertEqual(self.tracker.deleted, [])

    def test_a_run_that_took_another_course(self):
        self.steps(1, 4)
        self.send()
        (first,) = self.tracker.runs
        self.back_to(2)
        self.steps(3, 6, loss=10.0)
        self.send()
        self.assertEqual(self.tracker.deleted, [first])
        self.assertEqual(self.losses(), {1: 1, 2: 2, 3: 30, 4: 40, 5: 50, 6: 60})

    def test_a_run_that_went_back_and_is_sent_before_it_caught_up(self):
        self.steps(1, 4)
        self.send()
        self.back_to(2)
        self.send()
        self.assertEqual(self.losses(), {1: 1, 2: 2})

    def test_sending_that_was_killed_half_way(self):
        self.steps(1, 4)
        self.tracker.die_at = 3
        self.send()
        self.tracker.die_at = None
        self.send()
        self.assertEqual(self.losses(), {s: float(s) for s in range(1, 5)})

    def test_a_line_that_is_being_written_waits(self):
        self.steps(1, 1)
        with open(self.run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 2, "lo')
        self.send()
        with open(self.run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('ss": 9}\n')
        self.send()
        self.assertEqual(self.losses(), {1: 1, 2: 9})


class Following(Sending):
    def test_through_a_resume_and_another_course(self):
        self.steps(1, 2)
        thread = threading.Thread(target=self.send, args=("--follow", "--every", "0.01"))
        thread.start()

        def until(count):
            end = time.monotonic() + 20
            while sum(len(points) // 2 for points in self.tracker.runs.values()) != count:
                self.assertLess(time.monotonic(), end, self.tracker.runs)
                time.sleep(0.005)

        until(2)
        self.steps(3, 4)
        until(4)
        self.back_to(2)
        time.sleep(0.05)
        until(4)
        self.steps(3, 5, loss=7.0)
        until(5)
        self.steps(6, 6)
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertEqual(self.losses(), {1: 1, 2: 2, 3: 21, 4: 28, 5: 35, 6: 6})


class Refusal(Sending):
    def refused(self, *arguments, **options):
        with self.assertRaises(BadRun) as caught:
            self.send(*arguments, **options)
        return str(caught.exception)

    def test_a_package_that_is_missing(self):
        self.steps(1, 1)
        with mock.patch.dict(sys.modules, {"wandb": None}):
            said = self.refused(to="wandb")
        self.assertIn("--to wandb needs the Python package wandb", said)
        self.assertIn("pip install wandb", said)

    def test_a_directory_that_is_no_run(self):
        self.run = self.directory
        self.assertIn("expected a run's directory", self.refused())

    def test_a_run_without_a_step(self):
        self.assertIn("no step is recorded in it", self.refused())

    def test_a_state_of_another_kind(self):
        self.steps(1, 1)
        (self.run / "sent_to_trackio.json").write_text("[]")
        self.assertIn("sent_to_trackio.json: not written by this script", self.refused())

    def test_a_tracker_that_fails(self):
        self.steps(1, 1)
        sys.modules["trackio"].init = mock.Mock(side_effect=RuntimeError("is down\nsince noon"))
        self.assertEqual(self.refused(), "trackio: RuntimeError: is down")


@unittest.skipUnless(importlib.util.find_spec("mlflow"), "mlflow is not installed")
class InMlflow(Sending):
    def test_a_run_that_took_another_course(self):
        place = {
            "MLFLOW_TRACKING_URI": (self.directory / "mlruns").as_uri(),
            "MLFLOW_ALLOW_FILE_STORE": "true",
        }
        with mock.patch.dict(os.environ, place):
            import mlflow

            mlflow.set_tracking_uri(place["MLFLOW_TRACKING_URI"])
            self.steps(1, 3)
            self.send(to="mlflow")
            self.back_to(2)
            self.steps(3, 5)
            self.send(to="mlflow")
            self.back_to(1)
            self.steps(2, 4, loss=10.0)
            self.send(to="mlflow")
            client = mlflow.MlflowClient()
            experiment = client.get_experiment_by_name("mpretrain")
            (run,) = client.search_runs([experiment.experiment_id])
            history = client.get_metric_history(run.info.run_id, "train/loss")
            self.assertEqual(
                sorted((point.step, point.value) for point in history),
                [(1, 1), (2, 20), (3, 30), (4, 40)],
            )
            self.assertEqual(run.data.params["train.steps"], "6")


if __name__ == "__main__":
    unittest.main()
