"""Assumed figures of machines, which the models of a step are given: machines.json has them."""

import pathlib

from .sweeps import configuration


def figures(name):
    return configuration.parse(pathlib.Path(__file__).with_suffix(".json"))[name]
