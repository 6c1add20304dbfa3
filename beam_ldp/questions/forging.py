"""What people who lie can do to a result: said in plans and statements, in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.question_set import Questions

if TYPE_CHECKING:  # plans of releases need nothing of trainings
    from beam_ldp.federated.collusion import CollusionCheck

SHARES = (0.001, 0.01, 0.05)  # of the reports that are forged
SHOWN = 0.01  # in tables


def forged_moves(mechanism: LocalRandomizer | None, people: int) -> dict[str, float] | None:
    """How far forged reports move an estimate at most, by their share of all.

    Args:
        mechanism: of the reports.
        people: who send them.

    Returns:
        By share ("0.01"): of frequencies the count of one value, in people; of means the vector's
        Euclidean length, in the unit of the data; infinite where a single one moves it anywhere.
        None where the mechanism does not say.
    """
    if mechanism is None:
        return None
    if not mechanism.protects_alone:  # a number modulo something: no share of liars bounds it
        return dict.fromkeys((f"{share:g}" for share in SHARES), math.inf)
    try:
        reach = mechanism.reach
    except NotImplementedError:
        return None
    each = reach * people if _counts(mechanism) else reach
    return {f"{share:g}": share * each for share in SHARES}


def forged_as_json(mechanism: LocalRandomizer | None, people: int) -> dict[str, float] | str | None:
    """The same for programs; "anywhere" where a single one moves it so."""
    moves = forged_moves(mechanism, people)
    if moves is None or all(map(math.isfinite, moves.values())):
        return moves
    return "anywhere"


def forged_cell(moves: Mapping[str, float] | None) -> str:
    """Of a table of plans."""
    if moves is None:
        return "?"
    if math.isinf(moves[f"{SHOWN:g}"]):
        return "any"
    return forged_text(moves[f"{SHOWN:g}"])


def forged_said(mechanism: LocalRandomizer | None, people: int = 0, unit: str = "") -> str:
    """A line of a plan or statement; empty where nothing is known.

    Args:
        mechanism: of the reports.
        people: who send them; 0 tells of shares of them.
        unit: of means, where it is not that of the data.
    """
    moves = forged_moves(mechanism, people or 1)
    if mechanism is None or moves is None:
        return ""
    if not mechanism.protects_alone:
        return "a single liar moves the mean anywhere, without a sign of it"
    what = "the mean"
    if _counts(mechanism):
        what, unit = "the count of a value", "people" if people else "% of the people"
    hundred = 100 if unit.startswith("%") else 1
    shares = [f"{100 * share:g} %" for share in SHARES]
    far = f"{forged_list({s: hundred * moved for s, moved in moves.items()})} {unit}".rstrip()
    some = f"{', '.join(shares[:-1])} or {shares[-1]}"
    return f"liars who are {some} of all move {what} by up to {far}"


def forged_in_rounds(mechanism: LocalRandomizer | None, norm: str, clip: float | None) -> str:
    """The same of a round of a training: how far liars move what the clients' reports add up to.

    Args:
        mechanism: of one report.
        norm: of the clipping.
        clip: the clipping norm; None where it adapts, and distances are multiples of the round's.
    """
    unit = "times the round's clipping norm"
    if clip is not None:
        unit = f"in Euclidean length (values are clipped to an {norm} norm of {clip:g})"
    said = forged_said(mechanism, unit=unit)
    return said.replace("of all move the mean", "of a round move its mean")


ONE_WAY = "reports that point one way together further than honest ones are left out"


def forged_usually(check: CollusionCheck, reports: int) -> dict[str, float]:
    """How far liars move a round of so many at most, by share, where its reports agree as noise."""
    return forged_shown(check, reports, check.usual_agreement(reports))


def forged_shown(check: CollusionCheck, reports: int, agreement: float) -> dict[str, float]:
    """The same of a round, whatever was forged of it, as its reports were seen to agree."""
    return {f"{share:g}": check.reach(share, reports, agreement) for share in SHARES}


def forged_list(moves: Mapping[str, float]) -> str:
    """Distances of all shares."""
    *first, last = map(forged_text, moves.values())
    return f"{', '.join(first)} or {last}"


def forged_text(moved: float) -> str:
    """A distance, never below the real one by more than its last digit."""
    return f"{moved:,.0f}" if moved >= 100 else readable(moved)


def forged_rows(mechanism: Any, people: int = 0, unit: str = "") -> list[tuple[str, str]]:
    """The same as a row of what a plan says, if there is any."""
    said = forged_said(mechanism, people, unit)
    return [("if people lie", said)] if said else []


def mechanism_of(config: Mapping[str, Any]) -> LocalRandomizer | None:
    """What a record's configuration stands for; None where that is no mechanism of one report."""
    try:
        return LocalRandomizer.from_config(dict(config))
    except ValueError:
        return None


def _counts(mechanism: LocalRandomizer) -> bool:
    return isinstance(mechanism, (FrequencyOracle, Questions))
