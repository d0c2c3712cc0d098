#!/usr/bin/env python3
"""Writes one table or figure of the paper; see mpretrain_tools/reproduce."""

import sys

from mpretrain_tools import reproduce
from mpretrain_tools.command import of_several
from mpretrain_tools.sweeps.configuration import BadConfig
from mpretrain_tools.sweeps.slurm import LaunchError

sys.exit(of_several(reproduce, BadConfig, LaunchError))
