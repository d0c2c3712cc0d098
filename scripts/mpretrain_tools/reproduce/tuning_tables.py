"""The paper's tables of hyperparameters, from what tune.py tried: traces, ablations and sensitive
keys.

    scripts/reproduce.py tuning_tables --scale pico --output docs/results/pico

Reads <output>/tuning/*.json; trains nothing.
"""

import sys

from . import tuning_report
from .artefact import Artefact


def main(arguments=None):
    artefact = Artefact("tuning_tables", __doc__, arguments)
    paths = sorted((artefact.output / "tuning").glob("*.json"))
    if not paths:
        sys.exit(
            f"tuning_tables: error: no trace in {artefact.output / 'tuning'}; tune.py writes them"
        )
    tuned = [tuning_report.read(path) for path in paths]
    artefact.write_csv(tuning_report.CSV_HEADER, tuning_report.records(tuned))
    artefact.write_markdown("Tuning", tuning_report.report(tuned))
    return 0
