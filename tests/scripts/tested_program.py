"""The program that tests of scripts start: that of --program on their command line."""

import argparse
import os
import sys
import unittest

PROGRAM = []  # its path, once main() runs


def main():
    """Runs the tests of the script that was started."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    arguments, rest = parser.parse_known_args()
    PROGRAM.append(os.path.abspath(arguments.program))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    unittest.main(argv=[sys.argv[0], *rest])
