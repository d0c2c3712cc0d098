"""Sweeps of training runs: what a table needs to know about its cells, and how they are run, once and to the end.

configuration   a config with all it includes, as one JSON object
cell            one training run that a table needs, and what identifies it
ledger          results of finished cells, in a CSV that outlives their directories and travels between machines
sweep           cells of a sweep's JSON: base config, axes, seeds
launch, slurm   how a cell's program is started: locally, under mpirun or torchrun, as a Slurm array
with_parent     a program that ends with the process that started it
stop            ending in good order when asked to
runner          runs what is not finished, several at a time
progress        what is running and how long it will take: a live table, or lines of a log
machine         what a result was computed on
descent         coordinate descent over hyperparameters
rows            rows of the paper's tables
artefact        what all scripts of tables and figures have in common: arguments, provenance, files
redraw          a page and its CSV as they are, to draw them again without the tokens
tuning_report   what descents found, as the paper tabulates it
compare         rows beside one another: differences over seeds, tests of them, reductions of perplexity, tables
student         Student's t distribution and Holm's correction
style           how figures look: one colour an optimizer, one line a regime
plan            what `mpretrain plan` counts: parameters, steps, bytes
paper           what the paper prints
"""
