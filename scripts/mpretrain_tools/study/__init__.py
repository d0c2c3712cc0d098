"""Runs studies of optimizers and formats: what is compared, how it is tuned and what is tested
stands in one file.

run            brings the study to its end, or as far as it is let
report         writes its tables, figures and verdicts again from the ledger alone
check          tells what is wrong with the file, and what the study consists of

file           the file read, every mistake told
arms           what is compared: configurations with changes, one by one or as cross products
design, reader a whole study, and how it is read
knobs          hyperparameters: ranges, widening, ratios
sobol, sampler points of a search
search         the way through a study, from what the cells before came to
rows           what the ledger holds of a cell, its curve included
known          which rows of the ledger count
program        which program computed a cell: a hash of its sources
corpus         a hash of the tokens
protocol       hash and commit of the text that says beforehand what is done
rank_tests     exact tests by ranks
hypotheses     differences, equivalence, interactions
findings       what a study came to, of which report writes
results_page, tuning_page, provenance, tables, figures
"""

import sys

from ..command import of_several
from ..sweeps.configuration import BadConfig
from ..sweeps.slurm import LaunchError

NAMES = ("run", "report", "check")


def main():
    return of_several(sys.modules[__name__], BadConfig, LaunchError)
