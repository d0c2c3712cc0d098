"""Options of whatever runs cells: where tokens and runs lie, which program, how it is started."""

import pathlib

from .launch import ACCEPTED
from .plan import newest_program


def add_place(parser):
    parser.add_argument(
        "--tokens", type=pathlib.Path, help="output directory of `mpretrain tokenize`"
    )
    parser.add_argument(
        "--work", type=pathlib.Path, default=pathlib.Path("runs"), help="directory for the runs"
    )


def add_program(parser):
    parser.add_argument(
        "--program",
        default=newest_program(),
        help="mpretrain executable; default: the newest of build/*/mpretrain",
    )


def add_running(parser):
    parser.add_argument(
        "--jobs",
        type=int,
        help="cells to run at once; default: one per core, or one with a launcher",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads per cell")
    parser.add_argument(
        "--launcher",
        default="local",
        metavar="HOW",
        help=f"how to start cells: {ACCEPTED}; default: local",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="leave cells in Slurm's queue; a later run collects them",
    )
    parser.add_argument(
        "--retry", type=int, default=0, metavar="N", help="restart a failed cell up to N times"
    )
