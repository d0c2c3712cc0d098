#!/usr/bin/env python3
"""Sends a run's metrics to a tracker; see mpretrain_tools/runs/send.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.runs import send
from mpretrain_tools.runs.metrics import BadRun

sys.exit(reported(send.main, BadRun, OSError))
