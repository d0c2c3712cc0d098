"""Figures that do not depend on how fast the machine is, from the rounds of a part; their
comparison with stored ones.

A ratio is taken within a round, both sides of which ran next to one another. Its name begins with
that of its part: `bound: A/fp32/adamw %bound`, `peers: A ours_fp32 / pytorch_tuned`.
"""

import json
import math
import re
import statistics
import typing

from .spread import deviation, tolerance

# Ratios of which less is better, by what their names end in; of all others more is better.
LESS_IS_BETTER = ("peak / plan", "%wait")
FLOORS = {"%wait": 0.5}  # worse by less than this is not worse, however little it was before
# (numerator, denominator) of two benchmarks of one program: names that follow from one another by a
# substitution.
PAIRS = [
    ("step", r"/m_plus_adam$", "/adamw"),
    ("step", r"^(\w)/(?!fp32)[^/]+/adamw$", r"\1/fp32/adamw"),
]
# A peer that was run in several ways is as good as the best of them.
BEST_OF = {
    "pytorch_tuned": ("pytorch_blis", "pytorch_allocator"),
    "pytorch2": ("pytorch2_eager", "pytorch2_compiled"),
    "pytorch2_bf16": tuple(
        f"pytorch2_{precision}_{how}"
        for precision in ("autocast", "bf16")
        for how in ("eager", "compiled")
    ),
}
BF16_PEERS = ("pytorch2_bf16", "pytorch2")  # of a step in BF16
PEERS = ("pytorch_tuned", "pytorch_installed", "pytorch2", "llmc")


def less_is_better(name):
    return name.endswith(LESS_IS_BETTER)


def number(counters, key):
    value = counters.get(key)
    return (
        float(value)
        if isinstance(value, (int, float)) and math.isfinite(value) and value > 0
        else None
    )


def rate(counters):
    """What a benchmark does in a second: its tokens, or itself."""
    time = number(counters, "ms")
    return number(counters, "tokens/s") or (1e3 / time if time else None)


def quotient(a, b):
    return a / b if a and b else None


def counted(part, benchmarks):
    """What the benchmarks say in percent of something, or as so many times something: `%limit`,
    `x_one_thread`.
    """
    return {
        f"{part}: {name} {key}": float(value)
        for name, counters in benchmarks.items()
        for key, value in counters.items()
        if key.startswith(("%", "x_")) and isinstance(value, (int, float))
    }


def pairs(part, benchmarks):
    found = {}
    for of_part, pattern, replacement in PAIRS:
        for name in benchmarks if of_part == part else ():
            other = re.sub(pattern, replacement, name)
            if other != name and other in benchmarks:
                found[f"{part}: {name} / {other}"] = quotient(
                    rate(benchmarks[name]), rate(benchmarks[other])
                )
    return found


def by_optimizers(part, benchmarks):
    """What M+Adam makes of a step's speed, by what the two optimizers take: whole steps scatter by
    more than that.
    """
    found = {}
    for name in benchmarks if part == "step" else ():
        other = re.sub(r"/m_plus_adam$", "/adamw", name)
        step, ours, theirs = (
            number(benchmarks.get(n, {}), key)
            for n, key in ((other, "ms"), (name, "optimizer ms"), (other, "optimizer ms"))
        )
        if other != name and step and ours and theirs:
            found[f"step: {name} for its optimizer / {other}"] = step / (step - theirs + ours)
    return found


def best(of_shape, variants):
    """The fastest in this round."""
    return max(
        (of_shape.get(key, {}) for key in variants),
        key=lambda counters: number(counters, "tokens/s") or 0,
    )


def against_peers(benchmarks):
    found = {}
    for shape in dict.fromkeys(name.split("/")[0] for name in benchmarks):
        of_shape = {
            name.split("/", 1)[1]: counters
            for name, counters in benchmarks.items()
            if name.startswith(shape + "/")
        }
        ours, program = of_shape.get("ours_fp32", {}), of_shape.get("mpretrain", {})
        of_shape.update({peer: best(of_shape, variants) for peer, variants in BEST_OF.items()})
        for peer in PEERS:
            counters = of_shape.get(peer, {})
            found[f"peers: {shape} ours_fp32 / {peer}"] = quotient(
                number(ours, "tokens/s"), number(counters, "tokens/s")
            )
            found[f"peers: {shape} memory of {peer} / ours"] = quotient(
                number(counters, "peak MiB"), number(program, "peak MiB")
            )
        for peer in BF16_PEERS:
            found[f"peers: {shape} ours_bf16 / {peer}"] = quotient(
                number(of_shape.get("ours_bf16", {}), "tokens/s"),
                number(of_shape.get(peer, {}), "tokens/s"),
            )
        found[f"peers: {shape} peak / plan"] = quotient(
            number(program, "peak MiB"), number(program, "plan MiB")
        )
    return found


