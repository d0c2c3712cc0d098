#!/usr/bin/env python3
"""Draws the figures of README.md; see mpretrain_tools/plots/front_page.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.plots import front_page

sys.exit(reported(front_page.main, OSError, KeyError, ValueError))
