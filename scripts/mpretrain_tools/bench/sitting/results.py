"""What a sitting has so far: a directory with what every command printed and said, how each unit
ended, and the archive in which both travel.
"""

import io
import json
import os
import pathlib
import tarfile

ARCHIVE = "results.tar.gz"
ENDED = "units.json"
SHOWN_BYTES = 1 << 18  # of a log: its begin and its end


def pack(directory, archive):
    """Whole or not at all, as the call may be ended at any moment."""
    partial = archive.with_suffix(".tmp")
    with tarfile.open(partial, "w:gz") as tar:
        for path in sorted(directory.iterdir()):
            tar.add(path, f"raw/{path.name}", recursive=False)
    os.replace(partial, archive)


def unpack(archive, directory):
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = pathlib.PurePosixPath(member.name).name
            if member.isfile() and member.name == f"raw/{name}":
                (directory / name).write_bytes(tar.extractfile(member).read())


class Results:
    """`made_by`: commit and machine. What another one made is measured anew."""

    def __init__(self, directory, made_by=""):
        self.directory, self.made_by = directory, made_by
        path = directory / ENDED
        self.ended = json.loads(path.read_text()) if path.exists() else {}

    def of(self, unit):
        """How a unit ended: an object with state, why, seconds and made_by; empty if it was never
        started here.
        """
        found = self.ended.get(unit.name, {})
        return found if found.get("made_by") == self.made_by else {}

    def end(self, unit, state, why="", **more):
        self.ended[unit.name] = {"state": state, "why": why, "made_by": self.made_by, **more}
        (self.directory / ENDED).write_text(json.dumps(self.ended, indent=1) + "\n")

    def forget(self, unit):
        """Files of an earlier try: none of them shall be taken for one of the next."""
        for name in [command.name for command in unit.commands] + [f"{unit.name}_cases"]:
            for suffix in (".json", ".log"):
                (self.directory / f"{name}{suffix}").unlink(missing_ok=True)

    def drop_figures(self, unit):
        for command in unit.commands:
            (self.directory / f"{command.name}.json").unlink(missing_ok=True)


def shorten(path):
    size = path.stat().st_size
    if size <= SHOWN_BYTES:
        return
    with open(path, "rb") as file:
        begin = file.read(SHOWN_BYTES // 4)
        file.seek(size - 3 * SHOWN_BYTES // 4, io.SEEK_SET)
        end = file.read()
    left_out = size - len(begin) - len(end)
    path.write_bytes(begin + f"\n[{left_out} bytes left out]\n".encode() + end)
