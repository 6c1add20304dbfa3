"""What one message of a training shows of the image behind it: gradients inverted, in a picture.

    python -m benchmarks.gradient_inversion [--images 100] [--output benchmarks/results]

Handwritten digits (8 x 8, scikit-learn) less their public mean; the gradient of a classifier of one
layer and of one with 16 hidden units, at the start of a training, sent once by several mechanisms.
The attacker knows the model. Writes gradient_inversion.json, .md and .png; half a minute.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from beam_ldp.questions.pictures import GREY, figure_with, png
from beam_ldp.randomizers.mean import L2Mean, PrivUnit, SeparatedMean
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.research.attacks.gradient_inversion import SmallNetwork, invert_messages

EPSILONS = (4.0, 20.0, 100.0, 500.0)
HIDDEN = (0, 16)
RADIUS = 3.0  # of gradients; they are 2 to 3 long
MECHANISMS = {"PrivUnit": PrivUnit, "SeparatedMean": SeparatedMean, "L2Mean": L2Mean}
SHOWN = 4  # images of the picture
_HEIGHT = 6.6  # inches
Found = dict[str, Any]


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images less the mean of 897 others, which is public, and labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    scaled = data.data / 16
    return scaled[:count] - scaled[900:].mean(axis=0), data.target[:count]


def mechanism_of(name: str, dimension: int, epsilon: float) -> MeanRandomizer | None:
    """None sends gradients as they are."""
    return MECHANISMS[name](dimension, epsilon, RADIUS) if name in MECHANISMS else None


def measured(count: int) -> tuple[list[Found], dict[str, np.ndarray]]:
    """Rows of figures, and what was recovered of the first images, by row of the picture."""
    x, y = images(count)
    rows, shown = [], {"the image": x[:SHOWN]}
    for hidden in HIDDEN:
        network = SmallNetwork.drawn(x.shape[1], 10, hidden)
        d = network.num_parameters
        asked = [("no mechanism", math.inf), *((n, e) for n in MECHANISMS for e in EPSILONS)]
        for name, epsilon in asked:
            for knows in (True, False):
                found = invert_messages(
                    network, x, y, mechanism_of(name, d, epsilon), knows_errors=knows,
                    rng=np.random.default_rng(7),
                )  # fmt: skip
                rows.append({
                    "hidden": hidden, "parameters": d, "mechanism": name, "knows_model": knows,
                    "epsilon": epsilon if math.isfinite(epsilon) else None,
                    "cosine": float(found.cosine.mean()),
                    "error": float(stats.sem(found.cosine)),
                    "above_half": float(np.mean(found.cosine >= 0.5)),
                })  # fmt: skip
                if knows and not hidden and name in ("no mechanism", "PrivUnit"):
                    label = name if name not in MECHANISMS else f"{name}, {epsilon:g}"
                    shown[label] = found.recovered[:SHOWN]
    return rows, shown


def picture(shown: dict[str, np.ndarray]) -> bytes:
    """Images as columns; what was recovered at each budget as rows."""
    figure = figure_with(
        "What one message of a training shows of the image behind it",
        "classifier of one layer; the attacker knows it. Left: mechanism and local epsilon",
        _HEIGHT,
    )
    side = math.isqrt(next(iter(shown.values())).shape[1])
    for i, (label, vectors) in enumerate(shown.items()):
        for j, vector in enumerate(vectors):
            height = 0.82 / len(shown)
            axes = figure.add_axes((0.3 + 0.16 * j, 0.85 - height * (i + 1), 0.14, height * 0.9))
            most = np.abs(vector).max()
            axes.imshow(vector.reshape(side, side), cmap="gray", vmin=-most, vmax=most)
            axes.set_axis_off()
        figure.text(0.03, 0.85 - height * (i + 0.55), label, fontsize=9, color=GREY, va="center")
    return png(figure)


def page(rows: list[Found]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# Gradients of small models, inverted through mechanisms",
        "",
        "`python -m benchmarks.gradient_inversion` writes this page: the mean cosine between an "
        "image (less the public mean) and what one message gave of it; 1 is the image itself, a "
        "blind guess has 0 on average.",
        "",
        "![what is recovered at several local epsilons](gradient_inversion.png)",
        "",
    ]
    for hidden in HIDDEN:
        kind = f"two layers, {hidden} hidden units" if hidden else "one layer"
        d = next(row["parameters"] for row in rows if row["hidden"] == hidden)
        lines += [
            f"## {kind.capitalize()}: {d:,} parameters",
            "",
            "| mechanism | local epsilon | model known | shape known | images with 0.5 or more |",
            "|---|---|---|---|---|",
        ]
        mine = [row for row in rows if row["hidden"] == hidden]
        for known, shape in zip(mine[::2], mine[1::2]):
            epsilon = "none" if known["epsilon"] is None else f"{known['epsilon']:g}"
            lines.append(
                f"| {known['mechanism']} | {epsilon} | {_told(known)} | {_told(shape)} | "
                f"{known['above_half']:.0%} |"
            )
        lines.append("")
    lines.append(
        "Behind the figure: the standard error over images. The last column is that of the "
        "attacker who knows the model. Attackers read a message as its collector does; of "
        "`L2Mean`, which sends few bits about few coordinates, another one may read more: what no "
        "attacker exceeds is the same for all mechanisms of a local epsilon."
    )
    return "\n".join(lines) + "\n"


def _told(row: Found) -> str:
    return f"{row['cosine']:.3f} ({row['error']:.3f})"


def main(arguments: list[str] | None = None) -> list[Found]:
    """Attack, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    rows, shown = measured(options.images)
    (options.output / "gradient_inversion.json").write_text(json.dumps(rows, indent=2) + "\n")
    (options.output / "gradient_inversion.md").write_text(page(rows))
    (options.output / "gradient_inversion.png").write_bytes(picture(shown))
    print(page(rows))
    return rows


if __name__ == "__main__":
    main()
