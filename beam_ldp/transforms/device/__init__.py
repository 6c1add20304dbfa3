"""The device's half: rows become reports."""
