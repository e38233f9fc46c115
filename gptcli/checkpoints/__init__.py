"""Run folders: their names, weights, checkpoints, retention and resume."""
