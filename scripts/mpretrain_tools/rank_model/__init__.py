"""What training over ranks takes: memory and bytes as `mpretrain plan` counts them, time by a
simulation.
"""

from .case import COMPUTE, LARGE, OPTIMIZERS, SIZE, SMALL, Batch, Case, Shape, model
from .outlook import sharded_further, tensor_parallel
from .step import (
    H100,
    Machine,
    Protocol,
    Work,
    efficiency,
    group_work,
    simulate,
    update_seconds,
    without_bytes,
    without_latency,
    without_launches,
)

__all__ = [
    "COMPUTE",
    "H100",
    "LARGE",
    "OPTIMIZERS",
    "SIZE",
    "SMALL",
    "Batch",
    "Case",
    "Machine",
    "Protocol",
    "Shape",
    "Work",
    "efficiency",
    "group_work",
    "model",
    "sharded_further",
    "simulate",
    "tensor_parallel",
    "update_seconds",
    "without_bytes",
    "without_latency",
    "without_launches",
]
