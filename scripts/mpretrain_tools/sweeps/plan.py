"""What `mpretrain plan` counts for a configuration: parameters, steps, tokens and bytes. Needs no
tokens.
"""

import functools
import json
import re
import subprocess

from .. import repository
from . import configuration


def run_plan(program, options, config, overrides):
    """What `plan` prints."""
    sets = [argument for text in overrides for argument in ("--set", text)]
    call = [program, "plan", *options, "--config", str(repository.CONFIGS / config), *sets]
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise configuration.BadConfig(
            f"{program}: {problem.strerror}; expected mpretrain, see --program"
        ) from problem
    if done.returncode != 0:
        raise configuration.BadConfig(
            f"plan of {config} {' '.join(overrides)}: {done.stderr.strip()}"
        )
    return done.stdout


PRESETS = ("program", "program-cuda", "cpu", "cuda")  # builds whose numbers and speed count


@functools.cache
def plan(program, config, *overrides):
    """The object of `plan --json` for a file of configs/ ("60m_bf16.json") and changes
    ("train.steps=10").
    """
    return json.loads(run_plan(program, ["--json"], config, overrides))


def device(program, config, *overrides):
    """The name of the device that the configuration would run on, as `plan` prints it for
    people.
    """
    found = re.search(
        r"^device\n +name +(.+)$", run_plan(program, [], config, overrides), re.MULTILINE
    )
    return found.group(1) if found else "unknown device"


def newest_program():
    """The program that was built last, among the builds of the repository that are not for
    sanitizers or fuzzing.
    """
    builds = (repository.ROOT / "build" / name / "mpretrain" for name in PRESETS)
    built = [path for path in builds if path.is_file()]
    return str(max(built, key=lambda path: path.stat().st_mtime, default="mpretrain"))
