#!/usr/bin/env python3
"""Writes the table of docs/benchmarks/gpu_kernels.md; see
mpretrain_tools/documentation/gpu_kernels.py.
"""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.documentation.gpu_kernels import main
from mpretrain_tools.documentation.kernel_code import MissingTools
from mpretrain_tools.documentation.ptxas_reports import BadReport

sys.exit(reported(main, BadReport, MissingTools, OSError))
