"""What a study's results are of: protocol, programs, text and machines, and how far two programs
differ.
"""

from collections import Counter

from ..markdown import table
from . import protocol


def lines(findings):
    """Of Markdown."""
    rows = findings.rows()
    found = protocol.described(findings.study, rows)
    found += ["", *_programs(findings, rows), "", *_text(findings, rows)]
    machines = Counter(row.machine for row in rows)
    found += ["", "Machines: " + "; ".join(f"{n} cells on {m}" for m, n in machines.items())]
    found[-1] += "." if machines else "none."
    if others := findings.of_no_cell():
        found += [
            "",
            f"**{len(others)} finished cells of the ledger are none of the study: its file, or the"
            " configurations that it names, were other ones when they were run."
            f"{protocol.of_earlier(findings.study, others)}**",
        ]
    return [*found, *_drift(findings)]


def _programs(findings, rows):
    counts = Counter((row.program, row.version) for row in rows)
    listed = [[f"`{hash}`", version, count] for (hash, version), count in counts.items()]
    accepted = "any program" if not findings.study.programs else "the programs of the study's file"
    found = [
        f"Accepted: {accepted}. The hash is of what a program computes: its sources without"
        " comments and without the command line's; `binary:` of the executable, where the"
        " sources are not known by a commit.",
        "",
        *table(["program", "version", "cells"], listed),
        *dirty(rows),
    ]
    if refused := findings.known.refused:
        programs = Counter(row.program for row in refused)
        told = ", ".join(f"{count} of `{name}`" for name, count in programs.items())
        found += ["", f"**Not used, of programs that are not accepted: {told}.**"]
    return found


def dirty(rows):
    """Which cells no commit has the program of."""
    if not (count := sum("-dirty" in row.version for row in rows)):
        return []
    told = "were computed by sources with changes that were not committed"
    return ["", f"**{count} of {len(rows)} cells {told}: no commit gives their program.**"]


def _text(findings, rows):
    texts = sorted({row.corpus for row in rows})
    pinned = " (pinned by the study's file)" if findings.study.corpus else ""
    told = ", ".join(f"`{one}…`" for one in texts) or "none yet"
    found = [f"Text: SHA-256 of the token shards {told}{pinned}."]
    if findings.known.other_text:
        found.append(f"**{findings.known.other_text} cells of other texts are not used.**")
    return found


def _drift(findings):
    rows = findings.drift()
    if not rows:
        return []
    largest = max(abs(row[-1]) for row in rows)
    head = ["cell", "arm", "seed", "program", "loss", "other program", "loss", "difference"]
    return [
        "",
        "### Same cell, two programs",
        "",
        *table(head, [[*row[:-1], f"{row[-1]:+.6f}"] for row in rows]),
        "",
        f"Largest difference: {largest:.6f} nats.",
    ]
