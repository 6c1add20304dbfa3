"""What a few who lie do to a training, and what is left of it once colluders are dropped.

    python -m benchmarks.forged_reports [--runs 3] [--rounds 40] [--output FOLDER]

Logistic regression on digits (650 parameters, CLDP-SGD): 600 of 1,437 clients in a round send one
PrivUnit report of their gradient at a local epsilon of 6, and 5 % of them another one that the
mechanism can make. They know the model and how it is read. How they choose what they send:

    one direction       the longest report, for everything to be a zero
    against the others  the longest report, against the gradient of the public test data
    up to the limit     as far as the check allows, for everything to be a zero, the rest at random

Accuracy on public data of the plain mean, of the median of the means of 101 groups, coordinate by
coordinate, and of the mean without colluders; mean and standard deviation over runs. Writes
forged_reports.json and .md; a minute and a half on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special
from sklearn.datasets import load_digits

from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.randomizers.mean import PrivUnit, compact_mean

CLIENTS, TAKING_PART, LIARS, GROUPS = 1437, 600, 0.05, 101
EPSILON, CLASSES = 6.0, 10
STEP, LAST = 1.5, 0.3  # of the first round and of the last, in clipping norms of 1
ATTACKS = ("nobody lies", "one direction", "against the others", "up to the limit")
HOW = ("plain mean", "median of groups", "without colluders")


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features with a constant, and labels: of clients, and public ones."""
    data, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(data))
    features = np.column_stack([data / 16, np.ones(len(data))])[order]
    labels = labels[order]
    return features[:CLIENTS], labels[:CLIENTS], features[CLIENTS:], labels[CLIENTS:]


def gradients(model: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of the logistic loss of each example, `(n, features * classes)`."""
    off = special.softmax(features @ model.reshape(-1, CLASSES), axis=1)
    off[np.arange(len(labels)), labels] -= 1
    return (features[:, :, None] * off[:, None, :]).reshape(len(labels), -1)


def toward(digit: int, dimension: int) -> np.ndarray:
    """A gradient whose descent raises all weights of one digit, of length one."""
    direction = np.zeros((dimension // CLASSES, CLASSES))
    direction[:, digit] = -1
    return (direction / np.linalg.norm(direction)).ravel()


def forged(
    attack: str, mechanism: PrivUnit, check: CollusionCheck, count: int,
    against: np.ndarray, rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """So many reports, all of them possible."""
    d, share = mechanism.dimension, 1.0
    along = np.tile(toward(0, d), (count, 1))
    if attack == "against the others":
        along = np.tile(-against / np.linalg.norm(against), (count, 1))
    elif attack == "up to the limit":
        share = 0.98 * check.limits[1024] / mechanism._longest_read
    across = rng.normal(size=(count, d))
    across -= (across * along).sum(axis=1, keepdims=True) * along
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    exact = mechanism._lengths_sent[0][0] * (share * along + math.sqrt(1 - share**2) * across)
    largest = mechanism.fixed_point.largest
    made = np.clip(np.floor(exact + rng.random(exact.shape)), -largest, largest)
    reports = made.astype(mechanism.report_dtype)
    if not mechanism.possible(reports).all():
        raise AssertionError("forged reports would be dropped")
    return reports


def aggregate(
    how: str, mechanism: PrivUnit, check: CollusionCheck, reports: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """The mean of the reports, in one of three ways."""
    if how == "median of groups":
        dealt = np.array_split(rng.permutation(len(reports)), GROUPS)
        means = [reports[group].mean(axis=0) for group in dealt]
        return np.median(means, axis=0) * mechanism.fixed_point.step
    if how == "without colluders":
        reports = reports[check.examine(reports, rng).kept]
    return mechanism.estimate(mechanism.accumulate(reports), len(reports)).value


def accuracy(how: str, attack: str, rounds: int, seed: int) -> float:
    """Of the model after so many rounds, on public data."""
    features, labels, public, answers = digits()
    rng = np.random.default_rng([seed, ATTACKS.index(attack)])
    made = compact_mean(PrivUnit, features.shape[1] * CLASSES, local_epsilon=EPSILON)
    assert isinstance(made, PrivUnit)
    check, model = CollusionCheck(made), np.zeros(made.dimension)
    liars = 0 if attack == "nobody lies" else round(LIARS * TAKING_PART)
    for number in range(rounds):
        drawn = rng.choice(CLIENTS, TAKING_PART - liars, replace=False)
        reports = made.randomize(gradients(model, features[drawn], labels[drawn]), rng)
        if liars:
            against = gradients(model, public, answers).mean(axis=0)
            reports = np.concatenate([reports, forged(attack, made, check, liars, against, rng)])
        rate = STEP * (LAST / STEP) ** (number / rounds)
        model -= rate * aggregate(how, made, check, reports, rng)
    return float(((public @ model.reshape(-1, CLASSES)).argmax(axis=1) == answers).mean())


def measure(runs: int, rounds: int, tell: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """A row for each attack: mean and standard deviation of the accuracy, each way."""
    rows = []
    for attack in ATTACKS:
        row: dict[str, Any] = {"attack": attack}
        for how in HOW:
            found = [accuracy(how, attack, rounds, seed) for seed in range(runs)]
            row[how] = {"accuracy": float(np.mean(found)), "sd": float(np.std(found, ddof=1))}
        tell(_line(row))
        rows.append(row)
    return rows


def _line(row: dict[str, Any]) -> str:
    cells = [f"{row[how]['accuracy']:.3f} ± {row[how]['sd']:.3f}" for how in HOW]
    return f"| {' | '.join([row['attack'], *cells])} |"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    rows = measure(given.runs, given.rounds)
    head = [f"| 5 % send | {' | '.join(HOW)} |", "|---|---|---|---|"]
    text = "\n".join([
        "# Forged reports", "",
        f"`python -m benchmarks.forged_reports`: accuracy on digits after {given.rounds} rounds of "
        f"{TAKING_PART} reports, {given.runs} runs.", "",
        *head, *map(_line, rows), "",
    ])  # fmt: skip
    (given.output / "forged_reports.md").write_text(text)
    told = {"rounds": given.rounds, "runs": given.runs, "rows": rows}
    (given.output / "forged_reports.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
