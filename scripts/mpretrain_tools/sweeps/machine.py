#!/usr/bin/env python3
"""What a result was computed on, in words; as a script it prints them, for the nodes of a
cluster.
"""

import collections
import os
import pathlib
import platform
import subprocess


def machine():
    """The model and number of this machine's processors, and its GPUs."""
    return ", ".join([_processor(), *_gpus()])


def _processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    except OSError:
        pass
    return f"{platform.machine()}, {os.cpu_count()} threads"


def _gpus():
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    names = found.stdout.splitlines() if found.returncode == 0 else []
    counts = collections.Counter(name.strip() for name in names if name.strip())
    return [f"{count} x {name}" for name, count in sorted(counts.items())]


if __name__ == "__main__":
    print(machine())
