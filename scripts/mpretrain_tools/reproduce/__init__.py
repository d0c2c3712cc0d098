"""Writes one table or figure of the paper; scripts/reproduce/README.md lists them,
scripts/reproduce/all.sh makes all.

A module for each, and what they share:

artefact        what all of them have in common: arguments, provenance, files
rows            rows of the paper's tables
redraw          a page and its CSV as they are, to draw them again without the tokens
tuning_report   what descents found, as the paper tabulates it
compare         rows beside one another: differences over seeds, tests of them, tables
student         Student's t distribution and Holm's correction
style           how figures look: one colour an optimizer, one line a regime
paper           what the paper prints
"""

NAMES = (
    "memory_table",
    "architecture_table",
    "toy_figures",
    "main_table",
    "apollo_table",
    "branch_weighting",
    "lr_sensitivity",
    "chinchilla_figure",
    "tune",
    "tuning_tables",
    "runtime_table",
    "seed_tables",
)
