"""Keys of levels: what each opens, what it does not, and that nothing is ever drawn twice."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.level_keys import LevelKey, fresh_ids, hidden, level_chain, refined
from beam_ldp.randomizers.randomness import (
    derive_key,
    envelope_ids,
    report_ids,
)
from tests.identities import identity

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
LEVELS = (3.0, 1.0, 0.5, 0.2)
ORACLE = RefinableResponse.of_levels(20, LEVELS)
WEEK = identity("week-47").committed(SECRET)
CHAIN = level_chain(SECRET, WEEK, ORACLE)


def key_of(level, week=WEEK, secret=SECRET):
    return LevelKey.derived(secret, week, ORACLE, level)


def public(count, seed=1):
    rng = np.random.default_rng(seed)
    first = ORACLE.at_level(LEVELS[0]).randomize(rng.integers(0, 20, count), rng)
    ids = fresh_ids(count)
    return first, ids, hidden(ORACLE, CHAIN, first, ids)


@pytest.mark.exact
def test_each_key_gives_the_later_ones_and_none_before():
    """A hash forward; the key of a level is no function of a later one, so far as anybody knows."""
    assert len(set(CHAIN)) == len(LEVELS) - 1
    for before, after in itertools.pairwise(CHAIN):
        assert derive_key(before, b"next level") == after
    assert [key_of(level).secret for level in LEVELS[:-1]] == list(CHAIN)


@pytest.mark.exact
def test_the_largest_key_gives_back_the_first_report_and_each_undoes_its_own_steps():
    first, ids, shown = public(5000)
    assert (shown != first).mean() > 0.5
    np.testing.assert_array_equal(refined(ORACLE, key_of(3.0), shown, ids), first)
    steps = [refined(ORACLE, key_of(level), shown, ids) for level in LEVELS[:-1]]
    for closer, farther, keeps in zip(steps, [*steps[1:], shown], ORACLE._law.coins):
        same = keeps / 2**64 + (1 - keeps / 2**64) / ORACLE.num_symbols
        seen = (closer == farther).mean()
        assert abs(seen - same) < 5 * (same * (1 - same) / 5000) ** 0.5


@pytest.mark.statistical
def test_reports_of_every_level_have_the_law_of_their_mechanism():
    """Chi-squared over 100,000 reports of a value for each level; a false alarm in 4e-6."""
    from scipy.stats import chi2

    rng, n = np.random.default_rng(7), 100_000
    ids = (
        np.arange(1, 2 * n + 1, dtype="<u8").view(np.uint8).reshape(n, 16)
    )  # of a counter: not random
    first = ORACLE.at_level(3.0).randomize(np.full(n, 4), rng)
    shown = hidden(ORACLE, CHAIN, first, ids)
    for level in LEVELS:
        found = shown if level == 0.2 else refined(ORACLE, key_of(level), shown, ids)
        oracle = ORACLE.at_level(level)
        expected = n * oracle.channel()[:, 4]
        seen = oracle.accumulate(found)
        assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, oracle.num_symbols - 1)


@pytest.mark.exact
def test_the_parts_of_a_shift_do_not_depend_on_one_another():
    """Of 20,000 reports the residues that two steps add are as good as independent."""
    _, ids, _ = public(20_000)
    zero = np.zeros(len(ids), dtype=ORACLE.report_dtype)
    one = hidden(ORACLE, CHAIN[:1], zero, ids)
    again = hidden(ORACLE, [derive_key(CHAIN[0], b"next level")], zero, ids)
    moved = (one != 0) & (again != 0)
    assert len(np.unique((one[moved] - again[moved]) % ORACLE.num_symbols)) / 20 > 0.5
    assert (one[moved] == again[moved]).mean() < 0.2


@pytest.mark.exact
def test_no_two_releases_persons_or_values_draw_the_same():
    """Keys differ by release, data set and question; ids by person and by value."""
    others = [
        replace(WEEK, release_id="week-48"),
        replace(WEEK, dataset="other"),
        replace(WEEK, columns=("url",)),
        replace(WEEK, values="00"),
    ]
    chains = [level_chain(SECRET, one, ORACLE) for one in (WEEK, *others)]
    chains.append(level_chain(OTHER, identity("week-47").committed(OTHER), ORACLE))
    assert len({key for chain in chains for key in chain}) == 6 * 3
    users, values = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50)
    ids = report_ids(SECRET, users, values, WEEK)
    assert ids.shape == (200, 16) and len({row.tobytes() for row in ids}) == 200
    np.testing.assert_array_equal(ids, report_ids(SECRET, users, values, WEEK))
    assert (ids != report_ids(SECRET, users, values, replace(WEEK, release_id="x"))).any(1).all()
    texts = report_ids(SECRET, [f"u{user}" for user in users], values, WEEK)
    assert len({row.tobytes() for row in texts} | {row.tobytes() for row in ids}) == 400
    stays = envelope_ids(SECRET, users, WEEK)  # that of envelopes without levels
    assert len({row.tobytes() for row in stays}) == 50


@pytest.mark.exact
def test_one_id_for_two_values_would_tell_their_difference():
    """Why an id follows the value: with equal shifts the public reports differ as the first do."""
    first, ids, shown = public(1000)
    moved = (first.astype(int) + 3) % ORACLE.num_symbols
    again = hidden(ORACLE, CHAIN, moved.astype(first.dtype), ids)
    assert ((again.astype(int) - shown) % ORACLE.num_symbols == 3).all()
    with pytest.raises(ValueError, match="ids must not be zero"):  # the same for everybody
        hidden(ORACLE, CHAIN, first, np.zeros_like(ids))


@pytest.mark.exact
def test_a_key_file_comes_back_and_says_nothing_in_print():
    key = key_of(1.0)
    back = LevelKey.from_bytes(key.to_bytes())
    assert back == key and back.secret == key.secret
    back.check_fits(WEEK, ORACLE)
    assert key.secret.hex() not in repr(key) and "secret" not in repr(key)


@pytest.mark.exact
def test_every_changed_byte_of_a_key_file_and_another_level_are_noticed():
    content = key_of(1.0).to_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        try:
            found = LevelKey.from_bytes(bytes(changed))
        except ValueError as error:
            assert str(error) == "is damaged, or no level key: have it derived again"
        else:  # a change that JSON does not see, such as in white space
            assert found == key_of(1.0) and found.secret == key_of(1.0).secret
    told = json.loads(key_of(1.0).to_bytes())
    other = json.loads(key_of(3.0).to_bytes())
    for change in ({"level_epsilon": 3.0}, {"release": "00" * 32}, {"key": other["key"]},
                   {"seal": other["seal"]}, {"seal": 1}):  # fmt: skip
        with pytest.raises(ValueError, match="is damaged"):
            LevelKey.from_bytes(json.dumps({**told, **change}).encode())
    unsealed = {**told, "level_key_version": 1, "checksum": "00" * 8}
    with pytest.raises(ValueError, match="by an earlier version and has no seal"):
        LevelKey.from_bytes(json.dumps(unsealed).encode())
    for content in (b"", b"{}", b"[1]", b"null", SECRET, b'{"checksum": 1}', b"[" * 10_000):
        with pytest.raises(ValueError, match="is damaged"):
            LevelKey.from_bytes(content)


@pytest.mark.exact
def test_keys_of_another_release_or_level_are_refused_by_name():
    key = key_of(1.0)
    with pytest.raises(ValueError, match="is of release 'week-47', and these reports are of 'w8'"):
        key.check_fits(identity("w8").committed(SECRET), ORACLE)
    with pytest.raises(ValueError, match="are of 'week-47' with other terms"):
        key.check_fits(identity("week-47").committed(OTHER), ORACLE)
    with pytest.raises(ValueError, match=r"is of level 0.2, and keys are of levels 3, 1, 0.5"):
        replace(key, level=0.2).check_fits(WEEK, ORACLE)
    for level, said in (
        (2.0, "level must be one of 3, 1, 0.5, 0.2"),
        (0.2, "what everybody reads"),
    ):
        with pytest.raises(ValueError, match=said):
            key_of(level)
    with pytest.raises(ValueError, match="key is not the one that this release was started with"):
        key_of(1.0, secret=OTHER)
    with pytest.raises(ValueError, match="identity must be committed"):
        level_chain(SECRET, identity("week-47"), ORACLE)
    with pytest.raises(ValueError, match="key must be at least 32 secret bytes"):
        level_chain(b"short", WEEK, ORACLE)
    assert json.loads(key.to_bytes())["release_id"] == "week-47"
