#!/usr/bin/env python3
"""What training over ranks takes; see mpretrain_tools/rank_model/command.py."""

import sys

from mpretrain_tools.command import reported
from mpretrain_tools.rank_model.command import main
from mpretrain_tools.sweeps.configuration import BadConfig

sys.exit(reported(main, BadConfig))
