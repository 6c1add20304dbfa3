"""Reports that are randomized in one place and collected in another."""
