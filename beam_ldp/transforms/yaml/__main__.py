"""Prints where the provider file of the installed package is."""

from __future__ import annotations

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).with_name("provider.yaml"))
