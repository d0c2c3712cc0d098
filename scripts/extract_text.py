#!/usr/bin/env python3
"""Takes text out of documentation packages; see mpretrain_tools/corpus/extract_text.py."""

import sys

from mpretrain_tools.corpus.extract_text import main

sys.exit(main())
