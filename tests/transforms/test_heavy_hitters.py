"""Rows of people in, the words that many of them hold out: all levels on Beam."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_ldp.accounting.events import as_event
from beam_ldp.protocols import FoundWords, HeavyHitters
from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
from beam_ldp.protocols.string_code import StringCode
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.randomness import assignment_words
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import EncodeWords, PrivateHeavyHitters
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import (
    BadRowBlock,
    Release,
    TableBlock,
    ValueBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.rounds import Answered, AskRound, AssignRoles
from tests.identities import identity
from tests.transforms.helpers import chi_square, run

pytestmark = pytest.mark.pipeline

USERS = 3000
WORDS = ("heavy", "red", "a", "\N{GRINNING FACE}")
KEY = bytes(range(32, 64))


@cache
def plan(**options) -> HeavyHitters:
    """Three levels or four, at a local epsilon at which a few thousand people find words."""
    asked = {"local_epsilon": 8.0, "max_bytes": 8, "num_bits": 44, "false_words": 1.0, **options}
    return plan_heavy_hitters(USERS, **asked)


def word_of(person: int) -> str:
    """Half of the people hold one word, a tenth each of three others, the rest one of their own."""
    place = person % 10
    return WORDS[max(0, place - 4)] if place < 8 else f"{person}"


def table_of(ids, words=None) -> pa.RecordBatch:
    words = [word_of(i) for i in ids] if words is None else words
    return pa.RecordBatch.from_pydict({"uid": pa.array(list(ids)), "word": pa.array(words)})


def released(batches, protocol=None, **arguments):
    """`(releases, withheld)`."""
    arguments = {"column": "word", "people": People(id="uid"), **arguments}

    def build(pipeline):
        rows = pipeline | beam.Create(batches)
        releases = rows | PrivateHeavyHitters(protocol or plan(), **arguments)
        return (releases, releases.withheld) | beam.Flatten()

    found = run(build)
    return (
        [f for f in found if isinstance(f, Release)],
        [f for f in found if isinstance(f, WithheldRelease)],
    )


def everybody(users=USERS):
    return [table_of(range(i, min(i + 700, users))) for i in range(0, users, 700)]


@pytest.mark.statistical
def test_words_of_many_people_are_found_and_intervals_hold_the_truth() -> None:
    """Words of a tenth of the people, thrice the threshold; 95 % intervals for all at once."""
    assert plan().threshold < 0.04
    (release,), withheld = released(everybody())
    assert not withheld
    found = release.estimate
    assert isinstance(found, FoundWords)
    texts = [text.decode() for text in found.texts]
    assert texts[0] == WORDS[0] and set(WORDS) <= set(texts) and len(texts) <= 8
    truth = Counter(map(word_of, range(USERS)))
    for i, text in enumerate(texts[:4]):
        assert abs(found.frequency[i] - truth[text] / USERS) <= 5 * found.standard_error[i]
        assert found.low[i] <= found.frequency[i] <= found.high[i]
    received = release.mechanism["received"]
    assert len(received) == len(plan().levels) and sum(received) == release.num_reports == USERS
    assert release.smallest_batch == plan().crowd(received)
    (event,) = release.event.events
    assert event == as_event(plan().reports(received))


@pytest.mark.statistical
def test_each_group_finds_words_of_its_own() -> None:
    """The words of half of a group: missed with a probability far below 1e-6."""
    ids = range(2 * USERS)
    words = [f"{'north' if i % 2 else 'south'}" if i % 4 > 1 else f"{i}" for i in ids]
    batch = pa.RecordBatch.from_pydict(
        {"uid": list(ids), "word": words, "land": [["fr", "de"][i % 2] for i in ids]}
    )
    people = People(id="uid", group_by="land", groups=Domain(("de", "fr", "it")))

    def build(pipeline):
        rows = pipeline | beam.Create([batch])
        found = rows | PrivateHeavyHitters(plan(), column="word", people=people)
        values = found | beam.Values()
        return (values, found.withheld) | beam.Flatten()

    found = run(build)
    best = {one.group: one.estimate.texts[0] for one in found if isinstance(one, Release)}
    assert best == {"de": b"north", "fr": b"south"}
    assert [one.group for one in found if isinstance(one, WithheldRelease)] == ["it"]


def test_release_travels_whole() -> None:
    (release,), _ = released(everybody())
    coder = BlockCoder(Release)
    again = coder.decode(coder.encode(release))
    assert coder.encode(again) == coder.encode(release)
    for one in fields(FoundWords):
        told, found = getattr(release.estimate, one.name), getattr(again.estimate, one.name)
        assert np.array_equal(told, found), one.name
    assert again.event == release.event


def test_each_person_answers_one_level_with_one_row() -> None:
    batches = everybody(2800) + [table_of(range(1400))] * 3
    (release,), _ = released(batches, min_reports=2000)
    assert release.num_reports == 2800


def test_every_row_is_a_person_without_ids() -> None:
    (release,), _ = released(everybody(), people=People(), min_reports=USERS)
    assert release.num_reports == USERS and release.estimate.texts[0] == b"heavy"


@pytest.fixture
def noise(tmp_path) -> Noise:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    return Noise(dataset="them", id="week", key_file=str(tmp_path / "key"))


def blocks(size):
    """Encoded rows with source positions, in blocks of that size."""
    code = plan().code
    bits, _ = code.encode([word_of(i).encode() for i in range(USERS)])
    return [
        ValueBlock(bits[i : i + size], np.arange(i, min(i + size, USERS)), source="rows",
                   positions=np.arange(i, min(i + size, USERS)))
        for i in range(0, USERS, size)
    ]  # fmt: skip


def memoized(rows, noise):
    def build(pipeline):
        typed = pipeline | beam.Create(rows).with_output_types(ValueBlock)
        releases = typed | PrivateHeavyHitters(plan(), people=People(id="uid"), noise=noise)
        assert releases.traces is not None
        return releases

    (release,) = run(build)
    return BlockCoder(Release).encode(release)


def test_another_run_of_a_memoized_release_is_the_same_to_the_last_byte(noise: Noise) -> None:
    first = memoized(blocks(500), noise)
    assert memoized(blocks(1300)[::-1], noise) == first
    assert memoized(blocks(500), replace(noise, id="another week")) != first


@pytest.mark.exact
def test_a_level_is_a_function_of_key_person_and_release_and_not_of_the_word(noise) -> None:
    ids = np.arange(200)
    source = NoiseSource(identity("week"), noise.key_file)
    assign = AssignRoles(plan(), source)
    assign.setup()

    def levels(values):
        (block,) = assign.process(ValueBlock(values, ids), beam.window.GlobalWindow())
        return block.groups.tolist()

    one, other = (np.full((200, 1), word, dtype=np.uint64) for word in (1, 2))
    assert levels(one) == levels(other)
    drawn = assignment_words(KEY, ids, identity("week"))
    assert levels(one) == plan().assign(drawn).tolist()
    assert (drawn != assignment_words(KEY, ids, identity("other week"))).all()
    assert (drawn != assignment_words(KEY[::-1], ids, identity("week"))).all()


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [None, 7])
def test_levels_are_drawn_with_their_shares(seed) -> None:
    """Chi-square against the weights: false alarms below 1e-6 (with fresh draws each run)."""
    assign = AssignRoles(plan(), NoiseSource(seed=seed))
    assign.setup()
    block = ValueBlock(
        np.zeros((40_000, 1), dtype=np.uint64), source="r", positions=np.arange(40_000)
    )
    (assigned,) = assign.process(block, beam.window.GlobalWindow())
    counts = np.bincount(assigned.groups, minlength=len(plan().levels))
    shares = np.array([level.share for level in plan().levels])
    expected = 40_000 * shares
    assert chi_square((counts - expected) / np.sqrt(expected) * 100 + 10_000, 10_000) < 5


@pytest.mark.exact
def test_noise_is_drawn_anew_where_other_candidates_are_asked_about(noise: Noise) -> None:
    """Equal noise at equal places of two lists would tell whether a word stands at one place."""
    level = plan().levels[1]
    answer = AskRound(
        PortableRandomizer(level.oracle), NoiseSource(identity("week"), noise.key_file), False,
        plan().rounds[1],
    )  # fmt: skip
    answer.setup()
    answer.start_bundle()
    bits = plan().code.encode([b"heavy"] * 300).bits
    block = ValueBlock(bits, np.arange(300))
    shift = np.uint64(64 - plan().levels[0].prefix_bits)
    own = (bits[:1] >> shift) << shift
    lower, window = own - (np.uint64(1) << shift), beam.window.GlobalWindow()

    def reports(*candidates):
        asked = np.concatenate(candidates)
        found = answer.process(block, window, [Answered("", asked, (), False)])
        return next(iter(found)).reports.tolist()

    alone = reports(own)
    assert reports(own) == alone
    other = reports(own, own + (np.uint64(1) << shift))  # the same place, and another list
    assert sum(a != b for a, b in zip(alone, other)) > 0
    assert reports(lower, own) != alone


def test_a_level_with_too_few_reports_withholds_everything() -> None:
    releases, withheld = released(everybody(1500))
    assert not releases and withheld
    least = plan().min_reports(Shuffling(min_reports=2700).least(None))
    assert {notice.min_reports for notice in withheld} <= set(least)


def test_nobody_at_all_releases_nothing() -> None:
    releases, withheld = released([table_of([], pa.array([], pa.string()))])
    assert not releases and sum(notice.num_reports for notice in withheld) == 0


def test_a_simulation_has_no_event_and_repeats_itself() -> None:
    def once():
        def build(pipeline):
            typed = pipeline | beam.Create(blocks(1000)).with_output_types(ValueBlock)
            return typed | PrivateHeavyHitters(plan(), people=People(id="uid"), noise=Noise(seed=3))

        return run(build)[0]

    first = once()
    assert first.simulated and first.ran is None
    assert once().estimate.frequency.tolist() == first.estimate.frequency.tolist()


def encoded(rows, **how):
    """`(value blocks, bad rows)` of an encoder's."""

    def build(pipeline):
        found = pipeline | beam.Create(rows) | EncodeWords(plan(), "word", **how)
        return (found, found.bad_rows) | beam.Flatten()

    found = run(build)
    return (
        [f for f in found if isinstance(f, ValueBlock)],
        sorted(row.reason for f in found if isinstance(f, BadRowBlock) for row in f),
    )


