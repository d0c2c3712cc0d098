#!/usr/bin/env python3
"""Draws the matrix-fitting diagnostic; see mpretrain_tools/plots/toy.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.plots import toy

sys.exit(reported(toy.main, OSError, KeyError, TypeError, ValueError))
