"""Update statistics of a run (log.update_statistics) as a study's ledger keeps them: how large
updates of the layers' matrices were before and after rounding, and how large tensors are.

Pooled over the matrices of the layers, which every optimizer and format treats alike: sums over
all their weights, so a root mean square is that of one long tensor.
"""

import json
import math

MATRIX = "_proj.weight"  # how names of the layers' matrices end
BRANCHES = ("both", "additive", "multiplicative")
# Of one record, in the order of updates.csv.
FIELDS = (
    "step",
    "weight_rms",
    *(f"asked_{branch}" for branch in BRANCHES),
    "effective_rms",
    "edq_ratio",
    "flipped",
)


def summary(run):
    """{"records": {field: [a value a record]}, "weight_rms": {tensor: [first, last]}} of a run,
    {} if it recorded none. A field that no record has is left out.
    """
    records = [
        (step, record["update_survival"]["tensors"])
        for step, record in sorted(run.steps.items())
        if "update_survival" in record
    ]
    if not records:
        return {}
    rows = [{"step": step, **pooled(tensors)} for step, tensors in records]
    first, last = records[0][1], records[-1][1]
    return {
        "records": {
            field: [row.get(field) for row in rows]
            for field in FIELDS
            if any(row.get(field) is not None for row in rows)
        },
        "weight_rms": {
            name: [digits(first[name]["weight_rms"]), digits(last[name]["weight_rms"])]
            for name in last
            if "weight_rms" in last[name]
        },
    }


def compact(run):
    """The summary as the ledger has it; "" if there is none."""
    found = summary(run)
    return json.dumps(found, separators=(",", ":")) if found else ""


def pooled(tensors):
    """Of one record's tensors: {field: value} over the layers' matrices together."""
    chosen = [
        (sum(counts["weights"]), counts)
        for name, counts in tensors.items()
        if name.endswith(MATRIX) and "weight_rms" in counts
    ]
    if not chosen:
        return {}
    found = {
        "weight_rms": _root(chosen, lambda counts: counts["weight_rms"]),
        "effective_rms": _root(chosen, lambda counts: counts["effective_rms"]),
        "flipped": sum(n * counts["flipped"] for n, counts in chosen) / sum(n for n, _ in chosen),
    }
    for branch in BRANCHES:
        if all(branch in counts["asked_rms"] for _, counts in chosen):
            found[f"asked_{branch}"] = _root(chosen, lambda c, b=branch: c["asked_rms"][b])
    asked = sum(n * counts["asked_rms"]["both"] ** 2 for n, counts in chosen)
    kept = sum(
        n * counts["asked_rms"]["both"] ** 2 * (counts["edq_ratio"] or 0) for n, counts in chosen
    )
    found["edq_ratio"] = kept / asked if asked else None
    return {field: digits(value) for field, value in found.items()}


def _root(chosen, of):
    return math.sqrt(sum(n * of(counts) ** 2 for n, counts in chosen) / sum(n for n, _ in chosen))


def digits(value, number=4):
    """As many as say something; None of what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{number}g}")


def read(text):
    """What compact() wrote."""
    return json.loads(text) if text else {}


def middle(found):
    """{field: value} of the record in the middle of a run, when the rate is about half its peak."""
    records = found["records"]
    place = (len(records["step"]) - 1) // 2
    return {field: values[place] for field, values in records.items()}
