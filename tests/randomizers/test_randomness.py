"""Words: uniform, never shared by accident, always shared on purpose."""

from __future__ import annotations

import multiprocessing
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beam_ldp.randomizers import UserRandomness
from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.randomness import (
    FreshWords,
    SimulatedWords,
    contribution_ranks,
    derive_key,
    envelope_ids,
    word_source,
)
from tests.identities import identity

KEY = bytes(range(32))
DIGEST = b"m" * 16


def memoized(ids, values, digest=DIGEST, release="r", dataset="p", key=KEY):
    words = UserRandomness(key, ids, identity(release, dataset)).words_for(
        digest, np.asarray(values)
    )
    return words.words(0, len(values), 3)


@pytest.mark.exact
@pytest.mark.parametrize("source", [FreshWords(), SimulatedWords(np.random.default_rng(1))])
@pytest.mark.parametrize(("users", "per_user"), [(0, 1), (1, 1), (3, 5), (70_000, 1), (1000, 131)])
def test_shapes_and_no_repetition(source, users, per_user):
    """Repetition among n words of 64 bits has chance n**2 / 2**65: 5e-10 for the largest case."""
    words = source.words(0, users, per_user)
    assert words.shape == (users, per_user) and words.dtype == np.uint64
    more = np.concatenate([words.ravel(), source.extra(np.arange(7), np.arange(7))])
    assert len(np.unique(more)) == more.size


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["fresh", "simulated", "memoized"])
def test_bits_and_bytes_are_uniform(name):
    """Chi-square of the eight bytes, and each of 64 bits; false alarm below 1e-7 per source."""
    if name == "memoized":
        words = UserRandomness(KEY, np.arange(100_000), identity("r")).words_for(
            DIGEST, np.zeros(100_000, int)
        )
    else:
        words = FreshWords() if name == "fresh" else SimulatedWords(np.random.default_rng(5))
    drawn = words.words(0, 100_000, 2).reshape(-1)
    for byte in range(8):
        counts = np.bincount(
            (drawn >> np.uint64(8 * byte) & np.uint64(255)).astype(int), minlength=256
        )
        assert stats.chisquare(counts).pvalue > 1e-9
    ones = np.array([(drawn >> np.uint64(b) & np.uint64(1)).sum() for b in range(64)], dtype=float)
    assert np.abs(ones - drawn.size / 2).max() < 6.5 * np.sqrt(drawn.size) / 2
    neighbours = np.corrcoef(drawn[:-1].astype(float), drawn[1:].astype(float))[0, 1]
    assert abs(neighbours) < 6 / np.sqrt(drawn.size)


def _first_words(queue):  # type: ignore[no-untyped-def]
    queue.put(word_source(None, DIGEST, np.zeros(4)).words(0, 4, 1).ravel().tolist())


@pytest.mark.exact
def test_forked_processes_and_threads_share_no_draw():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    _first_words(queue)
    processes = [context.Process(target=_first_words, args=(queue,)) for _ in range(3)]
    threads = [threading.Thread(target=_first_words, args=(queue,)) for _ in range(3)]
    for worker in [*processes, *threads]:
        worker.start()
    drawn = [word for _ in range(7) for word in queue.get(timeout=60)]
    for worker in [*processes, *threads]:
        worker.join(timeout=60)
    assert len(set(drawn)) == 28


@pytest.mark.exact
def test_memoized_words_do_not_depend_on_blocks():
    ids, values = np.arange(100), np.arange(100) % 7
    words = UserRandomness(KEY, ids, identity("r")).words_for(DIGEST, values)
    whole = words.words(0, 100, 5)
    np.testing.assert_array_equal(words.words(40, 60, 5), whole[40:60])
    np.testing.assert_array_equal(words.words(0, 100, 2), whole[:, :2])
    users = np.array([3, 99, 3])
    positions = np.array([0, 4, 1])
    np.testing.assert_array_equal(words.extra(users, positions), whole[users, positions])
    order = np.random.default_rng(0).permutation(100)
    np.testing.assert_array_equal(memoized(ids[order], values[order]), memoized(ids, values)[order])


@pytest.mark.exact
def test_anything_that_changes_changes_all_words():
    ids = ["ann", "bob"]
    base = memoized(ids, [1, 1])
    assert len(np.unique(base)) == 6
    others = [
        memoized(["eve", "joe"], [1, 1]),
        memoized(ids, [2, 2]),
        memoized(ids, [1, 1], digest=b"n" * 16),
        memoized(ids, [1, 1], release="s"),
        memoized(ids, [1, 1], dataset="d"),
        memoized(ids, [1, 1], key=KEY + b"x"),
        memoized([1, 2], [1, 1]),
        memoized(["01", "2 "], [1, 1]),
    ]
    assert len(np.unique(np.concatenate([base, *others]))) == 9 * 6


