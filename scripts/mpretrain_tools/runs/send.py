"""Sends what a run recorded to a tracker: Weights & Biases, MLflow or Trackio.

    scripts/send_run.py runs/nano --to wandb --project llama    # also with WANDB_MODE=offline
    scripts/send_run.py runs/nano --to mlflow --follow          # to MLFLOW_TRACKING_URI
    scripts/send_run.py runs/nano --to trackio --project llama --follow --every 10

Reads metrics.jsonl and config.json and never changes them, while the run trains or afterwards. With
--follow it waits for more records until the last step of the configuration, or Ctrl-C. Given again,
it goes on where it was: sent_to_TRACKER.json in the run's directory has how far that is. Steps that
a resumed run repeats alike are not sent again. Where the run went back and took another course, or
sending was killed half-way, everything is sent once more as another run of the tracker, and the one
before is deleted; Weights & Biases cannot do that from here, so that its name is told. Values that
are not finite are left out.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import math
import pathlib
import re
import secrets
import time

from ..files import write_whole
from .metrics import BadRun, Run

# The time of a step differs where the step is the same.
OF_A_CLOCK = {"tokens_per_second", "step_seconds"}
OWN_TAGS = {"step", "event"}


def finite_numbers(values):
    """The (key, number) of a dict whose values are finite numbers."""
    for key, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            yield key, float(value)


def scalars(record):
    """{tag: value} of a record, by the tags of the event files for TensorBoard."""
    found = {}
    for key, value in finite_numbers(record):
        if key.startswith("val_"):
            found["validation/" + key.removeprefix("val_")] = value
        elif key not in OWN_TAGS:
            found["train/" + key] = value
    sets = record.get("validation")
    for name, figures in sets.items() if isinstance(sets, dict) else ():
        if isinstance(figures, dict):
            found.update(
                (f"validation/{name}/{key}", value) for key, value in finite_numbers(figures)
            )
    return found


class Followed(Run):
    """A run whose records are read as they come."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = path / "metrics.jsonl" if path.is_dir() else path
        self.directory = self.path.parent
        self.name = self.directory.resolve().name
        self.steps, self.offset = {}, 0
        self.went_back = False  # since its reader last said that it did not
        if not self.path.is_file() and not (self.directory / "config.json").is_file():
            raise BadRun(
                f"{path}: no config.json and no metrics.jsonl in it; expected a run's directory"
            )

    def _take(self, line):
        count = len(self.steps)
        super()._take(line)
        self.went_back |= len(self.steps) < count

    def read_on(self):
        """Takes the whole lines that were added."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self.offset += len(line)
                    if line.strip():
                        self._take(line.decode("utf-8", errors="replace"))
        except FileNotFoundError:
            pass

    def last_step(self):
        return max(self.steps, default=0)

    def config(self):
        return self._json_beside("config.json")

    def planned_steps(self):
        """None if it is not known."""
        plan = self._json_beside("report.json").get("plan")
        steps = plan.get("steps") if isinstance(plan, dict) else None
        return steps if isinstance(steps, int) else None

    def _json_beside(self, name):
        path = self.directory / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError) as problem:
            raise BadRun(f"{path}: {problem}; expected JSON that a run wrote") from problem
        if not isinstance(found, dict):
            raise BadRun(f"{path}: not a JSON object; expected JSON that a run wrote")
        return found

    def hash_steps(self, found, after, last):
        """Adds what the steps above `after`, up to `last`, computed."""
        for step in sorted(step for step in self.steps if after < step <= last):
            kept = {k: v for k, v in self.steps[step].items() if k not in OF_A_CLOCK}
            found.update(json.dumps(kept, sort_keys=True).encode())


def flat(config, before=""):
    """{"a.b": value} of nested dicts."""
    found = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{before}{key}."))
        else:
            found[before + key] = value
    return found


# --- trackers: open() starts or continues a run of theirs, send() takes [(step, {tag: value})] ---


class Logged:
    """A tracker whose run takes all values of a step at once."""

    def send(self, points):
        for step, values in points:
            self.run.log(values, step=step)

    def close(self):
        self.run.finish()


class Wandb(Logged):
    def __init__(self, module, options):
        self.module, self.options = module, options

    def open(self, name, identity, config):
        self.run = self.module.init(
            project=self.options.project, name=name, id=identity, config=config, resume="allow",
            dir=self.options.directory, settings=self.module.Settings(console="off"),
        )  # fmt: skip
        return identity

    def drop(self, identity):
        print(f"the run {identity} of Weights & Biases is superseded; delete it there")


class Mlflow:
    MOST_METRICS, MOST_PARAMS, MOST_CHARACTERS = 1000, 100, 500

    def __init__(self, module, options):
        self.entities = importlib.import_module("mlflow.entities")
        self.client, self.project = module.MlflowClient(), options.project

    def open(self, name, identity, config):
        if identity:
            self.identity = identity
            return identity
        found = self.client.get_experiment_by_name(self.project)
        experiment = found.experiment_id if found else self.client.create_experiment(self.project)
        self.identity = self.client.create_run(experiment, run_name=name).info.run_id
        params = [
            self.entities.Param(self.plain(key), str(value)[: self.MOST_CHARACTERS])
            for key, value in flat(config).items()
        ]
        for begin in range(0, len(params), self.MOST_PARAMS):
            self.client.log_batch(self.identity, params=params[begin : begin + self.MOST_PARAMS])
        return self.identity

    @staticmethod
    def plain(key):
        return re.sub(r"[^\w\-. /]", "_", key, flags=re.ASCII)

    def send(self, points):
        now = int(time.time() * 1000)
        metrics = [
            self.entities.Metric(self.plain(key), value, now, step)
            for step, values in points
            for key, value in values.items()
        ]
        for begin in range(0, len(metrics), self.MOST_METRICS):
            self.client.log_batch(self.identity, metrics=metrics[begin : begin + self.MOST_METRICS])

    def close(self):
        self.client.set_terminated(self.identity)

    def drop(self, identity):
        self.client.delete_run(identity)


class Trackio(Logged):
    def __init__(self, module, options):
        self.module, self.project = module, options.project

    def open(self, name, identity, config):
        self.run = self.module.init(
            project=self.project, name=identity, config=config, resume="allow", embed=False,
            auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip
        return identity

    def drop(self, identity):
        for run in importlib.import_module("trackio").Api().runs(self.project):
            if run.name == identity:
                run.delete()


TRACKERS = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}


def tracker_of(name, options):
    tracker = TRACKERS[name]
    try:
        module = importlib.import_module(name)
    except ImportError as problem:
        raise BadRun(
            f"--to {name} needs the Python package {name}, which cannot be imported ({problem});"
            f" install it: python3 -m pip install {name}"
        ) from problem
    return tracker(module, options)


# --- how far a run was sent ----------------------------------------------------------------------


class Sent:
    """The state file: which run of the tracker, up to which step, and whether a kill may have left
    some of the steps behind it there.
    """

    def __init__(self, path):
        self.path = path
        self._clear()
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            self.identity, self.step = str(state["run"]), int(state["step"])
            self.digest, self.sending = state["digest"], bool(state["sending"])
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as problem:
            raise BadRun(
                f"{path}: not written by this script; remove it to send all as another run"
            ) from problem

    def _clear(self):
        self.identity, self.step, self.digest, self.sending = None, 0, None, False

    def forget(self):
        self._clear()
        self.path.unlink(missing_ok=True)

    def save(self):
        state = {
            "run": self.identity,
            "step": self.step,
            "digest": self.digest,
            "sending": self.sending,
        }
        write_whole(self.path, json.dumps(state) + "\n")


class Sender:
    def __init__(self, run, name, options):
        self.run, self.name = run, name
        self.tracker = tracker_of(name, options)
        self.sent = Sent(run.directory / f"sent_to_{name}.json")
        self.is_open = False
        self.hashed = hashlib.sha256()  # of the steps that were sent

    def took_another_course(self):
        """Whether what was sent is not what the run now has."""
        self.hashed = hashlib.sha256()
        self.run.hash_steps(self.hashed, 0, self.sent.step)
        return self.sent.sending or self.sent.digest != self.hashed.hexdigest()

    def begin_again(self):
        """Leaves the tracker's run that holds other values, for a new one."""
        self.close()
        self.tracker.drop(self.sent.identity)
        self.sent.forget()
        self.hashed = hashlib.sha256()

    def open(self):
        if self.is_open:
            return
        identity = self.sent.identity
        if identity is None and self.name != "mlflow":  # which makes its own
            identity = (
                f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.run.name)[:80]}-{secrets.token_hex(4)}"
            )
        self.sent.identity = self.tracker.open(self.run.name, identity, self.run.config())
        self.is_open = True

    def send_new(self):
        """Returns how many steps were sent."""
        new = [
            (step, scalars(record))
            for step, record in sorted(self.run.steps.items())
            if step > self.sent.step
        ]
        if not new:
            return 0
        self.open()
        self.sent.sending = True
        self.sent.save()
        self.tracker.send(new)
        self.run.hash_steps(self.hashed, self.sent.step, new[-1][0])
        self.sent.step = new[-1][0]
        self.sent.digest, self.sent.sending = self.hashed.hexdigest(), False
        self.sent.save()
        return len(new)

    def close(self):
        if self.is_open:
            self.tracker.close()
        self.is_open = False


