"""Coordinate descent over hyperparameters, the protocol of docs/paper.md "Tuning" made explicit.

One key at a time is swept over its grid with the others held; the best value is taken if it lowers
the loss by at least `threshold`. Passes over all keys are made until one takes nothing, or the
allowed number of runs is spent. The last full pass then holds every one-at-a-time ablation around
the point that was found.
"""

import math
from dataclasses import dataclass, field

THRESHOLD = 3e-3  # nats: what the paper's protocol accepts as an improvement


@dataclass
class Sweep:
    """One key over its grid, the others at `point`."""

    key: str
    point: dict
    losses: list  # [[value, loss], ...], the value of the point among them
    accepted: object = None  # the new value, None if the point stays

    def best(self):
        return min(self.losses, key=lambda tried: math.inf if math.isnan(tried[1]) else tried[1])


@dataclass
class Trace:
    """What a descent did, in order; goes to JSON as it is."""

    start: dict
    grid: dict
    allowed_runs: int
    threshold: float = THRESHOLD
    runs: int = 0  # different points evaluated
    sweeps: list = field(default_factory=list)
    point: dict = field(default_factory=dict)  # where it ended
    loss: float = math.nan
    finished: str = ""  # converged | runs spent


def descend(evaluate, start, grid, allowed_runs, threshold=THRESHOLD, on_sweep=None):
    """Trace of a descent. evaluate([point, ...]) returns their losses; a point is {key: value}.

    Deterministic: with the same losses it takes the same way, so it can be begun again at any
    moment as long as `evaluate` remembers.
    """
    known = {}

    def losses_of(points):
        new = [point for point in points if frozen(point) not in known]
        known.update(zip(map(frozen, new), evaluate(new)))
        return [known[frozen(point)] for point in points]

    trace = Trace(start, grid, allowed_runs, threshold, point=dict(start))
    trace.loss = losses_of([trace.point])[0]
    idle = 0  # keys since the last change
    for key in endless(list(grid)):
        if idle == len(grid):
            trace.finished = "converged"
            break
        points = [{**trace.point, key: value} for value in candidates(grid[key], trace.point[key])]
        if len(known) + sum(frozen(point) not in known for point in points) > allowed_runs:
            trace.finished = "runs spent"
            break
        sweep = Sweep(
            key,
            dict(trace.point),
            [[point[key], loss] for point, loss in zip(points, losses_of(points))],
        )
        value, loss = sweep.best()
        idle += 1
        if trace.loss - loss >= threshold:
            sweep.accepted, trace.loss, idle = value, loss, 1
            trace.point[key] = value
        trace.sweeps.append(sweep)
        trace.runs = len(known)
        if on_sweep:
            on_sweep(trace)
    trace.runs = len(known)
    return trace


def endless(keys):
    while True:
        yield from keys


def candidates(values, current):
    """The grid with the current value in it, in order."""
    return sorted({*values, current})


def frozen(point):
    return tuple(sorted(point.items()))


def ablations(trace):
    """{key: [[value, loss], ...]} around the final point, as far as they were run."""
    return {
        sweep.key: sweep.losses
        for sweep in trace.sweeps
        if {**sweep.point, sweep.key: trace.point[sweep.key]} == trace.point
    }


def sensitive_keys(traces, threshold=THRESHOLD):
    """Keys of which no one value is within the threshold of the best in all traces."""
    keys = [key for key in traces[0].grid if all(key in trace.grid for trace in traces)]
    return [
        key
        for key in keys
        if not _insensitive([ablations(trace).get(key, []) for trace in traces], threshold)
    ]


def _insensitive(tables, threshold):
    good = [
        {value for value, loss in table if loss <= min(other for _, other in table) + threshold}
        for table in tables
    ]
    return bool(good) and bool(set.intersection(*good))
