#!/usr/bin/env python3
"""Draws which updates survived rounding; see mpretrain_tools/plots/survival.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.plots import survival
from mpretrain_tools.runs.metrics import BadRun

sys.exit(reported(survival.main, BadRun, OSError, ValueError))
