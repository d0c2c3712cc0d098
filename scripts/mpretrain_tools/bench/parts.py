"""The parts of the report: what a round of each measures, and their files, to which a round is
added when it is done.

<output>/<part>.json: {part, settings, commit, machine, rounds: [{date, load, seconds, benchmarks:
[...]}]}, each benchmark {name, label, counters, others}. A benchmark's counters are numbers under
their units (`tokens/s`, `%limit`, `ms`), or `failed` and what was said; `others` are the cores that
others used meanwhile. One beside which they used too much is measured again, up to --attempts times
in a round, and the least disturbed counts.
"""

import dataclasses
import json
import pathlib
import re
import statistics
import sys
import tempfile
import time
import typing

from ..files import write_whole
from . import child, competitors, machine
from .disturbance import is_disturbed, least_disturbed
from .shapes import SHAPES, configuration, write_configuration, write_tokens

OTHERS = "others"  # the counter of bench/disturbance_reporter.h
MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
NOT_COUNTERS = {
    "family_index",
    "per_family_instance_index",
    "repetitions",
    "repetition_index",
    "threads",
    "iterations",
    "real_time",
    "cpu_time",
    OTHERS,
}
CLOCKS = re.compile(
    r"(/(real_time|process_time|manual_time))+$"
)  # that Google Benchmark puts behind a name
PROFILED_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Options:
    build: pathlib.Path
    rounds: int = 3
    quick: bool = False
    shapes: str = "ABCDE"
    python: str = "/usr/bin/python3"
    python2: str | None = None
    llmc: str | None = None
    threads: int = 1
    attempts: int = 1
    of_this_commit: bool = False  # rounds of another one do not count, complete or not


class Missing(Exception):
    """A part cannot be measured; the message says what is not there."""


class Part(typing.NamedTuple):
    name: str
    title: str
    settings: typing.Callable  # of Options: what has to be equal for two rounds to belong together
    measure: typing.Callable  # of (Options, say): the benchmarks of a round


# --- programs that are made with Google Benchmark -------------------------------------------------


def benchmarks_of(text, where):
    """Those of --benchmark_format=json; repetitions become their medians, aggregates are left
    out.
    """
    try:
        listed = json.loads(text)["benchmarks"]
    except (json.JSONDecodeError, KeyError, TypeError) as problem:
        raise child.Failed(
            f"{where}: {problem!r}; expected the output of --benchmark_format=json"
        ) from problem
    gathered = {}
    for entry in listed:
        if entry.get("run_type", "iteration") == "iteration":
            gathered.setdefault(CLOCKS.sub("", entry.get("run_name", entry["name"])), []).append(
                entry
            )
    return [
        {
            "name": name,
            "label": entries[0].get("label", ""),
            "counters": counters_of(entries),
            **others_of(entries),
        }
        for name, entries in gathered.items()
    ]


def numbers(entry):
    return {
        key: value
        for key, value in entry.items()
        if key not in NOT_COUNTERS
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    }


def counters_of(entries):
    failed = [entry for entry in entries if entry.get("error_occurred")]
    if failed:
        return {"failed": failed[0].get("error_message", "no reason given")}
    of_each = [
        {"ms": entry["real_time"] * MILLISECONDS[entry.get("time_unit", "ns")], **numbers(entry)}
        for entry in entries
    ]
    return {key: statistics.median(counters[key] for counters in of_each) for key in of_each[0]}


def others_of(entries):
    told = [entry[OTHERS] for entry in entries if OTHERS in entry]
    return {OTHERS: round(max(told), 3)} if told else {}


def exactly(names):
    """The filter of Google Benchmark that these names pass: any character stands for one that means
    something in it.
    """
    alternatives = "|".join(re.sub(r"[^\w/:-]", ".", name) for name in names)
    return f"^({alternatives})(/(real_time|process_time|manual_time))*$"


def repeated(measure, everything, attempts, say):
    """The benchmarks that measure(filter) gives; what is disturbed is measured again, and the least
    disturbed counts.
    """
    kept, wanted = {}, everything
    for attempt in range(attempts):
        for found in measure(wanted):
            former = kept.setdefault(found["name"], found)
            if found.get(OTHERS, 0) < former.get(OTHERS, 0):
                kept[found["name"]] = found
        names = [name for name, found in kept.items() if is_disturbed(found.get(OTHERS, 0))]
        if not names:
            break
        wanted = exactly(names)
        say(
            f"{len(names)} of {len(kept)} benchmarks were disturbed"
            + (", once more" if attempt + 1 < attempts else "")
        )
    return list(kept.values())


def program_part(name, title, program, filters=(".*", ".*"), seconds=(0.5, 0.01), more=()):
    """`filters` and `seconds` of the whole form and of the short one; `more` are options of the
    program's own.
    """

    def measure(options, say):
        path = options.build / "bench" / program
        if not path.exists():
            raise Missing(f"{program} is not built: cmake --build build/cpu --target {program}")
        say(f"{program}, {filters[options.quick]}")
        command = [
            path,
            *more,
            f"--benchmark_min_time={seconds[options.quick]}",
            "--benchmark_format=json",
        ]

        def once(wanted):
            finished = child.run([*command, f"--benchmark_filter={wanted}"], child.WAITING)
            return benchmarks_of(finished.output, program)

        return repeated(once, filters[options.quick], options.attempts, say)

    def settings(options):
        return {"filter": filters[options.quick], "seconds": seconds[options.quick]}

    return Part(name, title, settings, measure)