def of_round(part, benchmarks):
    """{name: value} of a round's [{name, counters}]."""
    by_name = {b["name"]: b["counters"] for b in benchmarks}
    found = {
        **counted(part, by_name),
        **pairs(part, by_name),
        **by_optimizers(part, by_name),
        **(against_peers(by_name) if part == "peers" else {}),
    }
    return {name: value for name, value in found.items() if value is not None}


def of_parts(parts):
    """{name: [value of each round]} of {part: record}."""
    found = {}
    for part, record in parts.items():
        for each in record["rounds"]:
            for name, value in of_round(part, each["benchmarks"]).items():
                found.setdefault(name, []).append(value)
    return found


# --- stored ratios --------------------------------------------------------------------------------

FEWEST_ROUNDS = 3  # that a spread can be taken from


class BadStore(Exception):
    """The file of stored ratios is not what it should be."""


class Verdict(typing.NamedTuple):
    name: str
    stored: float
    now: float
    allowed: float  # how much worse it may be

    @property
    def worse_by(self):
        return self.now - self.stored if less_is_better(self.name) else self.stored - self.now

    @property
    def worse(self):
        return self.worse_by > self.allowed


def to_store(ratios, machine):
    """What ratios.json holds; too few rounds are an error, for they have no spread."""
    few = [name for name, values in ratios.items() if len(values) < FEWEST_ROUNDS]
    if few:
        raise BadStore(
            f"{few[0]}: {len(ratios[few[0]])} rounds; {FEWEST_ROUNDS} or more are needed to store a"
            " ratio and its spread"
        )
    return {
        "machine": machine,
        "ratios": {name: stored_entry(name, ratios[name]) for name in sorted(ratios)},
    }


def merged(stored, content, parts):
    """What is stored with all ratios of these parts replaced; of one machine."""
    if stored.get("machine") != content["machine"]:
        raise BadStore(
            "the stored ratios are of another machine or build: store all parts, without --only"
        )
    others = {
        name: entry for name, entry in stored["ratios"].items() if name.split(":")[0] not in parts
    }
    return {**content, "ratios": dict(sorted({**others, **content["ratios"]}.items()))}


def stored_entry(name, values):
    return {
        "value": float(f"{statistics.median(values):.5g}"),
        "deviation": float(f"{deviation(values):.3g}"),
        "rounds": len(values),
        "better": "less" if less_is_better(name) else "more",
    }


def read_store(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for name, entry in content["ratios"].items():
            if (
                not all(
                    isinstance(entry[key], (int, float)) for key in ("value", "deviation", "rounds")
                )
                or entry["rounds"] < 1
            ):
                raise BadStore(
                    f"{path}: {name}: expected numbers as value, deviation and rounds, found"
                    f" {json.dumps(entry)}"
                )
        return content
    except OSError as problem:
        raise BadStore(
            f"{path}: {problem.strerror}; `scripts/bench.py report --store` writes it"
        ) from problem
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
        raise BadStore(
            f'{path}: {problem!r}; expected {{"ratios": {{name: {{value, deviation, rounds}}}}}}'
        ) from problem


def compare(stored, ratios):
    """(verdicts, names stored that were not measured now)."""
    verdicts = []
    for name, entry in stored["ratios"].items():
        if name in ratios:
            allowed = tolerance(
                entry["value"], entry["deviation"], entry["rounds"], len(ratios[name])
            )
            allowed = max(allowed, FLOORS.get(name.split(" ")[-1], 0))
            verdicts.append(Verdict(name, entry["value"], statistics.median(ratios[name]), allowed))
    return verdicts, [name for name in stored["ratios"] if name not in ratios]
