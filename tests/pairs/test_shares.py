"""Pairs of means in shares: noise is fresh, so a second release is refused or charged anew.

Shares that devices sent stay what they are: a second collection is refused, or the same.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.auditing import audit
from beam_ldp.ledger.rows import Anchor
from beam_ldp.pipelines import collect, mean, programs, randomize
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.release import runner
from tests.pairs import envelopes
from tests.pairs.world import Program, World, instead

pytestmark = pytest.mark.e2e

SHARES = Program(
    "mean in shares",
    mean.PROGRAM,
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
        patch.setattr(runner, "finish", killed)
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
        codes[name], _ = programs.run_flags(
            mean.PROGRAM, [*flags, out], Console(quiet=True), shown=False
        )

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


# From devices -----------------------------------------------------------------------------------

DEVICES = Program("shares from devices", collect.PROGRAM, (), ("age", "person"))


def ask(world: World, name: str, *more: str) -> Path:
    """A question that is published for devices."""
    asked = [flag for flag in SHARES.asks if not flag.startswith("--expected")]
    folder = world.folder / f"question {name}"
    given = [*asked, "--delta=1e-06", "--expected-users=400", "--min-reports=350", "--user-id=uid",
             "--dataset=trusting", "--release-id=week", f"--output={folder}", *more]  # fmt: skip
    assert mean.main(given) == programs.DONE
    return folder / "release.json"


def answer(world: World, name: str, question: Path) -> Path:
    """What devices send of people as they are now, in a folder of its own."""
    world.write_people(DEVICES)
    folder = world.folder / f"envelopes {name}"
    given = [f"--release={question}", f"--input={world.folder}/people.csv", "--user-id=uid",
             "--trust-shuffler", f"--output={folder}"]  # fmt: skip
    assert randomize.main(given) == programs.DONE
    return folder


def collect(world: World, output: str, question: Path, envelopes: Path, *more: str) -> int:
    flags = [f"--reports={envelopes}/*", f"--release={question}", "--no-mlflow",
             f"--ledger=sqlite:///{world.folder}/privacy.db", "--run-id=nightly"]  # fmt: skip
    named = {flag.split("=")[0] for flag in more}
    kept = [flag for flag in flags if flag.split("=")[0] not in named]
    return world.publish(DEVICES, output, [*kept, *more])


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Envelopes of everybody were added up and published."""
    world = World.make(tmp_path_factory.mktemp("collected") / "world")
    allow(world, 4.0)
    question = ask(world, "first", "--publish")
    assert collect(world, "first", question, answer(world, "first", question)) == programs.DONE
    world.check(DEVICES)
    assert world.record("first")["mechanism"]["mechanism"] == "SplitAndMixMean"
    assert audit(world.ledger.rows()).clean
    return world


def later(world: World) -> None:
    """One who comes late, in the folder of the others."""
    others, world.people = world.people, {10_000: dict(world.people[0])}
    late = answer(world, "late", world.folder / "question first" / "release.json")
    world.people = {**others, **world.people}
    for path in late.glob("*.ldp"):
        shutil.copy(path, world.folder / "envelopes first" / f"late {path.name}")


def changed(change: envelopes.Change) -> Callable[[World], None]:
    """What becomes of the envelopes, in their place."""

    def make(world: World) -> None:
        first = world.folder / "envelopes first"
        release = world.folder / "question first" / "release.json"
        others = envelopes.write_changed(change, release, first, world.folder / "others")
        shutil.rmtree(first)
        others.rename(first)

    return make


def other_ball(world: World) -> None:
    ask(world, "first again", "--publish", "--radius=600")
    shutil.rmtree(world.folder / "question first")
    (world.folder / "question first again").rename(world.folder / "question first")