# --- others ---------------------------------------------------------------------------------------


def peer_settings(options):
    return {
        "shapes": options.shapes,
        "quick": options.quick,
        "python2": bool(options.python2),
        "llmc": bool(options.llmc),
        "threads": options.threads,
    }


def measure_peers(options, say):
    if not (options.build / "bench" / "step_bench").exists():
        raise Missing("step_bench is not built: cmake --build build/cpu --target step_bench")
    found, missing = competitors.competitors(
        options.build, options.threads, options.python, options.python2, options.llmc, options.quick
    )
    for what in missing:
        say(f"missing: {what}")
    absent = [
        {"name": f"missing/{number}", "label": "", "counters": {"failed": what}}
        for number, what in enumerate(missing)
    ]
    return competitors.run_round(found, options.shapes, options.attempts, say) + absent


def measure_profile(options, say):
    """The table that `mpretrain --profile` prints, as it is."""
    program = options.build / "mpretrain"
    if "--profile" not in child.run([program, "train", "--help"]).output:
        raise Missing("this mpretrain has no --profile")
    found = []
    for name in options.shapes:
        say(f"profile of {name}")
        profile, others = least_disturbed(lambda: profile_of(program, name), options.attempts)
        found.append({**profile, OTHERS: round(others, 3)})
    return found


def profile_of(program, name):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tokens = write_tokens(
            scratch / "train.bin", 2 * PROFILED_STEPS * SHAPES[name].tokens, SHAPES[name].vocab
        )
        config = configuration(
            SHAPES[name], "run", tokens, scratch, 2 * PROFILED_STEPS
        )  # some do not count
        path = write_configuration(scratch / "run.json", config)
        finished = child.run([program, "train", "--config", path, "--profile", PROFILED_STEPS])
    return {
        "name": f"{name}/fp32/adamw",
        "label": "",
        "counters": waited(finished.output),
        "text": finished.output.rstrip(),
    }


def waited(table):
    """Percent of a step that went into getting its tokens: the row `data` of the profile, in its
    column `self %`.
    """
    lines = table.splitlines()
    head = next(
        (
            line.replace("self ms", "self_ms").replace("self %", "self_%").split()
            for line in lines
            if "self %" in line
        ),
        None,
    )
    row = next((line.split() for line in lines if line.split()[:1] == ["data"]), None)
    return {"%wait": float(row[head.index("self_%")])} if head and row else {}


STEP_FILTER = "^([A-E]/(fp32|bf16)[/+]|[AE]/)"
PARTS = [
    program_part(
        "bound",
        "FP32 steps against their bound",
        "step_bench",
        ("/fp32/adamw/", "^A/fp32/adamw/"),
        (10, 0.01),
        ("--bound",),
    ),
    program_part("step", "Training steps", "step_bench", (STEP_FILTER, "^A/"), (1, 0.01)),
    Part("peers", "Against others", peer_settings, measure_peers),
    Part(
        "profile", "Where the time of a step goes", lambda o: {"shapes": o.shapes}, measure_profile
    ),
    program_part("ops", "Operations", "ops_bench", (".*", "/A/"), (0.2, 0.01)),
    program_part("update", "Optimizer", "update_bench", seconds=(0.2, 0.01)),
    program_part("codecs", "Casts", "codec_bench", seconds=(0.2, 0.01)),
    program_part("data", "Tokenizer and loader", "data_bench"),
    program_part("checkpoint", "Checkpoints", "checkpoint_bench"),
]
BY_NAME = {part.name: part for part in PARTS}


# --- files ----------------------------------------------------------------------------------------


class Store:
    """The parts measured so far, a file each."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def path(self, name):
        return self.directory / f"{name}.json"

    def read(self, name):
        """None where the part was not measured."""
        try:
            record = json.loads(self.path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except json.JSONDecodeError as problem:
            sys.exit(f"{self.path(name)}: {problem}; remove it to measure the part again")
        return record

    def write(self, name, record):
        write_whole(self.path(name), json.dumps(record, indent=1) + "\n")

    def all(self):
        return {part.name: record for part in PARTS if (record := self.read(part.name))}


def begun(store, part, options, described, commit):
    """The record that a round may be added to: the one that is there, or a new one if anything is
    not as it was.
    """
    record = store.read(part.name)
    settings = part.settings(options)
    same = record and record["settings"] == settings and record["machine"] == described
    complete = same and len(record["rounds"]) >= options.rounds and not options.of_this_commit
    if complete or (same and record["commit"] == commit):
        return record
    return {
        "part": part.name,
        "settings": settings,
        "commit": commit,
        "machine": described,
        "rounds": [],
    }


def measure_part(store, part, options, described, commit, say, again=False):
    """Adds the rounds that are missing; each is on the disk before the next begins."""
    if again:
        store.path(part.name).unlink(missing_ok=True)
    record = begun(store, part, options, described, commit)
    while len(record["rounds"]) < options.rounds:
        say(f"{part.name}: round {len(record['rounds']) + 1} of {options.rounds}")
        before, begin = machine.moment(), time.monotonic()
        benchmarks = part.measure(options, say)
        record["rounds"].append(
            {**before, "seconds": round(time.monotonic() - begin, 1), "benchmarks": benchmarks}
        )
        store.write(part.name, record)
    return record
