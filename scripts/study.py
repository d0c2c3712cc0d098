#!/usr/bin/env python3
"""Runs a study of optimizers and formats, and reports it; see mpretrain_tools/study."""

import sys

from mpretrain_tools import study
from mpretrain_tools.command import of_several
from mpretrain_tools.sweeps.configuration import BadConfig
from mpretrain_tools.sweeps.slurm import LaunchError

sys.exit(of_several(study, BadConfig, LaunchError))
