"""Pairs of releases in which one thing changes: refused, byte for byte the same, or charged for.

One release of each program is published once; every pair begins with a copy of that world. What
must hold afterwards is `World.check`; what is expected of each change stands beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.pipelines import frequency, programs
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.wording import number
from tests.pairs import envelopes
from tests.pairs.world import (
    DELTA,
    EVERY_QUESTION,
    FREQUENCY,
    GROUPED_QUESTIONS,
    GROUPS,
    PROGRAMS,
    QUESTIONS,
    USER_MEAN,
    WORDS,
    Program,
    World,
    instead,
)

pytestmark = pytest.mark.e2e

REFUSED, SAME, PRICED, CHARGED = "refused", "the same", "priced together", "charged anew"
Flags = list[str]


@dataclass(frozen=True)
class Change:
    """One thing that is another one the second time.

    Attributes:
        what: for people.
        make: changes the world, and gives the flags of the second release.
        expected: what becomes of it.
        of: programs it is tried with in the fast suite; the others are slow.
    """

    what: str
    make: Callable[[World, Program, Flags], Flags]
    expected: str
    of: tuple[Program, ...] = (FREQUENCY,)

    def expected_of(self, program: Program) -> str:
        """Rounds follow from the least number of reports, and each from those before."""
        if program in (USER_MEAN, WORDS) and (
            self.what == "least reports" or self.expected == PRICED
        ):
            return REFUSED
        return self.expected


def _column(world: World, program: Program, flags: Flags) -> Flags:
    found = []
    for flag in flags:
        name, _, value = flag.partition("=")
        other = {"hair": "eyes", "eyes": "hair", "age": "person"}.get(value)
        found.append(f"{name}={other}" if name in ("--column", "--column") and other else flag)
    return found


def _list(world: World, program: Program, flags: Flags) -> Flags:
    (world.folder / "hair.txt").write_text("red\ndark\n")
    flags = [flag.replace("--max-bytes=4", "--max-bytes=3") for flag in flags]
    return (
        [*flags[: flags.index("0")], "1", *flags[flags.index("0") + 1 :]] if "0" in flags else flags
    )


def _one_value(world: World, program: Program, flags: Flags) -> Flags:
    """Of several people, so that the reports of one at least are others."""
    for i in range(0, 60, 3):
        world.people[i] |= {"hair": "dark", "eyes": "b" if i % 2 == 0 else "a", "age": "99"}
    return flags


def _one_person(world: World, program: Program, flags: Flags) -> Flags:
    world.people[10_000] = {"hair": "red", "eyes": "a", "age": "50", "town": "north"}
    return flags


def _exchanged(world: World, program: Program, flags: Flags) -> Flags:
    for i in range(40):
        world.people[10_000 + i] = world.people.pop(i)
    return flags


def _spelling(world: World, program: Program, flags: Flags) -> Flags:
    moved = world.folder / "elsewhere"
    moved.mkdir()
    for name in ("people.csv", "hair.txt", "eyes.txt", "key"):
        shutil.copy(world.folder / name, moved / f"of {name}")
        flags = [flag.replace(f"{world.folder}/{name}", f"{moved}/../elsewhere/of {name}")
                 for flag in flags]  # fmt: skip
    return flags


def _key(world: World, program: Program, flags: Flags) -> Flags:
    (world.folder / "key").write_bytes(bytes(range(100, 132)))
    return flags


CHANGES = [
    Change("nothing", lambda w, p, f: f, SAME, (FREQUENCY,)),
    Change("run id", lambda w, p, f: instead(f, run_id="again"), SAME),
    Change("spelling", _spelling, SAME),
    Change("format", lambda w, p, f: [*f, "--format=json"], SAME, ()),
    Change("least reports", lambda w, p, f: instead(f, min_reports="200"), SAME, ()),
    Change("column", _column, REFUSED, PROGRAMS),
    Change("column, run id", lambda w, p, f: instead(_column(w, p, f), run_id="b"), REFUSED),
    Change("list or range", _list, REFUSED, PROGRAMS),
    Change("mechanism", lambda w, p, f: instead(f, local_epsilon="1"), REFUSED, PROGRAMS),
    Change("key", _key, REFUSED),
    Change("key, run id", lambda w, p, f: instead(_key(w, p, f), run_id="b"), REFUSED),
    Change("fresh noise", lambda w, p, f: instead(f, memoize_key_file=None), REFUSED),
    Change("fresh noise, run id",
           lambda w, p, f: instead(f, memoize_key_file=None, run_id="b"), REFUSED),
    Change("rule", lambda w, p, f: instead(f, user_id="person"), REFUSED, PROGRAMS),
    Change("unit", lambda w, p, f: [*f, "--privacy-unit=household"], REFUSED),
    Change("dataset", lambda w, p, f: instead(f, dataset="copy of them"), REFUSED),
    Change("dataset, run id",
           lambda w, p, f: instead(f, dataset="copy of them", run_id="b"), CHARGED),
    Change("release id", lambda w, p, f: instead(f, release_id="other", run_id="b"), CHARGED),
    Change("one value", _one_value, REFUSED, PROGRAMS),
    Change("one value, frozen",
           lambda w, p, f: [*_one_value(w, p, f), "--frozen-values"], REFUSED,
           (FREQUENCY, QUESTIONS)),
    Change("one person", _one_person, PRICED),
    Change("people exchanged", _exchanged, PRICED, (FREQUENCY,)),
    Change("people exchanged, no tags",
           lambda w, p, f: instead(_exchanged(w, p, f), people_store=None, people_key_file=None),
           REFUSED),
    Change("people exchanged, frozen",
           lambda w, p, f: [*instead(_exchanged(w, p, f), people_store=None,
                                     people_key_file=None), "--frozen-values"],
           PRICED),
]  # fmt: skip
PAIRS = [
    pytest.param(change, program, id=f"{program.name}: {change.what}",
                 marks=[] if program in change.of else [pytest.mark.slow])
    for change in CHANGES
    for program in PROGRAMS
]  # fmt: skip


@pytest.mark.parametrize(("change", "program"), PAIRS)
def test_one_thing_changes(
    change: Change, program: Program, first: Callable[[Program], World], tmp_path: Path
) -> None:
    world = first(program).copy(tmp_path / "world")
    before = world.ledger.charge("nightly")
    spent = world.ledger.status("them").spent
    flags = change.make(world, program, world.flags(program))
    code = world.publish(program, "second", flags)
    world.check(program)
    charges = world.ledger.state.population_of("them").charges_of(0)
    after = world.ledger.charge("nightly")
    expected = change.expected_of(program)
    if expected == REFUSED:
        assert (
            code in (programs.MISUSED, programs.NOTHING_RELEASED)
            and "second" not in world.published
        )
        assert after == before and world.ledger.status("them").spent == spent
        return
    assert code == programs.DONE
    if expected == SAME:
        assert world.estimates("first") == world.estimates("second")
        assert len(charges) == 1 and after == before
    elif expected == PRICED:
        assert world.estimates("first") != world.estimates("second")
        assert len(charges) == 1 and world.ledger.status("them").spent > spent
        assert after.local_epsilon == before.local_epsilon, "everybody sends the report they sent"
        assert world.record("second")["publication"] == 2
    else:
        assert world.estimates("first") != world.estimates("second")
        twice = 2 * world.record("first")["local_epsilon"]
        assert len(charges) == 2 and world.ledger.status("them").local_committed == twice


# Cells, counted and priced ------------------------------------------------------------------------


def _half_exchanged(world: World) -> None:
    """Of each town a quarter goes and as many come: cells of many."""
    for i in range(100):
        world.people[10_000 + i] = world.people.pop(i)


@pytest.mark.parametrize(
    "program", [QUESTIONS, EVERY_QUESTION, GROUPS, GROUPED_QUESTIONS], ids=lambda p: p.name
)
def test_cells_price_several_questions_and_groups(
    program: Program, first: Callable[[Program], World], tmp_path: Path
) -> None:
    """Not the local epsilon: each of many cells is a shuffle of its own, in each group."""
    world = first(program).copy(tmp_path / "world")
    _half_exchanged(world)
    assert world.publish(program, "second", world.flags(program)) == programs.DONE
    world.check(program)
    record, charge = world.record("second"), world.ledger.charge("nightly")
    smallest = 36 if program.groups else 100  # 100 people: 64 of the north, 36 of the south
    mechanism = LocalRandomizer.from_config(record["mechanism"])
    expected = float(event_epsilon(shuffled_event(mechanism, smallest), DELTA))
    assert expected <= record["epsilon"] <= float(number(1.0005 * expected)) < 2.0  # as certified
    assert record["honest_reports"] == smallest
    paid = float(event_epsilon(event_from_json(charge.settled), DELTA))
    assert paid == pytest.approx(expected, rel=1e-9)
    assert charge.local_epsilon == 2.0
    assert {part["epsilon"] for part in record["parts"]} == {record["epsilon"]}
    if record.get("epsilon_if_known") is not None:  # who answered what is not counted in cells
        assert record["epsilon_if_known"] == 2.0


def test_a_group_that_was_too_small_before_is_charged(
    tmp_path: Path,
) -> None:
    """The same reports of the same people, and yet more is told than was paid for."""
    world = World.make(tmp_path / "world")
    flags = instead(world.flags(GROUPS), min_reports="200")  # 250 of the north, 150 of the south
    assert world.publish(GROUPS, "first", flags) == programs.DONE
    assert {part["group"] for part in world.record("first")["parts"]} == {"north"}
    before = world.ledger.charge("nightly")
    assert world.publish(GROUPS, "second", instead(flags, min_reports="100")) == programs.DONE
    after, record = world.ledger.charge("nightly"), world.record("second")
    assert record["report_digest"] == world.record("first")["report_digest"]
    assert {part["group"] for part in record["parts"]} == {"north", "south"}
    assert record["honest_reports"] == 150
    assert all(a > b for a, b in zip(after.loss.divergences, before.loss.divergences))
    world.check(GROUPS)
    assert world.publish(GROUPS, "third", flags) == programs.DONE  # nothing new
    assert world.ledger.charge("nightly") == after


def test_a_ledger_row_of_an_earlier_version_proves_no_equality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever holds the key could set the sum that was its digest. Hashes of the people still tell
    that nobody changed: both publications are priced together, and known by a set digest then."""
    world = World.make(tmp_path / "world")
    with pytest.MonkeyPatch.context() as patch:
        envelopes.digests_of_an_earlier_version(patch)
        assert world.publish(FREQUENCY, "first", world.flags(FREQUENCY)) == programs.DONE
    before = world.ledger.charge("nightly")
    assert before.report_digest == "5a" * 16
    flags = [*world.flags(FREQUENCY, tags=False), f"--output={world.folder}/second"]
    assert frequency.main(flags) == programs.NOTHING_RELEASED
    assert "Copy the files that were published then" in " ".join(capsys.readouterr().err.split())
    assert world.ledger.charge("nightly") == before
    assert world.publish(FREQUENCY, "third", world.flags(FREQUENCY)) == programs.DONE
    world.check(FREQUENCY)
    after = world.ledger.charge("nightly")
    assert after.published == 2 and after.loss == before.loss
    assert after.report_digest == world.record("third")["report_digest"] != before.report_digest
    assert world.estimates("third") == world.estimates("first")
