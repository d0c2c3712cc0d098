"""Which program computed a result: a hash of what it computes, so that a build with other messages
or another layout of its sources is the same program.

It is of the sources in src/ at the commit that `--version` tells, without comments and blank
space, and without src/cli, which reads the command line and prints: no other layer may use it
(docs/architecture.md). Flags and the compiler are not in it; the ledger has the version line beside
it. A program of no commit, or of one with changes, is known by the hash of its
executable.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass

from .. import repository
from ..sweeps.configuration import BadConfig

SOURCES = (".h", ".cpp", ".cu", ".cuh")
LEFT_OUT = ("src/cli/", "src/main.cpp")
# A comment; a text, a raw one or a character, which stay as they are; a word or number; a sign.
TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)|R"(?P<mark>[^(\s]{0,16})\(.*?\)(?P=mark)"|"""
    r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|[0-9][\w.']*|\w+|[^\s\w]""",
    re.DOTALL,
)


@dataclass(frozen=True)
class Program:
    """What is known of an executable."""

    hash: str  # 16 hex digits of its sources, or "binary:" and 16 of the executable
    version: str  # a line for the ledger
    path: str


def program_of(path):
    """What `path --version` tells, and the hash."""
    executable = shutil.which(path)
    if executable is None:
        raise BadConfig(f"--program {path}: found no such executable, expected mpretrain")
    said = _output(executable, "--version")
    if not said.startswith("mpretrain "):
        raise BadConfig(f"--program {path}: found {said[:60]!r}, expected the program mpretrain")
    told = dict(re.findall(r"^(\w[\w ]*?) {2,}(.+)$", said, re.M))
    commit = told.get("commit", "unknown")
    parts = [said.splitlines()[0], commit, told.get("compiled for"), told.get("compiled by")]
    return Program(_hash(executable, commit), ", ".join(filter(None, parts)), executable)


def _hash(executable, commit):
    if re.fullmatch(r"[0-9a-f]{7,40}", commit):
        for place in (repository.ROOT, pathlib.Path(executable).resolve().parent):
            if sources := sources_at(commit, place):
                return hash_of(sources)
    digest = hashlib.sha256(pathlib.Path(executable).read_bytes()).hexdigest()
    return f"binary:{digest[:16]}"


def sources_at(commit, place):
    """{path: text} of what the program is made of at a commit; {} where it is not known."""
    listed = _output("git", "-C", str(place), "ls-tree", "-r", "--full-tree", commit, "--", "src")
    blobs = {}
    for line in listed.splitlines():
        description, _, path = line.partition("\t")
        if path.endswith(SOURCES) and not path.startswith(LEFT_OUT):
            blobs[path] = description.split()[2]
    asked = "\n".join(blobs.values()) + "\n"
    done = subprocess.run(
        ["git", "-C", str(place), "cat-file", "--batch"],
        input=asked.encode(),
        capture_output=True,
        check=False,
    )
    return dict(zip(blobs, _contents(done.stdout))) if blobs else {}


def _contents(batch):
    """The texts in what `git cat-file --batch` prints."""
    while batch:
        head, _, batch = batch.partition(b"\n")
        size = int(head.split()[2])
        yield batch[:size].decode(errors="replace")
        batch = batch[size + 1 :]


def hash_of(sources):
    """16 hex digits of {path: text}."""
    digest = hashlib.sha256()
    for path, text in sorted(sources.items()):
        digest.update(f"{path}\0{stripped(text)}\0".encode())
    return digest.hexdigest()[:16]


def stripped(text):
    """C++ without comments and blank space, a token a line."""
    return "\n".join(match[0] for match in TOKEN.finditer(text) if match["comment"] is None)


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
