"""The published formulas by name, for comparison and for readers of the papers."""
