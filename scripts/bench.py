#!/usr/bin/env python3
"""Measures the program, alone and beside others; see mpretrain_tools/bench."""

import sys

from mpretrain_tools import bench
from mpretrain_tools.bench import child
from mpretrain_tools.command import of_several

child.end_children_when_terminated()
sys.exit(of_several(bench))
