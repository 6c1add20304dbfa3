"""Nobody is asked over budget: by sums, and by likelihoods in every transcript there is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_ldp.protocols.interaction import hash_people
from beam_ldp.randomizers.frequency import KRandomizedResponse, LocalHashing
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.research.interactivity.kernels import LikelihoodFilter
from beam_ldp.transforms import PerPersonFilter, ValueBlock
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.blocks import ReportBlock
from beam_ldp.transforms.elements.stages import StageError
from tests.research.interactivity.test_stages import collected
from tests.transforms.helpers import local

pytestmark = pytest.mark.pipeline

ORACLE = KRandomizedResponse(4, local_epsilon=0.75)
INPUTS = np.repeat(np.arange(3), 3)  # nine data, of which three answer a coarse question alike


@dataclass(frozen=True)
class Told(KRandomizedResponse):
    """Randomized response whose people say what they are told: for tests of every answer."""

    def randomize(self, values: np.ndarray, rng: Any = None) -> np.ndarray:
        return np.asarray(values).astype(self.report_dtype)


COARSE, FINE = Told(3, 0.9), Told(3, 0.5)
QUESTIONS = [*[(COARSE, INPUTS)] * 3, (FINE, np.arange(9) % 3)]
"""Three times for the block of three, and for the place in it."""


def values_of(pipeline: beam.Pipeline, label: str, *blocks: ValueBlock) -> beam.PCollection:
    return pipeline | label >> beam.Create(blocks).with_output_types(ValueBlock)


def states_of(spent: list[tuple[int, tuple[str, bytes]]], width: int) -> dict[int, np.ndarray]:
    """By hash of the person."""
    kind = np.dtype([("person", "<u8"), ("state", "<f8", (width,))])
    kept = np.concatenate([np.frombuffer(told, dtype=kind) for _, (_, told) in spent])
    return dict(zip(kept["person"].tolist(), kept["state"]))


def test_no_transcript_tells_more_than_the_budget() -> None:
    """Everybody gives answers of their own: all of 3^4 transcripts of four questions."""
    budget = 1.8
    transcripts = list(itertools.product(*(range(one.domain_size) for one, _ in QUESTIONS)))
    people = np.arange(len(transcripts))
    asked_of = np.zeros((len(QUESTIONS), len(people)), dtype=bool)
    filters = [LikelihoodFilter(9, budget) for _ in people]
    for turn, (question, data) in enumerate(QUESTIONS):
        kernel = question.channel()[:, data].T
        for person, answers in enumerate(transcripts):
            if filters[person].fits(kernel):
                asked_of[turn, person] = True
                filters[person].answered(kernel, answers[turn])

    def build(pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        found, before = {}, None
        for turn, (question, data) in enumerate(QUESTIONS):
            told = np.array([answers[turn] for answers in transcripts])
            values = values_of(pipeline, f"Values {turn}", ValueBlock(told, people))
            reports = values | f"Ask {turn}" >> PerPersonFilter(
                budget, question, data=data, before=before
            )
            before, found[f"{turn}"] = reports.spent, reports
        return {**found, "spent": before}

    found = collected(build)
    states = states_of(found["spent"], 9)
    assert len(states) == len(people)
    for person, word in enumerate(hash_people(people).tolist()):
        assert states[word] == pytest.approx(filters[person].logs, abs=1e-12)
        assert np.ptp(states[word]) <= budget + 1e-9
    for turn in range(len(QUESTIONS)):
        said = np.concatenate([block.reports for block in found[f"{turn}"]]).tolist()
        expected = [answers[turn] for answers, on in zip(transcripts, asked_of[turn]) if on]
        assert sorted(said) == sorted(expected)
    sums = sum(one.local_epsilon * on for (one, _), on in zip(QUESTIONS, asked_of))
    assert sums.max() == pytest.approx(3.2)  # of answers that differ, which addition rejects
    # asked at all: everybody twice; again those with different answers; last, with all three
    assert asked_of.sum(axis=1).tolist() == [81, 81, 54, 18]


def test_one_row_of_a_person_moves_likelihoods_and_real_noise_is_noted() -> None:
    """Two rows are two data, of which the filter follows one; others have no answer in it."""
    question = LocalHashing(3, 1.0)
    blocks = [ValueBlock([0, 1, 2], [5, 6, 6], None, "a", np.arange(3)),
              ValueBlock([2, 0], [6, 7], None, "b", np.arange(2))]  # fmt: skip

    def build(pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        values = values_of(pipeline, "Values", *blocks)
        asked = values | PerPersonFilter(1.0, question, data=np.arange(3))
        return {"reports": asked, "spent": asked.spent}

    found = collected(build)
    reports = np.concatenate([block.reports for block in found["reports"]]).tolist()
    listed, states = question.channel_reports().tolist(), states_of(found["spent"], 3)
    assert sorted(states) == sorted(hash_people([5, 6, 7]).tolist())
    expected = np.log(question.channel()[[listed.index(report) for report in reports]])
    assert sorted(one.tolist() for one in states.values()) == sorted(expected.tolist())


def test_by_sums_nobody_is_asked_over_budget_and_everybody_else_is() -> None:
    """Two questions of 0.75 fit into 1.5: person i has i rows in the first question."""
    ids = np.repeat(np.arange(6), np.arange(6))
    first = [ValueBlock(ids[i::3] % 4, ids[i::3], None, f"part {i}", np.arange(5))
             for i in range(3)]  # fmt: skip
    texts = np.array([b"ada", b"bob", *(b"%d" % i for i in range(6))], dtype=object)
    second = ValueBlock(np.arange(8) % 4, texts)

    def build(pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        asked = values_of(pipeline, "First", *first) | PerPersonFilter(1.5, ORACLE)
        same = values_of(pipeline, "Same", second)
        then = same | "Ask second" >> PerPersonFilter(1.5, ORACLE, before=asked.spent)
        last = same | "Ask third" >> PerPersonFilter(1.5, ORACLE, before=then.spent)
        spent = {f"spent {i}": one.spent for i, one in enumerate((asked, then, last))}
        return {"first": asked, "second": then, "third": last, **spent}

    found = collected(build)
    kind = np.dtype([("person", "<u8"), ("nano", "<i8", (1,))])

    def rows_of(name: str) -> dict[int, int]:
        """Rows for which each person has paid, by hash."""
        kept = np.concatenate([np.frombuffer(one, kind) for _, (_, one) in found[name]])
        cost = round(ORACLE.local_epsilon * 1e9)
        return dict(zip(kept["person"].tolist(), (kept["nano"][:, 0] // cost).tolist()))

    def told(counts: dict[bytes, int]) -> dict[int, int]:
        words = hash_people(np.array(list(counts), dtype=object)).tolist()
        return dict(zip(words, counts.values()))

    assert all(isinstance(block, ReportBlock) for block in found["first"])
    paid = [min(i, 2) for i in range(6)]
    assert rows_of("spent 0") == told({b"%d" % i: n for i, n in enumerate(paid) if n})
    assert sum(map(len, found["first"])) == sum(paid)
    everybody = {b"ada": 1, b"bob": 1, **{b"%d" % i: min(n + 1, 2) for i, n in enumerate(paid)}}
    assert rows_of("spent 1") == told(everybody)  # 2 to 5 had spent all
    assert sum(map(len, found["second"])) == 4
    assert rows_of("spent 2") == told({**dict.fromkeys(everybody, 2)})
    assert sum(map(len, found["third"])) == 3  # ada, bob and 0


def test_refusals() -> None:
    for wrong, reason in (
        ({"data": [0, 4]}, "data must be values of the randomizer, 0 to 3"),
        ({"data": [0.5]}, "data must be values"),
        ({"data": []}, "data must be values"),
        ({"data": [0, 1], "randomizer": LocalHashing(10**6, 1.0)}, "small channel"),
        ({"data": [0, 1], "noise": NoiseSource(ReleaseIdentity("a", "b"), "key")},
         "noise must be fresh"),
        ({"epsilon": 0.0}, "epsilon must"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            PerPersonFilter(**{"epsilon": 1.0, "randomizer": ORACLE, **wrong})  # type: ignore[arg-type]
    keyed = beam.Pipeline() | beam.Create([]).with_output_types(tuple[str, ValueBlock])
    with pytest.raises(StageError, match="without keys"):
        _ = keyed | PerPersonFilter(1.0, ORACLE)


@pytest.mark.parametrize(
    "ids, more, reason",
    [
        (None, {}, "PerPersonFilter needs user ids"),
        ([1, 2, 3], {"data": [0, 1]}, "before counts sums, and this question likelihoods of 2"),
    ],
)
def test_blocks_without_ids_and_odometers_of_another_kind_are_refused(
    ids: list[int] | None, more: dict[str, Any], reason: str
) -> None:
    block = ValueBlock(np.arange(3), ids)
    with pytest.raises(Exception, match=reason), local() as pipeline:
        values = values_of(pipeline, "Values", block)
        first = values | PerPersonFilter(1.0, ORACLE)
        _ = values | "Then" >> PerPersonFilter(1.0, ORACLE, before=first.spent, **more)
