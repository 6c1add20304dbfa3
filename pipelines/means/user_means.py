"""What the record and the statement of `beam-ldp user-mean` say differently."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.pipelines.records.record import MeanRecord
from beam_ldp.pipelines.records.statement import Words, words_of


@dataclass(frozen=True)
class UserMeanRecord(MeanRecord):
    """The record of a mean of people's means.

    Attributes:
        split: "none" (one round), "budget" (everybody answers both) or "users" (each person one).
        rounds: of each round: its number, what it asks, its mechanism and local budget, how many
            people hide each other in it, and its price (epsilon at delta).
        rows_per_user, sigma, user_sigma, outliers: what was supposed, for accuracy alone.
        failure_probability: that the rounds failed people who are as supposed.
    """

    statistic: str = "user_mean"
    split: str = "none"
    rounds: tuple[dict[str, Any], ...] = ()
    rows_per_user: int = 1
    sigma: tuple[float, ...] | None = None
    user_sigma: tuple[float, ...] = (0.0,)
    outliers: float = 0.0
    failure_probability: float = 0.0


@words_of.register
def _user_mean(record: UserMeanRecord) -> Words:
    words = words_of.dispatch(MeanRecord)(record)
    return replace(
        words,
        person=f"Rows with the same value in the column `{record.user_id}` belong to one person; "
        "**all rows of a person are protected together**, and so is their number: they were "
        "reduced to one mean, on the trusted edge, before anything was randomized.",
        person_briefly=f"column {record.user_id!r}, all rows together",
        intervals="for each coordinate by itself in the files, for all coordinates at once in the "
        "table and in the plot. They are for the mean of these people's own means, however many "
        "rows each of them has" + _bias(record),
        counted=_counted(words, record),
        notes=(*words.notes, *map(_round, record.rounds), *_supposed(record)),
    )


def _counted(words: Words, record: UserMeanRecord) -> str:
    how = {
        "budget": "Everybody answers both rounds: the privacy costs of the rounds add up, whatever "
        "the second learned from the first",
        "users": "Each person answers one round, chosen by a public hash of the id, and bears the "
        "cost of that one: the privacy cost is that of the costlier round",
    }.get(record.split)
    return words.counted if how is None else f"{words.counted}. {how}"


def _round(one: dict[str, Any]) -> str:
    price = "" if one["epsilon"] is None else f", epsilon = {one['epsilon']:.4g}"
    at = f" at delta = {one['delta']:.3g}" if price and one["delta"] else ""
    budget = "" if one["local_epsilon"] is None else f", local epsilon = {one['local_epsilon']:.4g}"
    return (
        f"round {one['round']}: {one['asks']} by {one['mechanism']}{budget}{price}{at}; "
        f"{one['people']:,} people hide each other"
    )


def _supposed(record: UserMeanRecord) -> tuple[str, ...]:
    if record.split == "none":
        return ()
    rows = f"rows: at least {record.rows_per_user:,} of each person"
    sigma = "spread over their range"
    if record.sigma is not None:
        sigma = f"sigma = {_listed(record.sigma)}"
    return (
        "assumptions about the data, for accuracy alone (privacy does not depend on them): "
        f"{rows}, independent, {sigma} about the person's own mean; user sigma = "
        f"{_listed(record.user_sigma)} of persons' means about each other; all but a share of "
        f"{record.outliers:g} of the people",
        f"intervals leave {record.failure_probability:.2g} of their level to the failure of round "
        "one (wrong bin, or somebody outside)",
        "the interval that round one found is not released; it steers round two, and its privacy "
        "cost is that of round one",
    )


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _bias(record: UserMeanRecord) -> str:
    if record.bias_bound == 0:
        return ""
    return f". They are widened by {record.bias_bound:.3g} for outliers that were clipped"
