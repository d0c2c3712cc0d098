"""The text that says beforehand what a study does: its hash, when it was committed, and which
results came before it or before a change of it.
"""

import datetime
import pathlib
import subprocess

from .file import sha256

SHORT = 16  # hex digits in the ledger


def short_hash(study):
    """Of the protocol as it is now, "" where the study has none."""
    return sha256(study.protocol)[:SHORT] if study.protocol else ""


def described(study, rows):
    """Markdown lines."""
    if not study.protocol:
        return ["No protocol is named in the study's file."]
    path = pathlib.Path(study.protocol)
    commits = _commits(path)
    lines = [f"Protocol: `{path.name}`, SHA-256 `{sha256(path)}`."]
    if not commits:
        return [*lines, "**It is not committed.**"]
    first, last = commits[-1], commits[0]
    lines.append(f"Committed in {first[0][:12]} ({first[1]:%Y-%m-%d %H:%M} UTC).")
    if len(commits) > 1:
        changed = f"Changed {len(commits) - 1} times since, last in {last[0][:12]}"
        lines.append(f"{changed} ({last[1]:%Y-%m-%d %H:%M} UTC).")
    if _is_changed(path):
        lines.append("**The file differs from what is committed.**")
    return [*lines, *_compared(rows, first[1], short_hash(study))]


def of_earlier(study, rows):
    """A sentence with a blank before it, "" where none ended before the protocol was committed."""
    commits = _commits(pathlib.Path(study.protocol)) if study.protocol else []
    older = _before(rows, commits[-1][1]) if commits else []
    return f" {len(older)} of them ended before the protocol was committed." if older else ""


def _before(rows, committed):
    return [row for row in rows if row.ended and _time(row.ended) < committed]


def _compared(rows, committed, now):
    older = _before(rows, committed)
    other = [row for row in rows if row.protocol != now]
    found = []
    if older:
        found.append(f"**{len(older)} of {len(rows)} cells ended before it was committed.**")
    if other:
        found.append(f"**{len(other)} of {len(rows)} cells were run under another text of it.**")
    if rows and not found:
        found.append(f"All {len(rows)} cells ended after that, under this text.")
    return found


def _time(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(
        tzinfo=datetime.timezone.utc
    )


def _commits(path):
    """[(commit, time)], newest first."""
    said = _git(path, "log", "--follow", "--format=%H %ct", "--", path.name)
    pairs = [line.split() for line in said.splitlines()]
    return [
        (commit, datetime.datetime.fromtimestamp(int(time), datetime.timezone.utc))
        for commit, time in pairs
    ]


def _is_changed(path):
    return bool(_git(path, "status", "--porcelain", "--", path.name).strip())


def _git(path, *arguments):
    command = ["git", "-C", str(path.resolve().parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
