"""What one message tells, of every mechanism: bounds, exact chances and attacks, and two pictures.

    python -m benchmarks.attacks [--images digits] [--output benchmarks/results]

`--images mnist` needs MNIST on this machine (docs/attacks.md). Everything starts from fixed seeds.
Writes attacks.json, .md, attacks.png and attacks_message.png; five minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from beam_ldp.accounting.reconstruction import DiffuseTarget, SparseTarget, largest_epsilon
from beam_ldp.accounting.reconstruction_audit import CHANCES, attacked_epsilon
from beam_ldp.randomizers.mean import BinaryVectorMean, PrivUnit, PrivUnitGaussian
from beam_ldp.randomizers.registry import offered
from beam_ldp.research.attacks.images import load_images
from beam_ldp.research.attacks.messages import direction_chance, epsilon_reaching
from beam_ldp.research.attacks.tables import Attacked, picture
from beam_ldp.research.attacks.trials import (
    LINEAR,
    MESSAGE,
    NEAREST,
    VALUE,
    WORDS,
    Trials,
    image_trials,
    value_trials,
    word_trials,
)

PEOPLE = 500
COSINE = 0.5
DIMENSIONS = (16, 64, 256, 784)
BUDGETS = (4.0, 20.0, 100.0)
PICTURED = (500.0, 100.0, 20.0, 4.0)
SMALL = (1.0, 2.0, 4.0, 6.0)
VALUES = 100
WORDS_ASKED = SparseTarget(items=20, domain=1000, precision=0.7, recall=0.5)
Row = dict[str, Any]


def budgets() -> list[Row]:
    """From which local epsilons a uniform direction is found; computed."""
    rows = []
    for d in DIMENSIONS:
        for chance in CHANCES:
            gaussian = epsilon_reaching(
                lambda e, d=d: direction_chance(PrivUnitGaussian(d, e, inputs="sphere"), COSINE),
                chance, 1e-5,
            )  # fmt: skip
            rows.append({
                "dimension": d, "chance": chance,
                "bound": max(0.0, largest_epsilon(DiffuseTarget(d, COSINE), chance)),
                "PrivUnit": attacked_epsilon(d, COSINE, chance), "PrivUnitGaussian": gaussian,
            })  # fmt: skip
    return rows


def tried(attack: Callable[[], Trials]) -> Trials | str:
    """What an attack found, or why the mechanism cannot be had so."""
    try:
        return attack()
    except (ValueError, TypeError) as error:
        return str(error)


def pictures_of(images: Any) -> list[Row]:
    """Every mechanism of vectors, on images."""
    rows = []
    for kind in offered("mean"):
        for epsilon in BUDGETS:
            found = tried(
                lambda kind=kind, epsilon=epsilon: image_trials(
                    kind, images.attacked, images.public, (epsilon,), cosines_asked=(COSINE,)
                )
            )
            row: Row = {"mechanism": kind.__name__, "epsilon": epsilon}
            if isinstance(found, str):
                rows.append({**row, "refused": found})
                continue
            near, named = found.trials
            rows.append({
                **row, **found.mean_cosine[epsilon],
                "found": near.shares[LINEAR].value, "named": named.shares[NEAREST].value,
            })  # fmt: skip
    return rows


def words() -> list[Row]:
    """Sets of words, by whoever knows how common words are."""
    rows = []
    for kind in (PrivUnit, BinaryVectorMean):
        for trial in word_trials(kind, WORDS_ASKED, (*SMALL, *BUDGETS[1:]), people=PEOPLE).trials:
            rows.append({
                "mechanism": kind.__name__, "epsilon": trial.local_epsilon, "blind": trial.blind,
                "bound": trial.bound, "found": trial.shares[WORDS].value,
            })  # fmt: skip
    return rows


def values() -> list[Row]:
    """Every frequency oracle: naming the value."""
    rows = []
    for kind in offered("frequency"):
        found = tried(
            lambda kind=kind: value_trials(lambda e: kind(VALUES, e), SMALL, people=4 * PEOPLE)
        )
        if isinstance(found, str):
            rows.append({"mechanism": kind.__name__, "refused": found})
            continue
        for trial in found.trials:
            rows.append({
                "mechanism": kind.__name__, "epsilon": trial.local_epsilon, "bound": trial.bound,
                "exact": trial.exact, "named": trial.shares[VALUE].value,
            })  # fmt: skip
    return rows


def _number(value: Any, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    told = [*headings]
    lines = [f"| {' | '.join(told)} |", "|" + "---|" * len(told)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def page(figures: Row) -> str:
    """Everything as a Markdown page."""
    name = figures["images"]
    shown = [row for row in figures["pictures"] if "refused" not in row]
    why = {r["mechanism"]: r["refused"] for r in figures["pictures"] if "refused" in r}
    lines = [
        "# What one message tells",
        "",
        f"`python -m benchmarks.attacks --images {name}` writes this page. "
        "[Attacks](../../docs/attacks.md) says what the figures mean.",
        "",
        "## A direction of which nothing was known",
        "",
        f"Local epsilon from which a guess lies within an angle of cosine {COSINE:g} more often "
        "than so: proved for every mechanism and attack, and exactly for two.",
        "",
        *_table(
            ("numbers", "chance", "any mechanism, at least", "PrivUnit", "PrivUnitGaussian"),
            (
                (
                    str(row["dimension"]), f"{row['chance']:.0%}",
                    *(_number(row[k], ".4g") for k in ("bound", "PrivUnit", "PrivUnitGaussian")),
                )
                for row in figures["budgets"]
            ),
        ),
        f"## Images ({name}), where others are known",
        "",
        f"{figures['people']} images, {figures['public']:,} others public. Mean cosine between an "
        "image (less the public mean) and a guess; share within an angle of cosine "
        f"{COSINE:g}; share named out of the {figures['people']}.",
        "",
        "![what is recovered by the posterior mean](attacks.png)",
        "",
        "![what the message shows as it is](attacks_message.png)",
        "",
        *_table(
            ("mechanism", "local epsilon", MESSAGE, LINEAR, NEAREST, "within", "named"),
            (
                (
                    row["mechanism"], f"{row['epsilon']:g}",
                    *(_number(row[k]) for k in (MESSAGE, LINEAR, NEAREST, "found", "named")),
                )
                for row in shown
            ),
        ),
        "Left out, with the reason at the largest budget: "
        + "; ".join(f"{kind} ({reason})" for kind, reason in why.items())
        + ".",
        "",
        f"## Words ({WORDS_ASKED})",
        "",
        *_table(
            ("mechanism", "local epsilon", "blind guess", "at most", WORDS),
            (
                (
                    row["mechanism"], f"{row['epsilon']:g}",
                    *(_number(row[k]) for k in ("blind", "bound", "found")),
                )
                for row in figures["words"]
            ),
        ),
        f"## A value of {VALUES}",
        "",
        *_table(
            ("mechanism", "local epsilon", "at most", "exact", VALUE),
            (
                (
                    row["mechanism"], f"{row['epsilon']:g}",
                    *(_number(row[k]) for k in ("bound", "exact", "named")),
                )
                for row in figures["values"]
                if "refused" not in row
            ),
        ),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> Row:
    """Attack, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", default="digits")
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    images = load_images(options.images, None, options.people)
    found = image_trials(PrivUnit, images.attacked, images.public, PICTURED)
    prior = f"{len(images.public):,} other images are known"
    attacked = Attacked("PrivUnit", images.attacked.shape[1], prior, found, images)
    figures = {
        "images": options.images, "people": len(images.attacked), "public": len(images.public),
        "budgets": budgets(), "pictures": pictures_of(images), "words": words(),
        "values": values(),
    }  # fmt: skip
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "attacks.json").write_text(json.dumps(figures, indent=1) + "\n")
    (options.output / "attacks.md").write_text(page(figures))
    (options.output / "attacks.png").write_bytes(picture(attacked, LINEAR))
    (options.output / "attacks_message.png").write_bytes(picture(attacked, MESSAGE))
    print(page(figures))
    return figures


if __name__ == "__main__":
    main()
