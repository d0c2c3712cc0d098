#!/usr/bin/env python3
"""Trains by 1, 2 and 3 ranks and compares; see mpretrain_tools/runs/ranks_check.py."""

import sys

from mpretrain_tools.runs.ranks_check import main

sys.exit(main())