HOSTILE = ("", "x" * 9, "a\0b", "\N{GRINNING FACE}", "\n", "é", "x" * 4096)


LATIN, ACCENTS, CYRILLIC = "international", "naïve café", "спасибо"  # 47, 97 and 93 bits
HAN, EMOJI = "谢谢你们", "\N{FACE WITH TEARS OF JOY}" * 3  # 95 bits each


@pytest.mark.exact
@pytest.mark.parametrize(
    ("words", "bits", "max_bytes", "said"),
    [
        ([LATIN, "the"], 64, 32, ""),
        ([LATIN, CYRILLIC, CYRILLIC], 64, 32, "67% of the first words have no code"),
        ([LATIN, HAN], 64, 32, "50% of"),
        ([EMOJI], 64, 32, "100% of"),
        ([ACCENTS, LATIN], 64, 32, "50% of"),
        ([LATIN, CYRILLIC, HAN, EMOJI], 96, 32, ""),
        ([LATIN, CYRILLIC], 96, 13, "longer than 13 bytes"),
        ([LATIN] * 199 + [CYRILLIC], 64, 32, ""),
        ([], 64, 32, ""),
    ],
)
def test_first_words_without_a_code_are_doubtful(words, bits, max_bytes, said) -> None:
    protocol = SimpleNamespace(code=StringCode(bits, max_bytes))
    stage = EncodeWords(protocol, "word")
    table = TableBlock("f", 0, pa.RecordBatch.from_pydict({"word": pa.array(words, pa.string())}))
    doubts = list(stage.encoder.doubts([block.values for block in stage.in_hand([table])]))
    assert len(doubts) == bool(said) and all(said in doubt for doubt in doubts)


