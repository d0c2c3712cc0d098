"""Reads what `mpretrain VERB --help` prints, whatever its columns."""

import re
import subprocess
from dataclasses import dataclass

from ..sweeps.configuration import BadConfig

MEANING_COLUMN = 20  # a line indented at least this far belongs to the entry above it
NAMES = re.compile(r" +(?P<names>-[\w-]*\w(?:, *-[\w-]*\w)*|\w+)(?P<rest>.*)")
REST = re.compile(
    r"(?: (?P<value>[A-Z]+(?!\w|:)))?(?:=(?P<default>\S*)| \[(?P<bracketed>[^\]]*)\] ?)?"
    r"(?P<several> \.\.\.)?(?P<required> REQUIRED)?"
    r"(?: Needs:(?P<needs>(?: --[\w-]+)+))?"
    r"(?: Excludes:(?P<excludes>(?: --[\w-]+)+))?\s*(?P<meaning>.*)"
)


@dataclass(frozen=True)
class Entry:
    """An option, an argument without a name, or a verb."""

    names: tuple
    value: str  # what stands for its value: TEXT, N, X, NAME, DIR; empty: it takes none
    default: str
    required: bool
    needs: tuple
    excludes: tuple
    meaning: str


@dataclass(frozen=True)
class Help:
    purpose: str
    usage: str
    entries: dict  # by heading, in lower case: options, positionals, subcommands
    footer: str


def entry(line):
    """The entry that a line begins."""
    names, rest = NAMES.fullmatch(line).group("names", "rest")
    found = REST.fullmatch(rest)
    return Entry(
        names=tuple(re.split(", *", names)),
        value=(found["value"] or "") + (found["several"] or ""),
        default=found["default"] or found["bracketed"] or "",
        required=bool(found["required"]),
        needs=tuple((found["needs"] or "").split()),
        excludes=tuple((found["excludes"] or "").split()),
        meaning=" ".join(found["meaning"].split()),
    )


def unfolded(lines):
    """Lines of which each is a whole entry, or one that is not indented."""
    whole = []
    for line in lines:
        if line.startswith(" " * MEANING_COLUMN) and whole:
            whole[-1] += "  " + line.strip()
        else:
            whole.append(line)
    return whole


def parsed(text):
    """What a help text says, as Help."""
    before, usage, after = re.fullmatch(r"(.*?)^Usage: (.*?)$(.*)", text, re.M | re.S).groups()
    entries, footer, heading = {}, [], None
    for line in unfolded(after.splitlines()):
        if re.fullmatch(r"\w+:", line.strip()) and not line.startswith("  "):
            heading = line.strip().rstrip(":").lower()
            entries[heading] = []
        elif line.startswith(" ") and heading:
            entries[heading].append(entry(line))
        elif line.strip():
            footer.append(line.strip())
    return Help(" ".join(before.split()), usage, entries, " ".join(footer))


def help_of(program, *verb):
    """What the program says of a verb, or of itself."""
    call = [program, *verb, "--help"]
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise BadConfig(
            f"{program}: {problem.strerror}; expected mpretrain, see --program"
        ) from problem
    if done.returncode != 0:
        raise BadConfig(f"{' '.join(call)}: {done.stderr.strip()}")
    return parsed(done.stdout)
