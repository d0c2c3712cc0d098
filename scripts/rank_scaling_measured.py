#!/usr/bin/env python3
"""Measures two ranks and compares; see mpretrain_tools/rank_model/measured.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.rank_model.measured import main
from mpretrain_tools.sweeps.configuration import BadConfig

sys.exit(reported(main, BadConfig))
