#!/usr/bin/env python3
"""Runs a study of optimizers and formats, and reports it; see mpretrain_tools/study."""

import sys

from mpretrain_tools import study

sys.exit(study.main())
