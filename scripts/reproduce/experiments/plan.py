"""What `mpretrain plan` counts for a configuration: parameters, steps, tokens and bytes. Needs no tokens."""

import functools
import json
import subprocess

from . import configuration


@functools.lru_cache(maxsize=None)
def plan(program, config, *overrides):
    """The object of `plan --json` for a file of configs/ ("60m_bf16.json") and changes ("train.steps=10")."""
    sets = [argument for text in overrides for argument in ("--set", text)]
    call = [program, "plan", "--json", "--config", str(configuration.CONFIGS / config), *sets]
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise configuration.BadConfig(f"{program}: {problem.strerror}; expected mpretrain, see --program") from problem
    if done.returncode != 0:
        raise configuration.BadConfig(f"plan of {config} {' '.join(overrides)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