def send(sender, follow, every):
    """Returns how many steps were sent."""
    run, total = sender.run, 0
    run.went_back = sender.sent.identity is not None  # it may have, since
    while True:
        run.read_on()
        # What a resumed run has not repeated yet cannot be told from another course.
        repeating = follow and run.last_step() < sender.sent.step
        if run.went_back and not repeating:
            run.went_back = False
            if sender.took_another_course():
                sender.begin_again()
        if not repeating:
            total += sender.send_new()
        planned = run.planned_steps()
        if not follow or (planned and run.last_step() >= planned and not repeating):
            return total
        time.sleep(every)


@contextlib.contextmanager
def failures_of(name):
    """What a tracker's library throws becomes one line."""
    try:
        yield
    except (BadRun, OSError):
        raise
    except Exception as problem:
        first = (str(problem).splitlines() or [""])[0]
        raise BadRun(f"{name}: {type(problem).__name__}: {first}") from problem


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="\n\n".join(__doc__.split("\n\n")[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", help="the directory of a run")
    parser.add_argument("--to", choices=sorted(TRACKERS), required=True, help="the tracker")
    parser.add_argument(
        "--project", default="mpretrain", help="project or experiment there [mpretrain]"
    )
    parser.add_argument("--follow", action="store_true", help="go on while the run trains")
    parser.add_argument(
        "--every", type=float, default=10, metavar="SECONDS", help="between looks [10]"
    )
    options = parser.parse_args()
    if not 0 < options.every <= 86400:
        parser.error(f"--every {options.every}: expected seconds, more than 0 and at most a day")
    run = Followed(options.run)
    options.directory = str(run.directory)
    total = None
    with failures_of(options.to):
        sender = Sender(run, options.to, options)
        try:
            total = send(sender, options.follow, options.every)
        except KeyboardInterrupt:
            pass  # what is half sent is known by the state file
        finally:
            sender.close()
    if not run.steps:
        raise BadRun(f"{run.path}: no step is recorded in it, so nothing was sent")
    if total is not None:
        print(
            f"{run.name}: {total} steps sent, up to {sender.sent.step}, as {sender.sent.identity}"
        )
    return 0
