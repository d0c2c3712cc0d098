#!/usr/bin/env python3
"""Makes token shards of C4; started by prepare_c4.sh; see mpretrain_tools/corpus/prepare_c4.py."""

import sys

from mpretrain_tools.corpus.prepare_c4 import main

sys.exit(main())
