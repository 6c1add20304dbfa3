"""One program that confirms privacy statements without our accountant: `verify.py`."""
