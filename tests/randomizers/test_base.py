"""What every randomizer inherits: blocks of words, configs, digests, checks, pickling."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from beam_ldp.randomizers import (
    FrequencyOracle,
    LocalRandomizer,
    ShufflePair,
    UserRandomness,
    local_randomizer,
)
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.frequency import KRandomizedResponse
from tests.identities import identity

pytestmark = pytest.mark.exact


@dataclass(frozen=True)
class EchoWords(FrequencyOracle):
    """Reports its random words, to show which ones it was given. Private to nobody."""

    width: int = 1

    @property
    def bits_per_report(self):
        return 64

    @property
    def report_dtype(self):
        return np.dtype(np.uint64)

    @property
    def report_shape(self):
        return (self.width + 1,)

    @property
    def words_per_user(self):
        return self.width

    @property
    def statistic_shape(self):
        return (self.domain_size,)

    @cached_property
    def table(self):
        return np.arange(100_000)

    def log_ratio_max(self):
        return self.local_epsilon

    def accumulate(self, reports):
        return np.zeros(self.statistic_shape, dtype=np.int64)

    def _randomize_block(self, values, words, extra, reports):
        assert words.shape == (len(values), self.width)
        reports[:, :-1] = words
        rows = np.arange(len(values))
        reports[:, -1] = extra(rows, np.full(len(values), self.width))


@pytest.mark.parametrize("width", [1, 3, 1000, 100_000])
def test_blocks_of_words_cover_every_user_once(width, monkeypatch):
    """However wide a user's share and however small the blocks, the words are the same."""
    users = max(3, 3000 // width)
    oracle = EchoWords(5, 1.0, width)
    values = np.arange(users) % 5
    rng = UserRandomness(b"k" * 32, np.arange(users), identity("r"))
    reports = oracle.randomize(values, rng)
    assert len(np.unique(reports)) == users * (width + 1)
    monkeypatch.setattr(local_randomizer, "_CHUNK_WORDS", 7)
    np.testing.assert_array_equal(oracle.randomize(values, rng), reports)


def test_fresh_words_differ_and_seeds_repeat():
    oracle = EchoWords(5, 1.0)
    values = np.zeros(50, dtype=int)
    fresh = [oracle.randomize(values), oracle.randomize(values)]
    assert len(np.unique(fresh)) == 200
    seeded = [oracle.randomize(values, np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_memoized_words_depend_on_the_mechanism():
    values = np.zeros(50, dtype=int)
    rng = UserRandomness(b"k" * 32, np.arange(50), identity("r"))
    oracles = (EchoWords(5, 1.0), EchoWords(5, 1.5), EchoWords(6, 1.0))
    assert len(np.unique([o.randomize(values, rng) for o in oracles])) == 300


def test_config_names_mechanism_version_and_parameters():
    oracle = KRandomizedResponse(np.int32(7), np.float32(1.5))
    config = oracle.to_config()
    assert config == {
        "mechanism": "KRandomizedResponse",
        "version": 1,
        "domain_size": 7,
        "local_epsilon": 1.5,
    }
    assert json.loads(json.dumps(config)) == config
    assert LocalRandomizer.from_config(config) == oracle == KRandomizedResponse(7, 1.5)
    assert KRandomizedResponse(7.0, 1.5) == oracle
    assert hash(oracle) == hash(KRandomizedResponse(7, 1.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "Nothing"}, "mechanism must be the name"),
        ({"mechanism": None}, "mechanism must be the name"),
        ({"mechanism": ["KRandomizedResponse"]}, "mechanism must be the name"),
        ({"mechanism": "FrequencyOracle"}, "does not fit"),
        ({"version": 2}, "version must be 1"),
        ({"version": None}, "version must be 1"),
        ({"colour": "red"}, "does not fit"),
        ({"domain_size": 1}, "domain_size must"),
        ({"local_epsilon": "much"}, "local_epsilon must"),
    ],
)
def test_configs_that_fit_nothing(change, message):
    config = KRandomizedResponse(7, 1.5).to_config() | change
    with pytest.raises(ValueError, match=message):
        LocalRandomizer.from_config(config)
    missing = KRandomizedResponse(7, 1.5).to_config()
    del missing["domain_size"]
    with pytest.raises(ValueError, match="does not fit"):
        LocalRandomizer.from_config(missing)


def test_digest_is_stable_and_tells_parameters_apart():
    """Ledgers and wires keep digests: they must not depend on version or process."""
    digests = {
        KRandomizedResponse(k, e).config_digest()
        for k in (2, 3, 4)
        for e in (1.0, 1.0000000000000002)
    }
    assert len(digests) == 6 and {len(d) for d in digests} == {16}
    golden = "9a61915e1042eefe0af33c4d4b37bd73"
    assert KRandomizedResponse(7, 1.5).config_digest().hex() == golden


def test_pickles_hold_fields_alone():
    oracle = EchoWords(5, 1.0)
    assert len(oracle.table) == 100_000
    data = pickle.dumps(oracle)
    assert len(data) < 500
    again = pickle.loads(data)
    assert again == oracle and "table" not in vars(again) and len(again.table) == 100_000


def test_defaults_promise_nothing_special():
    oracle = EchoWords(5, 1.0)
    assert oracle.dominating_pair() == ShufflePair.clones(1.0)
    assert oracle.witness_pairs() == () and oracle.crowd_size(17) == 17
    assert oracle.exactness == "exact" and oracle.messages_per_user == 1
    for call in (oracle.channel, lambda: oracle.support_probabilities):
        with pytest.raises(NotImplementedError, match="EchoWords"):
            call()


def test_estimates_of_nobody_and_of_everybody():
    oracle = KRandomizedResponse(3, 2.0)
    empty = oracle.estimate(np.zeros(3, dtype=int), 0)
    assert np.isnan(empty.value).all() and np.isinf(empty.standard_error).all()
    assert empty.num_users == 0
    p, q = oracle.support_probabilities
    expected = 10_000 * np.array([p, q, q])
    estimate = oracle.estimate(expected, 10_000)
    np.testing.assert_allclose(estimate.value, [1, 0, 0], atol=1e-12)
    fixed = np.sqrt(oracle.variance(10_000, np.array([1.0, 0, 0])))
    np.testing.assert_allclose(estimate.standard_error, fixed, rtol=1e-9)
    iid = oracle.estimate(np.array([5000, 2500, 2500]), 10_000, sampling="iid")
    fixed_error = oracle.estimate(np.array([5000, 2500, 2500]), 10_000).standard_error
    assert (iid.standard_error > fixed_error).all()


def test_iid_error_is_fixed_error_plus_the_draw():
    """Law of total variance: sampling people adds p (1 - p) / n, for pure oracles exactly."""
    oracle = KRandomizedResponse(4, 1.0)
    truth = np.array([0.4, 0.3, 0.2, 0.1])
    added = oracle.variance(50, truth, "iid") - oracle.variance(50, truth, "fixed")
    np.testing.assert_allclose(added, truth * (1 - truth) / 50, rtol=1e-9)


def test_integers_are_checked_by_name():
    assert check_integer("n", 5.0, 0, 9) == 5 and type(check_integer("n", np.int8(5), 0, 9)) is int
    for wrong in (10, -1, 2.5, math.nan, math.inf, None, "5", True, 1j):
        with pytest.raises(ValueError, match="n must be an integer from 0 to 9"):
            check_integer("n", wrong, 0, 9)


def test_importing_randomizers_leaves_the_compiler_alone():
    """Programs that only plan or price do not wait for numba."""
    code = (
        "import sys, beam_ldp.randomizers.frequency as f; "
        "f.HadamardResponse(1000, 1.0).variance(10); "
        "sys.exit('numba' in sys.modules or 'apache_beam' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
