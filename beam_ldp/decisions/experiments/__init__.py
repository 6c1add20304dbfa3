"""How many people an experiment needs, and what its counts decide: mathematics alone."""
