"""How a Beam pipeline is run, watched, and gives its results back to the launcher."""
