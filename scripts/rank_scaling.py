#!/usr/bin/env python3
"""Writes docs/scaling.md anew; see mpretrain_tools/rank_model/page.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.rank_model.page import main
from mpretrain_tools.sweeps.configuration import BadConfig

sys.exit(reported(main, BadConfig))
