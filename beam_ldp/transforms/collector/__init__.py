"""The collector's half: reports become releases."""
