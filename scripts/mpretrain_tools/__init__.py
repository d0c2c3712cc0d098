"""What goes with the program mpretrain: corpora, plots, sweeps of runs, the paper's tables and
figures, benchmarks.

repository     where the repository is, whose configs, pages and scripts the rest takes
runs           what a run recorded: read, compared, trained by several ranks
plots          loss curves, survival of updates, the matrix-fitting diagnostic
corpus         English text out of packages, token shards of C4
sweeps         training runs as cells of a table: run once, to the end, wherever they are started
study          studies of optimizers and formats: tuned, run, tested, all from one file
reproduce      the paper's tables and figures, one module each
machines       assumed figures of machines, for models of a step
rank_model     memory, traffic and time of many ranks
torch_llama    LLaMA in PyTorch, the oracle of tests and what speed is compared with
bench          what is measured on the CPU and a GPU, beside other programs
tools          the smaller ones of these by their names
documentation  generated reference pages, hooks of the site
descriptors    standard descriptors that are closed
with_parent    a program that ends with the process that started it
files          files that are whole or not there

The files of scripts/ start what is here. Nothing needs to be installed; `pip install -e .` makes
the package importable everywhere. Only the standard library is needed, but for drawing (matplotlib)
and for modules about PyTorch (torch, numpy).
"""

from mpretrain_tools import descriptors

descriptors.hold()  # before any module opens a file
