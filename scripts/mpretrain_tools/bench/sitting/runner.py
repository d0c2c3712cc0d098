"""Runs units of work within a budget, the most worthy first.

A unit starts if what it takes by estimate is still there, else a later one that fits takes its
place. One that fails does not stop the others; one that the budget cuts off is repeated by the next
call, which keeps as much time for it as it had and a quarter more.
"""

import dataclasses
import datetime
import json
import os
import shlex
import signal
import subprocess

from ..child import Termination
from .results import shorten

SECONDS_TO_END = 5  # between being asked and being ended
MARGIN = 1.25  # on what was not enough
LAST_LINES = 5
NO_FIGURES = "0, but what it printed is no JSON"


def is_json(path):
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Ended:
    status: int | str | None  # None: it ran out of its time
    seconds: float


def end(process):
    """Of the command and all it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(SECONDS_TO_END)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def call(words, output, log, seconds, directory, clock):
    """Ended, of a command that has so many seconds."""
    start = clock()
    Termination.starting = True
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=log,
        cwd=directory,
        start_new_session=True,
    )
    try:
        Termination.catch_up()
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        end(process)
    return Ended(status, clock() - start)


class Runner:
    """`say` tells of every unit; `after` is called when one has ended."""

    def __init__(self, setup, results, budget, commit="unknown", say=print, after=lambda: None):
        self.setup, self.results, self.budget = setup, results, budget
        self.commit, self.say, self.after = commit, say, after

    def run(self, units, again=()):
        """`again`: states of units that are measured once more."""
        for unit in units:
            before = self.results.of(unit).get("state")
            if before in ("done", "failed") and before not in again:
                self.say(f"{unit.name}: {before} before")
                continue
            self.consider(unit)

    def consider(self, unit):
        if unit.missing:
            state = "impossible" if unit.optional else "failed"
            self.say(f"{unit.name}: not run, {unit.missing}")
            self.results.end(unit, state, unit.missing)
        elif why := self.why_not_now(unit):
            self.say(f"{unit.name}: not run, {why}")
            state = self.results.of(unit).get("state")
            kept = {"expected": self.expected(unit)} if state == "cut off" else {}
            self.results.end(unit, "cut off" if kept else "left", why, **kept)
        else:
            self.start(unit)
            self.after()

    def expected(self, unit):
        """Seconds that it takes."""
        return max(unit.seconds, self.results.of(unit).get("expected", 0))

    def why_not_now(self, unit):
        seconds, left = self.expected(unit), self.budget.left()
        if seconds > self.budget.whole:
            return f"takes about {seconds:.0f} s, more than the budget"
        if seconds > left:
            return f"takes about {seconds:.0f} s, {max(left, 0):.0f} s were left"
        return ""

    def start(self, unit):
        self.results.forget(unit)
        state, why, seconds = "done", "", 0.0
        for command in unit.commands:
            most = unit.most_seconds - seconds
            cuts = self.budget.left() < most
            ended = self.record(command, min(most, self.budget.left()))
            seconds += ended.seconds
            if ended.status == 0:
                continue
            self.results.drop_figures(unit)
            if ended.status is None and cuts:
                state, why = "cut off", f"the budget was used up after {seconds:.0f} s"
            elif ended.status is None:
                state, why = "failed", f"it took more than {unit.most_seconds:.0f} s"
            else:
                state, why = "failed", f"{command.name}: exit status {ended.status}"
            break
        self.close(unit, state, why, seconds)

    def close(self, unit, state, why, seconds):
        more = {"seconds": round(seconds, 1)}
        if state == "cut off":
            more["expected"] = max(unit.seconds, min(MARGIN * seconds, unit.most_seconds))
        self.results.end(unit, state, why, **more)
        self.say(f"{unit.name}: {state}{', ' + why if why else f' in {seconds:.0f} s'}")

    def record(self, command, seconds):
        """Standard output goes to NAME.json, what the command says and what it was to NAME.log."""
        log = self.results.directory / f"{command.name}.log"
        output = log.with_suffix(".tmp")
        words = [str(word) for word in command.words(self.results.directory)]
        log.write_text(self.heading(words))
        with open(output, "wb") as out, open(log, "ab") as complaints:
            try:
                ended = call(words, out, complaints, seconds, self.setup.root, self.budget.clock)
            except OSError as problem:
                Termination.catch_up()
                complaints.write(f"{words[0]}: {problem.strerror}\n".encode())
                ended = Ended(127, 0.0)
        if command.figures and ended.status == 0 and not is_json(output):
            ended = Ended(NO_FIGURES, ended.seconds)
        self.keep(command, ended, output, log)
        return ended

    def heading(self, words):
        shown = shlex.join(words).replace(f"{self.setup.root}/", "")
        now = datetime.datetime.now(datetime.timezone.utc)
        return f"command: {shown}\ncommit: {self.commit}\ndate: {now:%Y-%m-%dT%H:%MZ}\n"

    def keep(self, command, ended, output, log):
        if command.figures and ended.status == 0:
            os.replace(output, log.with_suffix(".json"))
        else:
            with open(log, "ab") as file:
                file.write(output.read_bytes())
            output.unlink()
        if ended.status != 0:
            said = log.read_text(errors="replace").splitlines()[3:]
            self.say("\n".join(["", f"{log.name} ends with:", *said[-LAST_LINES:]]))
        shorten(log)
        status = "124 (out of time)" if ended.status is None else ended.status
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"exit status: {status}\n")
