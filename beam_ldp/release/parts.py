"""Several releases that are one answer: one per group, per question, or per level of a hierarchy.

All of them come from one report (or one set of messages) of each person, so they have one price:
that of the dearest of them. Groups are disjoint people, and which group a person is in is public.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from beam_ldp.accounting.prices import Price, price_as_json
from beam_ldp.accounting.reports import crowd_of, hidden_users
from beam_ldp.planning.questions import price_if_known
from beam_ldp.questions.parts import withheld_as_json
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.questions import Questions
from beam_ldp.release.gates import NothingReleasedError, gate_reports
from beam_ldp.settings.job import Job
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease


@dataclass(frozen=True, eq=False)
class Parts(Release):
    """All releases of one run, as one that costs what the dearest of them costs.

    Attributes:
        releases: the parts, in the order of groups and questions.
        withheld: what was not released.
    """

    releases: tuple[Release, ...] = ()
    withheld: tuple[WithheldRelease, ...] = ()

    @classmethod
    def of(
        cls, releases: Sequence[Release], withheld: Sequence[WithheldRelease], question: str
    ) -> Parts:
        """Put parts together; at least one release."""
        dearest = min(releases, key=_crowd)
        own = {f.name: getattr(dearest, f.name) for f in fields(Release)}
        people = {(part.group, part.window): part.num_reports for part in releases}
        own |= {
            "question": question,
            "group": None,
            "num_reports": sum(people.values()),
            "smallest_batch": min(part.smallest_batch for part in releases),
            "simulated": any(part.simulated for part in releases),
        }
        return cls(**own, releases=tuple(releases), withheld=tuple(withheld))


def _crowd(release: Release) -> int:
    """Reports among which one hides: the fewer, the dearer, for one mechanism."""
    return release.smallest_batch if release.ran is None else crowd_of(release.ran)


def gate_parts(
    releases: Sequence[Release],
    withheld: Sequence[WithheldRelease],
    job: Job,
    question: str,
    bad_rows: bytes = b"",
    order: Sequence[str] = (),
) -> Parts:
    """All releases, in the order of groups, windows and questions; or why there is none.

    Raises:
        NothingReleasedError: if nothing was released.
    """
    if not releases and len(withheld) <= 1:
        gate_reports(releases, withheld, job, bad_rows)
    if not releases:
        most = max(withheld, key=lambda notice: notice.num_reports)
        raise NothingReleasedError(
            f"nothing was released: none of {len(withheld):,} groups has --min-reports "
            f"{job.min_reports:,}; the largest, {most.group!r}, has {most.num_reports:,}"
            f"{_most_often(bad_rows)}"
        )
    places = {name: i for i, name in enumerate(order)}
    ordered = sorted(
        releases, key=lambda r: (r.group or "", r.window or (0, 0), places.get(r.question, 0))
    )
    return Parts.of(ordered, withheld, question)


def _most_often(bad_rows: bytes) -> str:
    reasons = Counter(json.loads(line)["reason"] for line in bad_rows.splitlines())
    return (
        f"; rows could not be used, most often: {reasons.most_common(1)[0][0]}" if reasons else ""
    )


def part_facts(
    parts: Parts,
    randomizer: LocalRandomizer,
    job: Job,
    price: Callable[[Release], Price],
    group_by: str | None,
) -> dict[str, Any]:
    """What only the record of several releases tells; its `epsilon` is that of the dearest.

    group_by: the column that parts people into public groups, if any.
    design: "one" where each person answers one question drawn at random, "all" where everybody
        answers all with a split budget; None where there is one question.
    messages_per_user: messages that one person sends.
    epsilon_if_known: `epsilon` against a reader who knows which question a person answered.
    parts: of each release `question`, `group`, `num_reports` and its own price.
    withheld: of each group that was not released, how many reports it had.
    """
    priced: dict[int, dict[str, Any]] = {}
    listed = []
    for part in parts.releases:
        crowd = _crowd(part)
        if crowd not in priced:  # the questions of a group, and equal groups, cost the same
            priced[crowd] = price_as_json(price(part))
        named = {"question": part.question, "group": part.group, "num_reports": part.num_reports}
        answers = {"answers": part.answers[0]} if part.answers else {}
        listed.append({**named, **answers, **priced[crowd]})
    found: dict[str, Any] = {
        "kind": "parts",
        "group_by": group_by,
        "design": None,
        "messages_per_user": 1,
        "message_epsilon": None,
        "epsilon_if_known": None,
        "parts": tuple(listed),
        "withheld": withheld_as_json(parts.withheld),
    }
    if not isinstance(randomizer, Questions) or len(randomizer.oracles) == 1:
        return found
    found["design"] = "all" if randomizer.messages_per_user > 1 else "one"
    found["messages_per_user"] = randomizer.messages_per_user
    if randomizer.messages_per_user > 1:
        found["message_epsilon"] = max(oracle.local_epsilon for oracle in randomizer.oracles)
    elif not parts.simulated:
        found["epsilon_if_known"] = _if_known(parts, randomizer, job)
    return found


def _if_known(parts: Parts, randomizer: Questions, job: Job) -> float | None:
    """The dearest of all questions and groups, for a reader who knows a person's question."""
    groups: dict[Any, list[int]] = {}
    for part in parts.releases:
        whole = part.smallest_batch / max(1, part.num_reports)
        answers = round((part.answers[0] if part.answers else 0) * whole)
        groups.setdefault((part.group, part.window), []).append(
            hidden_users(answers, job.privacy.honest_fraction)
        )
    if parts.output == "reports":  # who answered what is uneven over the batches: no crowd counts
        return randomizer.local_epsilon
    found = [price_if_known(randomizer, 1, job.privacy.delta, counts) for counts in groups.values()]
    return float(max(found))
