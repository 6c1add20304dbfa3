"""PEM of pure-ldp: run by `heavy_hitters.py` in an environment of its own.

Needs pure-ldp with what it imports without declaring it (scikit-learn, statsmodels); nothing of
this repository. Reads one JSON object (words of people, local_epsilon, wanted, length), prints one.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

LETTER = 5  # bits: its strings are of bits, and it keeps a number for each possible string


def main() -> None:
    """Every person's word through the client, then the search."""
    from pure_ldp.heavy_hitters.prefix_extending import PEMClient, PEMServer

    given = json.load(sys.stdin)
    how = {
        "epsilon": given["local_epsilon"],
        "start_length": LETTER,
        "max_string_length": LETTER * given["length"],
        "fragment_length": LETTER,
    }
    people = ["".join(f"{ord(c) - 96:05b}" for c in word) for word in given["people"]]
    people = [bits.ljust(LETTER * given["length"], "0") for bits in people]
    client, server = PEMClient(**how), PEMServer(**how)
    begin = time.perf_counter()
    for word in people:
        server.aggregate(client.privatise(word))
    middle = time.perf_counter()
    found, _ = server.find_heavy_hitters(k=given["wanted"])
    letters = [
        [int(bits[i : i + LETTER], 2) for i in range(0, len(bits), LETTER)] for bits in found
    ]
    done = {
        "library": f"pure-ldp {version('pure-ldp')}",
        "found": ["".join(chr(96 + c) for c in word if c) for word in letters],
        "randomize_seconds": middle - begin,
        "search_seconds": time.perf_counter() - middle,
    }
    print(json.dumps(done))


if __name__ == "__main__":
    main()
