"""What a release costs, and what must hold before anything is written. Fail closed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.accounting.prices import Price, price_as_json
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.intervals import NORMAL
from beam_ldp.settings.sections import MAX_BAD_ROWS, MAX_LOCAL_EPSILON, odds
from beam_ldp.wording import many, number, verb

if TYPE_CHECKING:
    from rich.console import Console

    from beam_ldp.settings.job import Job
    from beam_ldp.transforms.elements.blocks import Release, WithheldRelease


_UNDECODABLE = "undecodable text"  # what such reasons begin with


def of_all_publications(
    facts: dict[str, Any], price: Price, local_epsilon: float, publication: int
) -> dict[str, Any]:
    """What a record says of parts: published before, each costs at most what all together cost.

    Which question a person of a cell answered is not counted, so a reader who knows it may see the
    report alone.
    """
    if publication == 1 or "parts" not in facts:
        return facts
    parts = tuple({**part, **price_as_json(price)} for part in facts["parts"])
    known = {} if facts.get("epsilon_if_known") is None else {"epsilon_if_known": local_epsilon}
    return {**facts, "parts": parts, **known}


class NothingReleasedError(RuntimeError):
    """The run ended well and released nothing, for a reason that the message gives."""


class NotPublishedError(NothingReleasedError):
    """The run is done, but its charge is not settled: nothing may be published.

    The charge stays as it is, whoever catches this.
    """


def gate_reports(
    releases: Sequence[Release],
    withheld: Sequence[WithheldRelease],
    settings: Job,
    bad_rows: bytes = b"",
) -> Release:
    """The one release, or why there is none.

    Args:
        releases, withheld: what came back.
        settings: what was asked for.
        bad_rows: the list of bad rows, for the message: a mistyped column makes all rows bad.
    """
    from beam_ldp.release.job_monitor import JobError  # loads Beam, as a run has before

    if len(releases) == 1:
        return releases[0]
    if releases:
        raise JobError(f"{len(releases)} releases came back where one was expected")
    if not withheld:
        raise JobError(
            "no result came back: workers must be able to write next to --output "
            f"({settings.output.folder})"
        )
    notice = max(withheld, key=lambda notice: notice.num_reports)
    needed = f"--min-reports is {settings.min_reports:,}"
    if notice.min_reports != settings.min_reports:  # of a round that asks a part of the people
        needed = f"{notice.min_reports:,} of the people asked must answer ({needed})"
    raise NothingReleasedError(
        f"nothing was released: {many(notice.num_reports, 'report')} received, "
        f"{needed}{BadRows.of(bad_rows).most_often}"
    )


# Why rows cannot be read, with what to do.
_WHAT_TO_DO = {
    "wrong type": "lists take text, integers or truth values; means and bins take numbers",
    "whole number that became a float": "a reader made floats of integers beside nulls: keep them "
    "integers, with pandas by astype('Int64'), or read them as text",
    "integer that the list writes with leading zeros": "a reader dropped the zeros of codes such "
    "as 01: read the column as text",
    "not a number": "a mean, and bins, take numbers or text that spells them",
    "number with a comma": "write a decimal point and no separator of thousands, as in 1234.5",
    "user id of wrong type": "ids are integers, decimals of scale 0, floats without a fraction, "
    "text or bytes",
    "no user id": "is that the column of ids?",
    "wrong number of coordinates": "see --dimension",
    "neither 0 nor 1": "--norm binary is for those",
    "undecodable text": "text must be UTF-8: convert it, a file of lines for instance by "
    "`iconv -f ENCODING -t UTF-8 FILE > NEW`",
    "undecodable text that looks like Windows-1252 or Latin-1": "if the whole file is, convert it "
    "by `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`",
    "wrong number of fields": "see --csv-delimiter",
    "not a JSON object": "see --input-format",
    "list of something else than numbers": "see --column",
}


def with_hint(reason: str) -> str:
    """Why rows cannot be read, and what to do."""
    return f"{reason}; {_WHAT_TO_DO[reason]}" if reason in _WHAT_TO_DO else reason


@dataclass(frozen=True)
class BadRows:
    """Rows that cannot be used, by reason.

    Attributes:
        without_value: they hold none, or are left out as declared.
        unreadable: they hold something that cannot be read as what the question asks.
        undecodable: where the first row stands that is not UTF-8.
    """

    without_value: Counter[str]
    unreadable: Counter[str]
    undecodable: str = ""

    @classmethod
    def of(cls, lines: bytes) -> BadRows:
        """What lines of bad_rows.jsonl tell."""
        from beam_ldp.questions.columns import WITHOUT_VALUE  # loads Beam

        found, undecodable = cls(Counter(), Counter()), ""
        for line in lines.splitlines():
            told = json.loads(line)
            reason, count = told["reason"], told.get("rows", 1)
            kind = found.without_value if reason in WITHOUT_VALUE else found.unreadable
            kind[reason] += count
            if reason.startswith(_UNDECODABLE) and not undecodable and told["position"] >= 0:
                place = "row" if ".parquet" in told["source"] else "line"
                undecodable = f"{place} {told['position']} of {told['source']} is not UTF-8"
        return cls(found.without_value, found.unreadable, undecodable)

    @property
    def reasons(self) -> Counter[str]:
        """Of all of them."""
        return self.without_value + self.unreadable

    @property
    def most_often(self) -> str:
        """The end of a sentence about rows that are missing; "" where none is bad."""
        reasons = self.reasons
        if not reasons:
            return ""
        ((reason, _),) = reasons.most_common(1)
        return (
            f"; {many(reasons.total(), 'row')} could not be used, most often: {with_hint(reason)}"
        )

    def too_many(self, num_rows: int, most: float | None, least: float = 0.0) -> str:
        """Why nothing may be released; "" where it may.

        Args:
            num_rows: rows that were read, these included.
            most: as `--max-bad-rows`.
            least: a share that is allowed whatever `most` says.
        """
        bad = self.unreadable.total()
        held = max(bad, num_rows - self.without_value.total())
        limit = MAX_BAD_ROWS if most is None else most
        text_is_lost = most is None and any(r.startswith(_UNDECODABLE) for r in self.unreadable)
        allowed = limit if limit >= 1 else max(limit, least) * held
        if not bad or (bad <= allowed and not text_is_lost):
            return ""
        where = f"{self.undecodable}: " if self.undecodable else ""
        reasons = ", ".join(f"{reason}: {n:,}" for reason, n in self.unreadable.most_common(3))
        hint = _WHAT_TO_DO.get(self.unreadable.most_common(1)[0][0], "")
        allows = f"--max-bad-rows is {limit:g}"
        if text_is_lost:
            allows = "such text is left out only where --max-bad-rows is given"
        return (
            f"{where}{bad:,} of {many(held, 'row')} that hold a value cannot be read ({reasons}); "
            f"{hint}{'; ' if hint else ''}{allows}"
        )


def gate_bad_rows(bad_rows: bytes, num_rows: int, settings: Job, of_people: bool = True) -> BadRows:
    """The rows that could not be used.

    Args:
        bad_rows: lines of bad_rows.jsonl.
        num_rows: rows that were read, these included.
        settings: what was asked for.
        of_people: they are rows, and not envelopes, of which strangers may forge any number: those
            are limited only where a limit is given.

    Raises:
        NothingReleasedError: if more than allowed could not be read.
    """
    found, most = BadRows.of(bad_rows), settings.source.max_bad_rows
    if (of_people or most is not None) and (said := found.too_many(num_rows, most)):
        raise NothingReleasedError(f"nothing was released: {said}")
    return found


def say_left_out(found: BadRows, console: Console, people: int | None = None) -> None:
    """What the result does not speak of, on the console.

    Args:
        found: the rows that could not be used.
        console: where it is said.
        people: who count, where they may have several rows: rows say nothing of those without any.
    """
    for what, reasons in (
        ("hold no value", found.without_value),
        ("cannot be read", found.unreadable),
    ):
        if reasons:
            listed = ", ".join(f"{reason}: {count:,}" for reason, count in reasons.most_common())
            said = f"{many(reasons.total(), 'row')} {what} ({listed})"
            console.print(said, style="dim", highlight=False, soft_wrap=True, markup=False)
    lost = found.unreadable.total()
    if people is not None and lost > MAX_BAD_ROWS * (lost + people):
        said = f"All rows of up to {many(lost, 'person')} may be among them ({people:,} count)"
        console.print(said, style="dim", highlight=False, soft_wrap=True)
    if found.reasons:
        console.print(
            "The result is about the other rows: where what a row holds decides whether it is left "
            "out, the result is biased, and no error bar shows it",
            style="dim", highlight=False, soft_wrap=True,
        )  # fmt: skip


NEVER = 1e-6  # how often honest reports bring an estimate that far, for a whole list


def gate_estimates(release: Release, low: Any, high: Any) -> tuple[str, ...]:
    """Warnings where estimates lie where no honest reports bring them: far below what is least, or
    far above what is most.

    Args:
        release: what would be released; of several parts each.
        low, high: between which numbers an estimate without noise lies.
    """
    found = []
    for part in getattr(release, "releases", ()) or (release,):
        estimate = replace(part.estimate.raw, rule=NORMAL)  # not cut to what is possible
        least, most = estimate.confidence_interval(1 - NEVER, simultaneous=True)
        wild = (most < low) | (least > high)
        if not wild.any():
            continue
        errors = estimate.standard_error[wild]
        beyond = np.maximum(low - estimate.value, estimate.value - high)[wild]
        where = " of ".join(str(name) for name in (part.question, part.group) if name)
        found.append(
            f"{where}: {wild.sum():,} of {wild.size:,} estimates lie outside of what is possible, "
            f"by up to {number(float((beyond / errors).max()))} standard errors: noise does not "
            "bring them there. Reports were forged, or made by another mechanism"
        )
    return tuple(found)


def gate_length(release: Release, radius: float) -> tuple[str, ...]:
    """A warning where a mean is longer than vectors of a ball and noise explain.

    Noise is longer than the root of its expected square and 5.3 standard errors once in a million
    releases, if it is Gaussian (Borell, Tsirelson, Ibragimov, Sudakov).

    Args:
        release: what would be released.
        radius: of the ball, in Euclidean length.
    """
    estimate = release.estimate.raw
    length = float(np.linalg.norm(estimate.value))
    errors = estimate.standard_error
    noise = float(np.linalg.norm(errors) + math.sqrt(-2 * math.log(NEVER)) * errors.max())
    if not length > radius + noise:
        return ()
    return (
        f"the mean is longer than any of honest vectors: {number(length)}, where they have at most "
        f"{number(radius)} and noise at most {number(noise)}. Reports were forged, or made by "
        "another mechanism",
    )


def weak_warnings(mechanism: Any, settings: Job) -> tuple[str, ...]:
    """Said before anything is read, of a mechanism that by itself hides hardly anything."""
    draw = _draw_warning(mechanism, settings)
    return draw + (() if settings.noise.simulated else _weak_alone(mechanism, settings))


MOST_OF_A_DRAW = 1.5  # times the bars without it; what is more is worth a word


def _draw_warning(mechanism: Any, settings: Job) -> tuple[str, ...]:
    """Where bars are wide because persons may have several rows, and a flag says they have not.

    Of means in shares, whose bars are those of the worst rows; others see in the reports how much
    rows vary.
    """
    asked = hasattr(settings.question, "one_row_each") and isinstance(mechanism, LocalRandomizer)
    asked = asked and math.isinf(mechanism.local_epsilon)
    if not asked or settings.sampling != "iid":
        return ()
    n = settings.planned_reports
    wide, narrow = (mechanism.variance(n, None, kind).max() for kind in ("iid", "fixed"))
    times = math.sqrt(wide / narrow)
    if times < MOST_OF_A_DRAW:
        return ()
    return (
        f"error bars are {number(times)} times as wide as the noise alone makes them: they allow "
        "for the draw of one row of each person. Where every person has one row, give "
        "--one-row-each",
    )


def _weak_alone(mechanism: Any, settings: Job) -> tuple[str, ...]:
    local = mechanism.local_epsilon
    if local <= MAX_LOCAL_EPSILON:
        return ()
    if math.isinf(local) and settings.privacy.trust_shuffler:
        return (
            "local epsilon is infinite: nobody is protected unless the shuffler is trusted. "
            "Whoever sees all that a person sends reads the value almost exactly, and one forged "
            "envelope moves the result anywhere",
        )
    if math.isinf(local):
        return (
            "there is no local epsilon: the server is told values as they are, and all protection "
            "rests on it",
        )
    seen = "a report"
    if mechanism.messages_per_user > 1:
        seen = f"all {mechanism.messages_per_user:,} messages of a person"
    rests = "the shuffler" if settings.trusts_the_shuffler else "reports being seen by nobody"
    return (
        f"local epsilon is {number(local)}: whoever sees {seen} can tell two values apart at odds "
        f"of {odds(local)}, and all protection rests on {rests}",
    )


def gate_price(price: Price, release: Release, settings: Job) -> tuple[str, ...]:
    """Warnings; a price above the target is the end, unless it is allowed and said.

    Args:
        price: of what was received.
        release: what would be released.
        settings: what was asked for.
    """
    warnings = []
    if settings.noise.seed is not None:
        warnings.append("simulated with a seed: no privacy guarantee")
    target = settings.privacy.epsilon
    if price.bound is not None and target is not None and float(price.bound) > target * (1 + 1e-12):
        expected = settings.privacy.expected_users
        expectation = "" if expected is None else f" and {expected:,} expected"
        came = release.num_reports
        said = (
            f"{many(came, 'report')} {verb(came, 'was', 'were')} received{expectation}: epsilon is "
            f"{number(float(price.bound))}, above the target {target:g}"
        )
        if not settings.privacy.allow_over_target:
            if release.smallest_batch < release.num_reports:
                said += (
                    f", for the smallest batch has {release.smallest_batch:,} (--scope global "
                    "makes one of all)"
                )
            raise NothingReleasedError(
                f"nothing was released: {said}. Pass --allow-over-target to release anyway"
            )
        warnings.append(said)
    if settings.trusts_the_shuffler and settings.privacy.delta * release.num_reports >= 1:
        warnings.append(
            f"delta is {settings.privacy.delta:g}, one in {release.num_reports:,} reports or more: "
            "such a delta allows publishing somebody's value; choose it far below"
        )
    if settings.people.id is None:
        warnings.append(settings.persons_unknown)
    return tuple(warnings)
