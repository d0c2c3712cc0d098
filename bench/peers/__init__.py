"""Other programs that take the same training step, to compare with."""
