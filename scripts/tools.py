#!/usr/bin/env python3
"""Starts a tool of the package by its name; see mpretrain_tools/tools.py."""

import sys

from mpretrain_tools import tools

sys.exit(tools.main())
