"""Figure 7.3 of the thesis, computed anew: bits of a key that recovers values, and what is stored.

    python -m benchmarks.recovery [--output benchmarks/results]

The least entropy of such a key is exact; what keys of our mechanisms take in a file is measured.
Writes recovery.json, recovery.md and recovery.png. Takes some seconds.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    png,
)
from beam_ldp.randomizers.frequency.recoverable_keys import StoredKeys
from beam_ldp.randomizers.frequency.recoverable_response import (
    RecoverableResponse,
    least_key_entropy,
)

SIZES = (10, 100, 1000)
BUDGETS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
GAINS = (2, 4, 10)  # values, at local epsilon 5
STORED = ((10, 5.0), (100, 1.0), (100, 3.0), (1000, 1.0), (1000, 5.0))
PEOPLE = 100_000
_COLOURS = (ESTIMATE, "#1b998b", TRUTH)
_HEIGHT = 4.6  # inches


def least() -> dict[str, list[float]]:
    """H_min of each number of values, at each budget."""
    return {str(k): [least_key_entropy(k, e).bits for e in BUDGETS] for k in SIZES}


def storage_gain(domain_size: int, local_epsilon: float) -> float:
    """The share of log2 k bits a person that is saved by keeping the best key, not the value.

    >>> [round(100 * storage_gain(k, 5.0), 1) for k in (2, 4, 10)]
    [94.2, 91.4, 85.0]
    """
    bits = math.log2(domain_size)
    return (bits - least_key_entropy(domain_size, local_epsilon).bits) / bits


def stored(k: int, budget: float, people: int) -> list[dict[str, Any]]:
    """What the keys of so many people take, for the least error and for the least key."""
    rows = []
    for oracle in (RecoverableResponse(k, budget), RecoverableResponse.with_least_key(k, budget)):
        keys = oracle.draw_keys(people, np.random.default_rng(1))
        rows.append(
            {
                "values": k,
                "local_epsilon": budget,
                "design": oracle.design,
                "variance": float(oracle.variance(1, np.zeros(k))[0]),
                "least_bits": least_key_entropy(k, budget).bits,
                "key_bits": oracle.key_entropy_bits,
                "stored_bits": 8 * len(StoredKeys(oracle).pack(keys)) / people,
                "value_bits": math.log2(k),
            }
        )
    return rows


def computed(people: int = PEOPLE) -> dict[str, Any]:
    """All numbers of the page."""
    return {
        "schema_version": 1,
        "budgets": list(BUDGETS),
        "least_bits": least(),
        "gains": {str(k): storage_gain(k, 5.0) for k in GAINS},
        "people": people,
        "stored": [row for k, budget in STORED for row in stored(k, budget, people)],
    }


def picture() -> bytes:
    """Figure 7.3: bits against the local epsilon, and those of the value itself."""
    figure = figure_with(
        "Bits of a key that recovers one value",
        "solid: the least that any key takes; dotted: the value itself, log2 k bits",
        _HEIGHT,
    )
    axes = figure.add_axes((0.08, BELOW / _HEIGHT, 0.8, 1 - (ABOVE + BELOW) / _HEIGHT))
    budgets = np.linspace(0, 10, 201)
    for k, colour in zip(SIZES, _COLOURS):
        bits = [least_key_entropy(k, float(e)).bits for e in budgets]
        axes.plot(budgets, bits, color=colour, linewidth=2.2)
        axes.axhline(math.log2(k), color=colour, linewidth=1.2, linestyle=":")
        axes.text(10.15, math.log2(k), f"k = {k:,}", color=colour, fontsize=9, va="center")
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 10.6)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.set_xlabel("local epsilon", color=GREY)
    axes.set_ylabel("bits a person", color=GREY)
    return png(figure)


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    heads = " | ".join(f"eps {e:g}" for e in BUDGETS)
    lines = [
        "# Figure 7.3 of the thesis, computed anew: keys that recover values",
        "",
        "`python -m benchmarks.recovery` writes this page.",
        "",
        "![bits against the local epsilon](recovery.png)",
        "",
        "The least entropy of a key, in bits a person:",
        "",
        f"| values | {heads} | the value itself |",
        "|---" * (len(BUDGETS) + 2) + "|",
    ]
    for k, bits in found["least_bits"].items():
        cells = " | ".join(f"{b:.4f}" for b in bits)
        lines.append(f"| {k} | {cells} | {math.log2(int(k)):.4f} |")
    gains = ", ".join(f"{100 * g:.1f} % for {k}" for k, g in found["gains"].items())
    lines += [
        "",
        f"Saved at a local epsilon of 5 by keeping the key and not the value: {gains} values.",
        "",
        f"What keys of {found['people']:,} people take in a file (`StoredKeys`), for the design "
        "with the least error and for the one with the least key. Where the first has more bits "
        "than the value, storing values would take less:",
        "",
        "| values | eps | design | n Var | least | entropy | stored | the value |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["stored"]:
        lines.append(
            f"| {row['values']} | {row['local_epsilon']:g} | {row['design']} | "
            f"{row['variance']:.4g} | {row['least_bits']:.3f} | {row['key_bits']:.3f} | "
            f"{row['stored_bits']:.3f} | {row['value_bits']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--people", type=int, default=PEOPLE, help="whose keys are stored")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed(options.people)
    (options.output / "recovery.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "recovery.md").write_text(page(found))
    (options.output / "recovery.png").write_bytes(picture())
    print(page(found))
    return found


if __name__ == "__main__":
    main()
