"""Beam stages: rows of an experiment or of a bandit's batch become bits, numbers and sums."""
