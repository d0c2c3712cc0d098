"""The report as Markdown."""

import math
import re
import statistics

from .. import markdown
from . import ratios
from .disturbance import BUSY, is_disturbed
from .goals import outcomes
from .parts import PARTS
from .spread import range_text

BEGIN, END = "<!-- scripts/bench.py report writes from here -->", "<!-- to here -->"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def public(value):
    """Text, or a structure of it, without the directories of this machine; what failed programs say
    is full of them.
    """
    if isinstance(value, dict):
        return {key: public(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [public(entry) for entry in value]
    return re.sub(r"(?<![\w.])/(?:[\w.+@~-]+/)+", "", value) if isinstance(value, str) else value


def table(head, rows):
    return markdown.table([cell(name) for name in head], ([cell(x) for x in row] for row in rows))


def digits(value):
    """Three significant ones, more of whole numbers."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def spread_cell(values):
    if not values:
        return "–"
    middle = digits(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({digits(min(values))}–{digits(max(values))})"


# --- the machine and the goals --------------------------------------------------------------------


def machine_lines(parts):
    described = list(
        {str(record["machine"]): record["machine"] for record in parts.values()}.values()
    )
    lines = [f"* {key}: {value}" for key, value in described[0].items()]
    if len(described) > 1:
        lines.append(
            "* **Not all parts were measured on this machine or with this build**:"
            f" {len(described)} kinds, see the JSON file."
        )
    return lines


def when_table(parts, missing):
    rows = []
    for part in PARTS:
        record = parts.get(part.name)
        if not record:
            rows.append(
                [part.name, f"missing: {missing.get(part.name, 'not measured')}", "", "", ""]
            )
            continue
        rounds = record["rounds"]
        rows.append(
            [
                part.name,
                (
                    f"{rounds[0]['date']} to {rounds[-1]['date']}"
                    if len(rounds) > 1
                    else rounds[0]["date"]
                ),
                len(rounds),
                disturbance_cell(rounds),
                record["commit"],
            ]
        )
    return table(["part", "measured", "rounds", "disturbed", "commit"], rows)


def disturbance_cell(rounds):
    """How many of the benchmarks were measured while others used the processors, and how much of
    them.
    """
    others = [
        benchmark["others"]
        for each in rounds
        for benchmark in each["benchmarks"]
        if "others" in benchmark
    ]
    return disturbance(others)


def disturbance(others):
    others = [value for value in others if not math.isnan(value)]
    busy = [value for value in others if is_disturbed(value)]
    return (
        f"{len(busy)} of {len(others)}" + (f", up to {max(busy):.2f} cores" if busy else "")
        if others
        else "not known"
    )


def goal_table(of_parts):
    rows = [
        [
            outcome.goal.text,
            outcome.name,
            spread_cell(outcome.values),
            outcome.wanted,
            {True: "yes", False: "**no**", None: "**missing**"}[outcome.reached],
        ]
        for outcome in outcomes(of_parts)
    ]
    return table(["goal", "ratio", "median (range)", "wanted", "reached"], rows)


def goal_summary(of_parts):
    found = [outcome.reached for outcome in outcomes(of_parts)]
    return (
        f"{found.count(True)} reached, {found.count(False)} not reached, {found.count(None)} not"
        " measured."
    )


# --- parts ----------------------------------------------------------------------------------------


def gathered(record):
    """{name: {counter: [value of each round]}} in the order of the first round that has it."""
    found = {}
    for each in record["rounds"]:
        for benchmark in each["benchmarks"]:
            counters = found.setdefault(benchmark["name"], {})
            for key, value in benchmark["counters"].items():
                counters.setdefault(key, []).append(value)
    return found


def counter_tables(record):
    """One table for all benchmarks with the same counters; failures after them."""
    groups, failures = {}, []
    for name, counters in gathered(record).items():
        failures += [
            f"* {name}: failed: {cell(text)}" for text in dict.fromkeys(counters.get("failed", []))
        ]
        numbers = {key: values for key, values in counters.items() if key != "failed"}
        if numbers:
            groups.setdefault(tuple(numbers), []).append((name, numbers))
    lines = []
    for keys, entries in groups.items():
        lines += [
            *table(
                ["benchmark", *keys],
                [[name, *(spread_cell(c[k]) for k in keys)] for name, c in entries],
            ),
            "",
        ]
    return lines + failures


def peer_lines(record):
    """A row for each program and shape."""
    found, labels = (
        gathered(record),
        {b["name"]: b["label"] for each in record["rounds"] for b in each["benchmarks"]},
    )
    rows, notes = [], []
    for name, counters in found.items():
        shape, key = name.split("/", 1)
        if shape == "missing":
            notes.append(f"* Missing: {counters['failed'][0]}")
            continue
        notes += [
            f"* {shape}, {labels[name]}: failed: {cell(text)}"
            for text in dict.fromkeys(counters.get("failed", []))
        ]
        speed = own_ratio(record, shape, key)
        rows.append(
            [
                shape,
                labels[name],
                spread_cell(counters.get("tokens/s", [])),
                speed,
                spread_cell(counters.get("peak MiB", [])),
                spread_cell(counters.get("plan MiB", [])),
            ]
        )
    return [
        *table(
            ["shape", "program", "tokens/s", "ours FP32 over it", "peak MiB", "`plan` MiB"], rows
        ),
        "",
        *notes,
    ]


def own_ratio(record, shape, key):
    """Ours over it, of the rounds that have both."""
    by_name = [{b["name"]: b["counters"] for b in each["benchmarks"]} for each in record["rounds"]]
    pairs = [
        [of.get(f"{shape}/{one}", {}).get("tokens/s") for one in ("ours_fp32", key)]
        for of in by_name
    ]
    values = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return range_text(values) if values else "–"


def profile_lines(record):
    """Of the last round: tables are not averaged."""
    lines = []
    for benchmark in record["rounds"][-1]["benchmarks"]:
        lines += [
            f"Shape {benchmark['name'].split('/')[0]}, one run:",
            "",
            "```",
            benchmark.get("text", ""),
            "```",
            "",
        ]
    return lines


LINES_OF = {"peers": peer_lines, "profile": profile_lines}


def part_lines(part, record, why):
    lines = [f"## {part.title}", ""]
    if not record:
        return [*lines, f"Missing: {why or 'not measured'}.", ""]
    return [*lines, *LINES_OF.get(part.name, counter_tables)(record), ""]


def report(parts, missing, quick=False):
    """Everything between the marks."""
    if not parts:
        return "\n".join([BEGIN, "Nothing was measured.", END]) + "\n"
    of_parts = ratios.of_parts(parts)
    short = (
        "**Short form: one round, few repetitions. It shows that everything runs, and nothing"
        " else.**"
    )
    lines = [
        BEGIN,
        "",
        *([short, ""] if quick else []),
        *machine_lines(parts),
        "",
        *when_table(parts, missing),
        "",
        (
            "Each figure is the median of the rounds, with their range. A ratio is taken in each"
            " round. Disturbed: measured"
        ),
        (
            f"while others, other guests of the host included, used more than {BUSY} cores, at"
            " every attempt."
        ),
        "",
        "## Goals",
        "",
        goal_summary(of_parts),
        "",
        *goal_table(of_parts),
        "",
    ]
    for part in PARTS:
        lines += part_lines(part, parts.get(part.name), missing.get(part.name))
    return "\n".join([*lines, END]) + "\n"


def placed(page, text):
    """The page with the report between its marks; at its end where there are none."""
    if BEGIN in page and END in page:
        return page[: page.index(BEGIN)] + text.rstrip("\n") + page[page.index(END) + len(END) :]
    return (page.rstrip("\n") + "\n\n" if page.strip() else "# The CPU, measured\n\n") + text
