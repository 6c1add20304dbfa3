"""What a person's device does: the choice that rows count, and messages without her context."""

import ast
import inspect
import itertools
import math

import numpy as np
import pytest

from beam_ldp.decisions.bandits import client
from beam_ldp.decisions.bandits.client import answer, choose
from beam_ldp.decisions.bandits.contexts import choices
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.randomizers.wire import decode_envelope, encode_envelope
from tests.randomizers.wire_terms import terms_of

FEATURES = np.random.default_rng(1).uniform(-0.5, 0.5, (60, 4, 3))
THETAS = np.random.default_rng(2).normal(size=(20, 3))


def test_a_device_chooses_what_rows_count():
    tied = FEATURES.copy()
    tied[::3, 2] = tied[::3, 0]  # equal scores for all thetas
    rows = choices(tied, THETAS)
    for theta, picked in zip(THETAS.tolist(), rows.tolist(), strict=True):
        assert [choose(theta, features) for features in tied.tolist()] == picked
    assert not (rows[:, ::3] == 2).any()


def test_nothing_but_the_standard_library_runs_there():
    tree = ast.parse(inspect.getsource(client))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert imported == {"__future__", "math", "collections.abc"}


def test_messages_carry_neither_context_nor_choice():
    # Every theta, context, and choice that comes of them: with one reward, one stream of random
    # words and one envelope id, all messages are the same bytes. Another reward's differ.
    bit = bit_randomizer(2.0)
    terms, told = terms_of(bit, reports_per_envelope=1), {}
    for reward, draw in itertools.product((-1.0, 0.3, 1.0), range(8)):
        played, messages = set(), set()
        for theta, features in itertools.product(THETAS[:5].tolist(), FEATURES[:12].tolist()):
            sent = answer(theta, features, lambda c, r=reward, seen=played: seen.add(c) or r)
            report = bit.randomize(np.array([[sent]]), rng=np.random.default_rng(draw))
            messages.add(encode_envelope(terms, report, b"the id is random"))
        assert played == set(range(4))
        assert len(messages) == 1
        told[reward, draw] = messages.pop()
    assert len(set(told.values())) == 2  # a bit
    for message in told.values():
        envelope = decode_envelope(terms, message)
        assert envelope.reports.shape == (1,)
        assert terms.report_bytes == 1
        assert len(message) == terms.envelope_bytes(1)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_a_report_tells_epsilon_of_context_and_outcomes_together(epsilon):
    # Joint privacy: a person's context and all her outcomes are replaced by any others. Rewards are
    # rounded without bias to the ends of the channel.
    low, high = bit_randomizer(epsilon).channel()[:, 1]
    ones = []
    for features, outcomes in itertools.product(
        FEATURES[:6].tolist(), itertools.product((-1.0, 0.4, 1.0), repeat=4)
    ):
        reward = answer(THETAS[0].tolist(), features, lambda c, r=outcomes: r[c])
        ones.append(low + (high - low) * (1 + reward) / 2)
    ratios = [max(ones) / min(ones), (1 - min(ones)) / (1 - max(ones))]
    assert math.log(max(ratios)) == pytest.approx(epsilon, rel=1e-8)
    assert math.log(max(ratios)) <= epsilon


def test_rewards_are_clipped_on_the_device():
    for reward, sent in ((-7.0, -1.0), (0.25, 0.25), (3.0, 1.0)):
        assert answer([1.0], [[0.5]], lambda _, r=reward: r) == sent


def test_refusals():
    with pytest.raises(ValueError, match="rewards must be finite numbers"):
        answer([1.0], [[0.5]], lambda _: math.nan)
    for theta, features in (([math.inf], [[1.0]]), ([1.0], [])):
        with pytest.raises(ValueError, match="theta and features must be finite numbers"):
            choose(theta, features)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        choose([1.0, 2.0], [[1.0]])
