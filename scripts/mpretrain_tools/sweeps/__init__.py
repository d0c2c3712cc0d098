"""Training runs as cells of a table: what is known of them, and how they are run, once and to the
end.

configuration   a config with all it includes, as one JSON object
cell            one training run that a table needs, and what identifies it
ledger          results of finished cells, in a CSV that outlives their directories
launch, slurm   how a cell's program is started: locally, under mpirun or torchrun, as a Slurm array
stop            ending in good order when asked to
runner          runs what is not finished, several at a time
progress        what is running and how long it will take: a live table, or lines of a log
machine         what a result was computed on
descent         coordinate descent over hyperparameters
options         of whatever runs cells
plan            what `mpretrain plan` counts: parameters, steps, bytes
"""