COLLECTED = [
    ("one who came late", later, ("--run-id=b",), None),
    ("one who came late, under its name", later, (), None),
    ("another ball under its name", other_ball, (), None),
    ("another ball", other_ball, ("--run-id=b",), None),
    ("declared to be frozen", later, ("--frozen-values",), None),
    ("one is forged", changed(envelopes.forged), ("--run-id=b",), None),
    ("the same again", lambda w: None, ("--run-id=b",), 400),
    ("the same, under its name, in other files", changed(envelopes.rearranged), (), 400),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "more", "people"), [case[1:] for case in COLLECTED],
    ids=[case[0] for case in COLLECTED],
)  # fmt: skip
def test_a_second_collection_is_refused_or_the_same(
    change: Callable[[World], None], more: tuple[str, ...], people: int | None, collected: World,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Two sums of the same shares, but for those of one person, differ by that person's vector."""
    world = collected.copy(tmp_path / "world")
    spent = world.ledger.status("trusting").spent
    change(world)
    question, envelopes = world.folder / "question first", world.folder / "envelopes first"
    code = collect(world, "second", question / "release.json", envelopes, *more)
    world.check(DEVICES)
    assert world.ledger.status("trusting").spent == spent
    assert len(world.ledger.state.population_of("trusting").charges_of(0)) == 1
    assert audit(world.ledger.rows()).clean
    if people is None:
        assert code in (programs.MISUSED, programs.NOTHING_RELEASED)
        assert "second" not in world.published
        return
    assert code == programs.DONE and world.record("second")["num_reports"] == people
    assert world.estimates("second") == world.estimates("first")
    assert "the same envelopes, as a digest" in (world.folder / "second/privacy.md").read_text()


def test_replayed_envelopes_count_in_no_other_collection(collected: World, tmp_path: Path) -> None:
    """Those of last week beside those of this one, which are a charge of their own."""
    world = collected.copy(tmp_path / "world")
    question = ask(world, "next", "--publish", "--release-id=next")
    old, fresh = world.folder / "envelopes first", answer(world, "next", question)
    assert collect(world, "second", question, old, "--run-id=b") == programs.NOTHING_RELEASED
    for path in old.glob("*.ldp"):
        shutil.copy(path, fresh / f"replayed {path.name}")
    assert collect(world, "second", question, fresh, "--run-id=c") == programs.DONE
    world.check(DEVICES)
    record = world.record("second")
    assert record["num_reports"] == 400 and record["num_bad_rows"] >= 4
    assert world.estimates("second") != world.estimates("first")
    settled = world.ledger.state.population_of("trusting").charges_of(0)
    assert [one.status for one in settled] == ["settled", "abandoned", "settled"]


def test_a_killed_collection_goes_on_under_its_name_alone(tmp_path: Path) -> None:
    """Nobody saw its sum: another one, of one person more, may be the first that is published."""
    world = World.make(tmp_path / "world")
    allow(world, 4.0)
    question = ask(world, "first", "--publish")
    envelopes = answer(world, "first", question)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "finish", killed)
        assert collect(world, "first", question, envelopes) != programs.DONE
    assert world.ledger.charge("nightly").status == "reserved"
    later(world)
    assert collect(world, "other", question, envelopes, "--run-id=b") == programs.MISUSED
    assert collect(world, "first", question, envelopes) == programs.DONE
    world.check(DEVICES)
    (charge,) = world.ledger.state.population_of("trusting").charges_of(0)
    assert charge.status == "settled" and charge.attempts == 2
    assert world.record("first")["num_reports"] == 401 and audit(world.ledger.rows()).clean


def test_fewer_than_were_promised_are_withheld_and_said(
    collected: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """349 envelopes arrive where 350 were promised; what would promise less is refused."""
    world = collected.copy(tmp_path / "world")
    question = ask(world, "next", "--publish", "--release-id=next")
    world.people = {i: world.people[i] for i in range(349)}
    few = answer(world, "few", question)
    for more in ("--min-reports=349", "--epsilon=2", "--delta=2e-6", "--allow-over-target",
                 "--shuffle-output=reports"):  # fmt: skip
        assert collect(world, "few", question, few, "--run-id=b", more) == programs.MISUSED
    capsys.readouterr()
    assert collect(world, "few", question, few, "--run-id=b") == programs.NOTHING_RELEASED
    assert world.ledger.charge("b").status == "abandoned"
    assert world.ledger.charge("b").local_epsilon == float("inf"), "people have sent their shares"
    world.check(DEVICES)


def test_of_two_collections_at_once_one_is_published(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    allow(world, 4.0)
    question = ask(world, "first", "--publish")
    envelopes = answer(world, "first", question)
    codes: dict[str, int] = {}

    def publish(name: str) -> None:
        flags = [f"--reports={envelopes}/*", f"--release={question}", "--no-mlflow",
                 f"--ledger=sqlite:///{world.folder}/privacy.db", f"--run-id={name}",
                 f"--output={world.folder}/{name}"]  # fmt: skip
        codes[name], _ = programs.run_flags(
            DEVICES.program, flags, Console(quiet=True), shown=False
        )

    both = [threading.Thread(target=publish, args=(name,)) for name in ("one", "two")]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    done = [name for name in codes if codes[name] == programs.DONE]
    charges = world.ledger.state.population_of("trusting").charges_of(0)
    assert len(done) >= 1 and len(charges) == 1, codes
    assert len({(world.folder / name / "estimates.csv").read_bytes() for name in done}) == 1
