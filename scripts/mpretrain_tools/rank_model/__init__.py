"""What training over ranks takes, counted (memory, bytes sent) and predicted (time); scripts/scaling_model.py asks it."""

from .case import CONFIGS, LARGE, OPTIMIZERS, REGIMES, SIZE, SMALL, Batch, Case, Regime, Shape, ceil_div, model
from .exchange import Volume, buckets, norm_pieces, own_elements, partition, pieces_of, stored_bytes, volume
from .memory import PURPOSES, memory_of
from .outlook import sharded_further, tensor_parallel
from .step import (H100, Machine, Protocol, Work, efficiency, group_work, simulate, update_seconds, without_bytes, without_latency,
                   without_launches)

__all__ = ["CONFIGS", "H100", "LARGE", "OPTIMIZERS", "PURPOSES", "REGIMES", "SIZE", "SMALL", "Batch", "Case", "Machine", "Protocol",
           "Regime", "Shape", "Volume", "Work", "buckets", "ceil_div", "efficiency", "group_work", "memory_of", "model",
           "norm_pieces", "own_elements", "partition", "pieces_of", "sharded_further", "simulate", "stored_bytes",
           "tensor_parallel", "update_seconds", "volume", "without_bytes", "without_latency", "without_launches"]
