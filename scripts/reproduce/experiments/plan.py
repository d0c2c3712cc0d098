"""What `mpretrain plan` counts for a configuration: parameters, steps, tokens and bytes. Needs no tokens and trains nothing."""

import functools
import json
import subprocess

from . import configuration


@functools.lru_cache(maxsize=None)
def plan(program, config, *overrides):
    """The object of `plan --json` for a file of configs/, such as "60m_bf16.json", and changes such as "train.steps=10"."""
    sets = [argument for text in overrides for argument in ("--set", text)]
    command = [program, "plan", "--json", "--config", str(configuration.CONFIGS / config), *sets]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise configuration.BadConfig(f"{program}: {problem.strerror}; expected the program, see --program") from problem
    if done.returncode != 0:
        raise configuration.BadConfig(f"plan of {config} {' '.join(overrides)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
