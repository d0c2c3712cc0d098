#!/usr/bin/env python3
"""Writes the generated parts of docs/reference/; see mpretrain_tools/documentation/reference.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.documentation.reference import main
from mpretrain_tools.sweeps.configuration import BadConfig

sys.exit(reported(main, BadConfig, OSError))
