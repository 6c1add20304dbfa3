"""What each program says of itself: the settings that it takes, its help, its examples.

These modules import nothing heavy: somebody who asks for help waits for it, and
for a mistyped flag too. `tests/pipelines/test_start.py` holds them to it.
"""
