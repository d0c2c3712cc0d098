#!/usr/bin/env python3
"""Draws loss curves of runs; see mpretrain_tools/plots/curves.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.plots import curves
from mpretrain_tools.runs.metrics import BadRun

sys.exit(reported(curves.main, BadRun, OSError, ValueError))