@pytest.mark.exact
def test_one_id_however_it_is_written():
    values = [4, 4, 5]
    numbers = memoized(np.array([7, -8, 9], dtype=np.int16), values)
    for same in (
        [7, -8, 9],
        np.array([7, -8, 9]),
        np.array([7, -8, 9], dtype=object),
        iter([7, -8, 9]),
    ):
        np.testing.assert_array_equal(memoized(same, values), numbers)
    names = memoized(["x", "é", "07"], values)
    for same in (
        [b"x", "é".encode(), b"07"],
        np.array(["x", "é", "07"]),
        np.array(["x", "é", "07"], object),
    ):
        np.testing.assert_array_equal(memoized(same, values), names)
    for dtype in (np.uint8, np.int32, np.uint64):
        np.testing.assert_array_equal(memoized([7, -8, 9], np.array(values, dtype=dtype)), numbers)


@pytest.mark.exact
def test_one_value_in_whatever_array_it_stands():
    """A retry whose indices came as bytes or 32-bit numbers repeats the report, for ids that are
    texts and for values of several indices too."""
    for ids in (["ann", "bob"], [7, "bob"], [7, 8]):
        for values in ([3, 200], [[3, 200], [0, 1]]):
            expected = memoized(ids, np.array(values, dtype=np.int64))
            for dtype in (np.uint8, np.int32, np.uint64, ">i4"):
                again = memoized(ids, np.array(values, dtype=dtype))
                np.testing.assert_array_equal(again, expected)


@pytest.mark.exact
def test_vectors_as_values():
    rows = np.array([[0.5, 1.0], [0.5, 1.5]])
    words = memoized([1, 1], rows)
    assert (words[0] != words[1]).all()
    np.testing.assert_array_equal(memoized([1, 1], rows.astype(">f8")), words)


@pytest.mark.exact
def test_iterators_of_ids_last():
    """One object, two questions: the ids are not used up by the first."""
    randomness = UserRandomness(KEY, (str(i) for i in range(3)), identity("r"))
    first = randomness.words_for(DIGEST, np.arange(3)).words(0, 3, 1)
    again = randomness.words_for(DIGEST, np.arange(3)).words(0, 3, 1)
    np.testing.assert_array_equal(first, again)


@pytest.mark.exact
def test_refusals_and_secrecy():
    for key in (b"", b"k" * 31, "k" * 32, None):
        with pytest.raises(ValueError, match="key must be at least 32 secret bytes"):
            UserRandomness(key, [1], identity("r"))
    with pytest.raises(ValueError, match="release_id"):
        UserRandomness(KEY, [1], identity(""))
    randomness = UserRandomness(b"S" * 32, ["secret-user"], identity("r"))
    assert "SSS" not in repr(randomness) and "secret-user" not in repr(randomness)
    with pytest.raises(ValueError, match="one id per value"):
        randomness.words_for(DIGEST, np.zeros(2))
    for ids in ([1.5], [None], [True], np.array([0.5]), [""]):
        with pytest.raises((TypeError, ValueError), match="user_ids"):
            memoized(ids, [0])
    for rng in (7, "seed", np.random.RandomState(0)):
        with pytest.raises(TypeError, match="rng must be None"):
            word_source(rng, DIGEST, np.zeros(1))


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
@pytest.mark.exact
def test_labels_never_run_together(first, second):
    assert (length_prefixed(*first) == length_prefixed(*second)) == (first == second)
    assert (derive_key(KEY, *first) == derive_key(KEY, *second)) == (first == second)
    assert len(derive_key(KEY, *first)) == 32


@pytest.mark.statistical
def test_contribution_ranks_choose_evenly_and_stably():
    """The chosen of three rows, over 30,000 users: chi-square, false alarm 1e-9."""
    users = np.repeat(np.arange(30_000), 3)
    positions = [b"file:%d" % i for i in range(len(users))]
    ranks = contribution_ranks(KEY, users, positions, identity("r"))
    assert ranks.dtype == np.uint64 and len(np.unique(ranks)) == len(ranks)
    chosen = np.bincount(ranks.reshape(-1, 3).argmin(axis=1), minlength=3)
    assert stats.chisquare(chosen).pvalue > 1e-9
    np.testing.assert_array_equal(
        contribution_ranks(KEY, users[5:9], positions[5:9], identity("r")), ranks[5:9]
    )
    assert (contribution_ranks(KEY, users[:9], positions[:9], identity("s")) != ranks[:9]).all()
    assert (
        contribution_ranks(KEY, users[:9], positions[:9], identity("r", "e")) != ranks[:9]
    ).all()
    with pytest.raises(ValueError, match="secret bytes"):
        contribution_ranks(b"short", users[:1], positions[:1], identity("r"))


def test_ids_of_envelopes_and_ranks_of_rows_are_fixed_for_ever():
    """A re-run by another version must send the same copies and draw the same rows; each purpose
    has a key of its own."""
    names, release = ["ann", "bob"], identity("week-47", "visits", columns=("url",))
    assert [row.tobytes().hex() for row in envelope_ids(KEY, names, release)] == [
        "1336340f09d12ef4b73848ee2fd2cc1c",
        "aad8909579e30f93f035f4f00f46827e",
    ]
    assert envelope_ids(KEY, [7, -1], release)[1].tobytes().hex() == (
        "f7360e44a7dca668b5395ed191c85685"
    )
    ranks = contribution_ranks(KEY, names, [b"a", b"b"], release)
    assert ranks.tolist() == [2584246375798965154, 10191730319832042129]
