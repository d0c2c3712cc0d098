"""What the figures were measured on: processor, GEMMs, compiler, commit, load. No path and no
name of the machine.
"""

import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

from ..repository import ROOT
from . import child
from .shapes import SHAPES, configuration, write_configuration

VECTORS = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "avx512_vnni",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
    "bf16",
)


def processor_lines(path="/proc/cpuinfo"):
    found = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def first_line(command):
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return finished.stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def commit():
    found = first_line(["git", "rev-parse", "--short", "HEAD"])
    if found == "unknown":  # no git, or a release without its history
        return found
    changed = subprocess.run(
        ["git", "diff", "--quiet", "HEAD", "--", "src", "CMakeLists.txt"], cwd=ROOT, check=False
    ).returncode
    return found + (" with changes" if changed else "")


def compiler(build):
    """(version, flags) of the program, from the commands of its build."""
    try:
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return "unknown", "unknown"
    one = next((c["command"].split() for c in commands if "src/device/cpu/" in c["file"]), None)
    if not one:
        return "unknown", "unknown"
    name = next(word for word in one if "ccache" not in word)
    flags = [w for w in one if re.match(r"-(O|m|f(?!diagnostics)|std|DNDEBUG)", w) and "/" not in w]
    return first_line([name, "--version"]), " ".join(dict.fromkeys(flags))


def plan_lines(program, scratch):
    """What `mpretrain plan` says about the device."""
    config = configuration(SHAPES["A"], "plan", "none.bin", scratch, 1)
    path = write_configuration(pathlib.Path(scratch) / "plan.json", config)
    text = child.run([program, "plan", "--config", path]).output
    found = re.findall(r"^  (name|GEMMs) +(.*)$", text, re.MULTILINE)
    return dict(found)


def describe(build, scratch):
    info = processor_lines()
    flags = set(info.get("flags", info.get("Features", "")).split())
    version, options = compiler(build)
    try:
        gemms = plan_lines(build / "mpretrain", scratch).get("GEMMs", "unknown")
    except child.Failed as problem:
        gemms = f"unknown: {problem}"
    processor = info.get("model name", platform.processor() or platform.machine())
    return {
        "processor": processor,
        "threads": len(os.sched_getaffinity(0)),
        "vector instructions": " ".join(v for v in VECTORS if v in flags) or "none known",
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "gemms": gemms,
        "compiler": version,
        "compiler flags": options,
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
    }


def moment():
    """Now, and how busy the machine is."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": round(os.getloadavg()[0], 2),
    }
