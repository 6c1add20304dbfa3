"""Pairs of means in shares: noise is fresh, so a second release is refused or charged anew."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.auditing import audit
from beam_ldp.ledger.rows import Anchor
from beam_ldp.pipelines import programs, run
from beam_ldp.pipelines.mean import Mean
from beam_ldp.randomizers.base import LocalRandomizer
from tests.pairs.world import Program, World, instead

pytestmark = pytest.mark.e2e

SHARES = Program(
    "mean in shares",
    Mean,
    ("--column=age,person", "--norm=l2", "--radius=500", "--epsilon=1", "--trust-shuffler",
     "--expected-users=400"),
    ("age", "person"),
)  # fmt: skip
Flags = list[str]


def flags_in(world: World) -> Flags:
    flags = instead(world.flags(SHARES, memoized=False, tags=False), dataset="trusting")
    return instead(flags, min_reports="350")


def allow(world: World, epsilon: float) -> None:
    """People without a limit on local epsilons, who trust the shuffler."""
    world.ledger.set_budget("trusting", epsilon=epsilon, delta=1e-5)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World.make(tmp_path_factory.mktemp("first") / "world")
    allow(world, 4.0)
    assert world.publish(SHARES, "first", flags_in(world)) == programs.DONE
    world.check(SHARES)
    assert world.record("first")["mechanism"]["mechanism"] == "SplitAndMixMean"
    return world


def one_person(world: World, flags: Flags) -> Flags:
    world.people[10_000] = {"hair": "red", "eyes": "a", "age": "50", "town": "north"}
    return flags


REFUSED = [
    ("a retry under its name", lambda w, f: f),
    ("other people under its name", one_person),
    ("another question under its release id",
     lambda w, f: instead(instead(f, column="age,age2"), run_id="b")),
    ("another order of columns", lambda w, f: instead(f, column="person,age", run_id="b")),
    ("another ball", lambda w, f: instead(f, radius="600", run_id="b")),
    ("another target", lambda w, f: instead(f, epsilon="0.5", run_id="b")),
    ("no trust", lambda w, f: [x for x in f if x != "--trust-shuffler"] + ["--run-id=b"]),
    ("memoized noise", lambda w, f: instead(
        f, memoize_key_file=f"{w.folder}/key", mechanism="SplitAndMixMean", run_id="b")),
    ("people with a limit on local epsilons",
     lambda w, f: instead(f, dataset="them", release_id="other", run_id="b")),
]  # fmt: skip


@pytest.mark.parametrize("make", [make for _, make in REFUSED], ids=[what for what, _ in REFUSED])
def test_one_thing_changes_and_it_is_refused(
    make: Callable[[World, Flags], Flags], first: World, tmp_path: Path
) -> None:
    world = first.copy(tmp_path / "world")
    before, spent = world.ledger.charge("nightly"), world.ledger.status("trusting").spent
    flags = make(world, flags_in(world))
    code = world.publish(SHARES, "second", flags)
    assert code in (programs.MISUSED, programs.NOTHING_RELEASED)
    assert "second" not in world.published
    assert world.ledger.charge("nightly") == before
    assert world.ledger.status("trusting").spent == spent
    world.check(SHARES)


CHARGED = [
    ("the same again", lambda w, f: instead(f, run_id="b")),
    ("one person more", lambda w, f: instead(one_person(w, f), run_id="b")),
    ("another release", lambda w, f: instead(f, release_id="other", run_id="b")),
    ("another mechanism of no trust", lambda w, f: instead(
        f, release_id="other", run_id="b", mechanism="L2Mean")),
]  # fmt: skip


@pytest.mark.parametrize("make", [make for _, make in CHARGED], ids=[what for what, _ in CHARGED])
def test_fresh_noise_is_charged_anew(
    make: Callable[[World, Flags], Flags], first: World, tmp_path: Path
) -> None:
    """Even of the same people and values: the sums have noise of their own."""
    world = first.copy(tmp_path / "world")
    spent = world.ledger.status("trusting").spent
    assert world.publish(SHARES, "second", make(world, flags_in(world))) == programs.DONE
    assert world.estimates("first") != world.estimates("second")
    charges = world.ledger.state.population_of("trusting").charges_of(0)
    assert len(charges) == 2 and world.ledger.status("trusting").spent > 1.2 * spent
    assert {c.status for c in charges} == {"settled"}
    assert audit(world.ledger.rows()).clean


def test_a_killed_run_stays_charged_at_its_worst(first: World, tmp_path: Path) -> None:
    """Its noise is lost with it: nothing can be released under its name again."""
    world = first.copy(tmp_path / "world")
    flags = instead(flags_in(world), run_id="killed", release_id="other")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "finish", killed)
        assert world.publish(SHARES, "second", flags) != programs.DONE
    charge = world.ledger.charge("killed")
    assert charge.event is not None and charge.status in ("reserved", "settled")
    assert world.publish(SHARES, "third", flags) == programs.MISUSED
    assert world.publish(SHARES, "fourth", instead(flags, run_id="anew")) == programs.DONE
    charges = world.ledger.state.population_of("trusting").charges_of(0)
    assert len(charges) == 3 and all(c.event is not None for c in charges)


def test_a_restored_ledger_is_found_out_by_its_anchor(first: World, tmp_path: Path) -> None:
    """The ledger's file as it was before a release, of which an anchor knows."""
    world, restored = first.copy(tmp_path / "world"), first.copy(tmp_path / "restored")
    flags = instead(flags_in(world), run_id="b", release_id="other")
    assert world.publish(SHARES, "second", flags) == programs.DONE
    state = world.ledger.state
    anchor = Anchor(state.ledger_id, state.head.count, state.head.hash, state.time)
    assert audit(world.ledger.rows(), [anchor]).clean
    assert audit(restored.ledger.rows()).clean
    assert not audit(restored.ledger.rows(), [anchor]).clean


def test_of_two_at_once_the_budget_pays_for_one(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    allow(world, 1.4)
    world.write_people(SHARES)
    codes: dict[str, int] = {}

    def publish(name: str) -> None:
        flags = instead(flags_in(world), run_id=name, release_id=name)
        out = f"--output={world.folder}/{name}"
        codes[name], _ = run.run_flags(Mean, [*flags, out], Console(quiet=True), shown=False)

    both = [threading.Thread(target=publish, args=(name,)) for name in ("one", "two")]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(codes.values()) == sorted([programs.DONE, programs.NOTHING_RELEASED])
    outputs = [name for name in codes if (world.folder / name / "privacy.json").exists()]
    assert [codes[name] for name in outputs] == [programs.DONE]
    told = json.loads((world.folder / outputs[0] / "privacy.json").read_text())
    mechanism = LocalRandomizer.from_config(told["mechanism"])
    assert mechanism.local_epsilon == float("inf")
    status = BudgetLedger(f"sqlite:///{world.folder}/privacy.db").status("trusting")
    assert status.committed <= 1.4 and status.num_open == 0
