"""A bandit between two batches, and what tells one batch from another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.progress import BanditProgress, Heard, ServiceTerms
from beam_ldp.decisions.bandits.simulating import run_in_law

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.6]])
NAMES = ("blue", "red", "green")
THETA = np.array([0.2, 0.7])


def bandit(**more: Any) -> LinearBandit:
    return LinearBandit(**{"actions": ACTIONS, "horizon": 30_000, "epsilon": 2.0, **more})


def terms(**more: Any) -> ServiceTerms:
    return ServiceTerms("visitors", "banner", NAMES, bandit(**more))


def served(progress: BanditProgress, seed: int = 0) -> BanditProgress:
    """All batches, with rewards of THETA."""
    rng = np.random.default_rng(seed)
    while (batch := progress.open) is not None:
        sums = batch.noise.sums_in_law(batch.counts, (ACTIONS @ THETA)[batch.played], rng)
        progress = progress.after(Heard(tuple(map(int, batch.counts)), tuple(map(float, sums))))
    return progress


def test_batch_by_batch_is_a_run() -> None:
    """The same sums give the same batches, whether one loop asks for them or a service does."""
    progress = served(BanditProgress(bandit()))
    heard = iter(progress.heard)
    run = bandit().run(lambda batch: np.array(next(heard).sums))
    assert [one.batch.counts.tolist() for one in progress.decided] == [
        batch.counts.tolist() for batch in run.batches
    ]
    assert all(
        np.array_equal(one.estimates, estimates)
        for one, estimates in zip(progress.decided, run.estimates)
    )
    assert progress.best == run.winner == 1
    assert progress.asked == sum(batch.people for batch in run.batches)
    assert run_in_law(bandit(), THETA, np.random.default_rng(0)).winner == run.winner


def test_more_people_than_were_asked_narrow_the_width() -> None:
    batch = BanditProgress(bandit()).open
    assert batch is not None
    more = bandit().counted(batch, 3 * batch.counts)
    assert more.width < batch.width and more.people == 3 * batch.people
    assert more.noise == batch.noise  # which is what people were told
    with pytest.raises(ValueError, match="at least those that the batch asks for"):
        bandit().counted(batch, batch.counts - 1)


def test_batches_are_left_out_at_the_beginning() -> None:
    """The others keep the sizes of their places in the schedule."""
    first = bandit(skipped=4).batch(1, np.arange(3))
    fifth = bandit().batch(5, np.arange(3))
    assert first is not None and fifth is not None
    assert first.counts.tolist() == fifth.counts.tolist()
    assert len(served(BanditProgress(bandit(skipped=4))).heard) <= bandit().schedule.batches - 4
    with pytest.raises(ValueError, match="skipped"):
        bandit(skipped=-1)


@pytest.mark.parametrize(
    "heard",
    [Heard((1,), (0.0,)), Heard((2, 2), (0.0, float("nan"))), Heard((2, 2, 2), (0.0,) * 3)],
    ids=["too few", "no number", "another batch"],
)
def test_what_no_batch_asked_is_refused(heard: Heard) -> None:
    with pytest.raises(ValueError):
        BanditProgress(bandit(), (heard,))


def test_terms_survive_their_file() -> None:
    told = terms(amplify_over="batch", skipped=3)
    again = ServiceTerms.from_json(json.loads(json.dumps(told.to_json())))
    assert again.digest == told.digest
    assert again.bandit.amplify_over == "batch" and again.bandit.skipped == 3
    with pytest.raises(ValueError, match="lack something"):
        ServiceTerms.from_json({"dataset": "visitors"})


def test_every_batch_of_every_service_is_a_release_of_its_own() -> None:
    """Other terms, another place in the history, other sums before: other digests."""
    told = terms()
    progress = BanditProgress(told.bandit)
    first = told.asks(progress)
    assert first is not None
    second = told.asks(progress.after(Heard(first.counts, (1.0, 0.0))))
    other = told.asks(progress.after(Heard(first.counts, (0.0, 1.0))))
    renamed = replace(told, name="footer").asks(progress)
    dearer = terms(epsilon=2.5).asks(progress)
    assert second and other and renamed and dearer
    digests = [one.digest for one in (first, second, other, renamed, dearer)]
    assert len(set(digests)) == 5
    assert second.release_id == other.release_id  # one decision for the batch of one service
    assert len({one.release_id for one in (first, second, renamed, dearer)}) == 4


def test_devices_are_told_what_they_choose_by() -> None:
    """Of policies over contexts, in the terms and with every play."""
    thetas = tuple({"age": float(i), "hour": -0.5} for i in range(3))
    told = replace(terms(), thetas=thetas)
    again = ServiceTerms.from_json(json.loads(json.dumps(told.to_json())))
    assert again.thetas == thetas and again.digest == told.digest != terms().digest
    asked = told.asks(BanditProgress(told.bandit))
    assert asked is not None
    for play in asked.to_json()["plays"]:
        assert play["theta"] == thetas[NAMES.index(play["action"])]
    with pytest.raises(ValueError, match="thetas must be given for all"):
        replace(told, thetas=thetas[:2])


def test_rewards_name_their_batch() -> None:
    told = terms()
    asked = told.asks(BanditProgress(told.bandit))
    assert asked is not None
    assert asked.plays == tuple(f"1:{name}" for name in asked.actions)
    heard = asked.heard({play: (9, float(i)) for i, play in enumerate(asked.plays)})
    assert heard == Heard((9,) * len(asked.plays), tuple(map(float, range(len(asked.plays)))))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(names=("blue", "blue", "red")), "distinct"),
        (dict(names=("blue",)), "one for each"),
        (dict(name=""), "name must be given"),
        (dict(bandit=bandit(model="none")), "shuffled, local or central"),
        (dict(bandit=bandit(model="central", epsilon=8.5)), "at most 8"),
        (dict(bandit=bandit(report="laplace")), "report must be bit"),
        (dict(bandit=bandit(width="printed")), "proven"),
    ],
)
def test_terms_that_serve_nobody_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(terms(), **change)
