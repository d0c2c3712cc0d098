#!/usr/bin/env python3
"""Prints runs side by side; see mpretrain_tools/runs/compare.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.runs import compare
from mpretrain_tools.runs.metrics import BadRun

sys.exit(reported(compare.main, BadRun))
