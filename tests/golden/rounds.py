"""Protocols and composites below the doors, by direct calls: plans, what each round sends with a
fixed key, and the identity of every kind of question.

What a person sends in a round is a function of key, person, value and identity: what is frozen here
may never be drawn anew, or people who answered the old version and the new one answer twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.protocols import Ball, Box, plan_heavy_hitters, plan_user_mean
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import L2Mean, LInfMean
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.randomizers.randomness import UserRandomness, assignment_words, envelope_ids
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import (
    BinQuestion,
    LevelsQuestion,
    ListQuestion,
    PrivateFrequencies,
    PrivateHeavyHitters,
    PrivateMean,
    PrivateQuestions,
    PrivateUserMean,
    ValueBlock,
)
from tests.golden import frozen

KEY = bytes(range(32))
PEOPLE = 300
RUNNER = "--runner=FnApiRunner"
MINUTES = Box(CoordinateRanges(0, 60))

USER_MEANS = {
    "users": plan_user_mean(PEOPLE, 3, MINUTES, local_epsilon=4.0, sigma=1.0, split="users"),
    "budget": plan_user_mean(PEOPLE, 3, MINUTES, local_epsilon=4.0, sigma=1.0, split="budget"),
    "one round": plan_user_mean(PEOPLE, 3, MINUTES, local_epsilon=4.0, sigma=20.0),
    "vectors": plan_user_mean(PEOPLE, 3, Ball(3, 1.0), local_epsilon=4.0, sigma=0.1),
}
SEARCHES = {
    "secret": plan_heavy_hitters(PEOPLE, 6.0, num_bits=12, most_symbols=1 << 10),
    "visible": plan_heavy_hitters(
        PEOPLE, 6.0, num_bits=12, most_symbols=1 << 10, assignment="visible"
    ),
    "many levels": plan_heavy_hitters(PEOPLE, 6.0, num_bits=16, most_symbols=1 << 10),
}


def how(folder: Path, **more: Any) -> dict[str, Any]:
    """Of a composite with a key."""
    (folder / "key").write_bytes(KEY)
    (folder / "key").chmod(0o600)
    noise = Noise(dataset="them", id="week", key_file=str(folder / "key"))
    return {"noise": noise, "min_reports": 20, **more}


def rows(vectors: bool = False) -> list[dict[str, Any]]:
    """Three rows of each person."""
    found = []
    for i in range(3 * PEOPLE):
        x = [(i % 5) / 10, (i % 3) / 10, (i % 2) / 10]
        minutes = 20.0 + i // 3 % 4 + i % 3
        found.append({"uid": i // 3, "minutes": minutes} | (dict(zip("abc", x)) if vectors else {}))
    return found


def words(plan: Any) -> list[ValueBlock]:
    """One row of each person, with the place in a file that the draw of a row needs."""
    ids = np.arange(PEOPLE)
    return [ValueBlock(_bits(plan), ids, source="words.csv", positions=ids)]


def release(stage: beam.PTransform, given: list[Any]) -> list[Any]:
    """What a composite releases of these rows."""
    _KEPT.clear()
    with beam.Pipeline(options=PipelineOptions([RUNNER])) as pipeline:
        released = pipeline | beam.Create(given) | stage
        released | "Released" >> beam.Map(_keep)
        released.withheld | "Withheld" >> beam.Map(_keep)
    return list(_KEPT)


_KEPT: list[Any] = []


def _keep(element: Any) -> None:
    _KEPT.append(element)


def told(released: list[Any]) -> list[dict[str, Any]]:
    """Numbers of releases."""
    return [
        {
            "reports": one.num_reports,
            "smallest": one.smallest_batch,
            "event": event_to_json(one.event),
            "mechanism": dict(one.mechanism),
            "estimate": _estimate(one.estimate),
        }
        for one in released
    ]


def _estimate(estimate: Any) -> dict[str, Any]:
    names = ("value", "standard_error", "words", "low", "high", "tested", "num_users")
    return {name: _plain(getattr(estimate, name)) for name in names if hasattr(estimate, name)}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


# Direct calls --------------------------------------------------------------------------------


def of_protocol(name: str) -> dict[str, Any]:
    """All parties of a mean in two rounds, each with the key."""
    plan = USER_MEANS[name]
    ids = np.arange(PEOPLE)
    size = 3 if name == "vectors" else 1
    data = np.stack([20.0 + (ids + j) % 4 for j in range(size)], axis=1)
    data = data / 40 if name == "vectors" else data
    identity = ReleaseIdentity("them", "week", mechanism=plan.config_digest().hex())
    rng = UserRandomness(KEY, ids, identity)
    estimate = plan.run(plan.space.unit(data), ids, rng)
    assigned = plan.assign(ids)
    return {
        "plan": plan.to_config(),
        "digest": plan.config_digest().hex(),
        "gates": plan.min_reports(PEOPLE),
        "coordinate": frozen.digest(str(assigned.coordinate.tolist())),
        "second round": int(assigned.in_round_two.sum()),
        "estimate": _estimate(estimate),
    }


def _bits(plan: Any) -> np.ndarray:
    """The code of each person's word, of which half hold the same."""
    words = [b"e" if i % 2 else b"txyz"[i // 2 % 4 :][:1] for i in range(PEOPLE)]
    return np.asarray(plan.code.encode(words).bits)


def of_search(name: str) -> dict[str, Any]:
    """Levels and what people of each answer with the key; of each the candidates follow."""
    plan, ids = SEARCHES[name], np.arange(PEOPLE)
    bits = _bits(plan)
    identity = ReleaseIdentity("them", "week", mechanism=plan.config_digest().hex())
    levels = plan.assign(assignment_words(KEY, ids, identity))
    candidates, steps = plan.root, []
    for number, level in enumerate(plan.levels):
        asked = levels == number
        part = replace(identity, part=f"level {number}")
        values = plan.encode(bits[asked], number, candidates)
        reports = level.oracle.randomize(values, UserRandomness(KEY, ids[asked], part))
        estimate = level.oracle.estimate(level.oracle.accumulate(reports), len(reports))
        steps.append(
            {
                "people": int(asked.sum()),
                "values": frozen.digest(str(values.tolist())),
                "reports": frozen.digest(reports.dtype.str + reports.tobytes().hex()),
                "candidates": candidates.tolist(),
                "ids": frozen.digest(envelope_ids(KEY, ids[asked], part).tobytes()),
            }
        )
        if number < len(plan.levels) - 1:
            candidates = plan.extend(number, estimate, candidates)
    found = plan.finish(estimate, candidates, PEOPLE)
    received = [step["people"] for step in steps]
    price = None if min(received) == 0 else float(plan.price(1e-6))
    return {
        "plan": plan.to_config(),
        "digest": plan.config_digest().hex(),
        "gates": plan.min_reports(PEOPLE),
        "levels": steps,
        "found": _estimate(found),
        "crowd": plan.crowd(received),
        "price": price,
    }


# Identities ----------------------------------------------------------------------------------

HAIR, EYES, TOWNS = Domain(("red", "fair")), Domain(("a", "b")), Domain(("north", "south"))
_ONE_ROW = People(id="uid")
_GROUPS = People(id="uid", group_by="town", groups=TOWNS)
_BINS = Bins((0.0, 30.0, 60.0, 90.0))
_TREE = Hierarchy(Bins(tuple(map(float, range(0, 90, 10)))), 2)


def _survey(*domains: Domain) -> list[KRandomizedResponse]:
    return [KRandomizedResponse(domain.size, 2.0) for domain in domains]


KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "list": lambda how: PrivateFrequencies(
        KRandomizedResponse(3, 2.0), domain=HAIR, column="hair", people=_ONE_ROW, **how),
    "list of rows": lambda how: PrivateFrequencies(
        KRandomizedResponse(3, 2.0), domain=HAIR, column="hair", people=People(one_row=True),
        **how),
    "list in groups": lambda how: PrivateFrequencies(
        KRandomizedResponse(3, 2.0), domain=HAIR, column="hair", people=_GROUPS, **how),
    "bins": lambda how: PrivateFrequencies(
        KRandomizedResponse(4, 2.0), domain=_BINS, column="age", people=_ONE_ROW, **how),
    "one of two lists": lambda how: PrivateQuestions(
        OneQuestion(tuple(_survey(HAIR, EYES))),
        [ListQuestion("hair", HAIR), ListQuestion("eyes", EYES)], people=_ONE_ROW, **how),
    "two lists": lambda how: PrivateQuestions(
        EveryQuestion(tuple(_survey(HAIR, EYES))),
        [ListQuestion("hair", HAIR), ListQuestion("eyes", EYES)], people=_ONE_ROW, **how),
    "bins among questions": lambda how: PrivateQuestions(
        EveryQuestion((KRandomizedResponse(3, 2.0), KRandomizedResponse(4, 2.0))),
        [ListQuestion("hair", HAIR), BinQuestion("age", _BINS)], people=_ONE_ROW, **how),
    "tree": lambda how: PrivateQuestions(
        OneQuestion(tuple(KRandomizedResponse(size, 2.0) for size in _TREE.sizes)),
        [LevelsQuestion("age", _TREE)], people=_ONE_ROW, **how),
    "mean in a range": lambda how: PrivateMean(
        LInfMean(1, 2.0), columns="age", ranges=CoordinateRanges(0, 90), people=_ONE_ROW, **how),
    "mean in a norm": lambda how: PrivateMean(
        L2Mean(2, 2.0), columns=["age", "steps"], people=_ONE_ROW, **how),
    "user mean": lambda how: PrivateUserMean(
        USER_MEANS["users"], columns="minutes", people=_ONE_ROW, **how),
    "secret search": lambda how: PrivateHeavyHitters(
        SEARCHES["secret"], column="word", people=_ONE_ROW, **how),
    "visible search": lambda how: PrivateHeavyHitters(
        SEARCHES["visible"], column="word", people=_ONE_ROW, **how),
}  # fmt: skip


def parts_of(identity: ReleaseIdentity) -> dict[str, Any]:
    """An identity, and the digests of all that follow from it."""
    window, key = identity.of_window(0, 60 * 10**6), bytes(range(1, 33))
    return {
        "identity": identity.to_json(),
        "digest": identity.digest.hex(),
        "window": window.digest.hex(),
        "round of a window": window.of_round(1).digest.hex(),
        "round": identity.of_round(0).digest.hex(),
        "group": identity.of_group("north").digest.hex(),
        "permanent": identity.permanent.digest.hex(),
        "question": identity.question.digest.hex(),
        "committed": replace(identity, key="").committed(key).digest.hex(),
    }
