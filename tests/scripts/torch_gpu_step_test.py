#!/usr/bin/env python3
"""Tests of how the PyTorch step finds micro-batches that fit, on a made-up torch.

PYTHONPATH=scripts tests/scripts/torch_gpu_step_test.py [CLASS[.TEST] ...]
"""

import argparse
import contextlib
import io
import sys
import unittest
from unittest import mock


class Rows(unittest.TestCase):
    def training(self, rows, fits):
        """(the torch that was used, the training) of a model that has memory for `fits` rows."""
        torch = mock.MagicMock()
        torch.randint.return_value = ([0] * 64, [0] * 64)
        with mock.patch.dict(
            sys.modules,
            {"torch": torch, "torch.nn": torch.nn, "mpretrain_tools.torch_llama": mock.MagicMock()},
        ):
            sys.modules.pop("mpretrain_tools.bench.torch_gpu_step", None)
            from mpretrain_tools.bench import torch_gpu_step
        self.addCleanup(sys.modules.pop, "mpretrain_tools.bench.torch_gpu_step", None)

        def model(tokens, _):
            if len(tokens) > fits:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return mock.MagicMock()

        made = torch_gpu_step.LlamaLoss.return_value.to.return_value
        made.side_effect = model
        args = argparse.Namespace(
            device="cuda", size="nano", seq_len=64, tokens_per_step=4096, micro_batch_rows=rows,
            no_compile=False, compile_mode="default",
        )  # fmt: skip
        with contextlib.redirect_stderr(io.StringIO()):
            return torch, torch_gpu_step.Training(args)

    def test_a_retry_compiles_nothing(self):
        torch, training = self.training(rows=32, fits=9)
        self.assertEqual(training.rows, 8)
        torch.compile.assert_called_once()

    def test_an_odd_number_of_rows_that_does_not_fit_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            self.training(rows=6, fits=2)


if __name__ == "__main__":
    unittest.main()
