"""What somebody rebuilds of a person's data who sees messages of it: exactly, and simulated."""