@pytest.mark.parametrize("loose", [False, True])
def test_hostile_words_are_words_and_long_ones_are_none(loose: bool) -> None:
    rows = [{"word": word} for word in HOSTILE]
    batches = rows if loose else [pa.RecordBatch.from_pydict({"word": pa.array(HOSTILE)})]
    (block,), bad = encoded(batches)
    assert not bad
    nobody = (block.values == np.uint64(2**64 - 1)).all(axis=1).tolist()
    code = plan().code
    fits = [bool(length) for length in code.encode([w.encode() for w in HOSTILE]).lengths]
    assert nobody == [not fit for fit in fits]
    assert fits[:2] == [True, False] and fits[2:5] == [True] * 3 and not fits[-1]
    told = [code.decode(row).text.decode() for row, fit in zip(block.values, fits) if fit]
    assert told == [word for word, fit in zip(HOSTILE, fits) if fit]


BAD = (None, b"\xff\xfe", 1.5, float("nan"), "x" * 4097, ["list"])
REASONS = sorted(
    ["null", "undecodable text", "wrong type", "NaN", "over-long value", "wrong type",
     "missing column"]
)  # fmt: skip


def test_rows_that_hold_no_word_part_ways_or_leave_no_trace() -> None:
    rows = [{"word": word} for word in (*BAD, "red", 7, True)] + [{"other": 1}]
    (block,), bad = encoded(rows)
    assert bad == REASONS and len(block) == 3
    texts = [plan().code.decode(row).text for row in block.values]
    assert texts == [b"red", b"7", b"true"]
    (block,), bad = encoded(rows, bad_rows="other")
    assert not bad and len(block) == len(rows)
    assert (block.values == np.uint64(2**64 - 1)).all(axis=1).sum() == len(BAD) + 1


def test_columns_of_bytes_dictionaries_slices_and_nothing() -> None:
    texts = pa.array(["cut", "red", None, "a"]).slice(1)
    raw = pa.array([b"red", b"\xff", b"a"])
    for column, sound in ((texts, 2), (texts.dictionary_encode(), 2), (raw, 2), (pa.nulls(3), 0),
                          (pa.array([1, 2, 3]), 3), (pa.array([1.0, None, 2.0]), 0)):  # fmt: skip
        found, bad = encoded([pa.RecordBatch.from_pydict({"word": column})])
        assert sum(map(len, found)) == sound and len(bad) == 3 - sound
        if sound == 2:
            told = [plan().code.decode(row).text for row in found[0].values]
            assert told == [b"red", b"a"]


@pytest.mark.exact
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="protocol must be a HeavyHitters"):
        PrivateHeavyHitters(KRandomizedResponse(3, 1.0))
    with pytest.raises(ValueError, match="only sums of a level leave"):
        PrivateHeavyHitters(plan(), shuffle=Shuffling(output="reports"))
    with pytest.raises(ValueError, match="must be a declared name"):
        PrivateHeavyHitters(plan(), people=People(id="u"), noise=Noise(key_file="k"))
