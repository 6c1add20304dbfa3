"""Pairs of collections from devices in which one thing changes: refused, the same, or charged for.

Devices and collector are two programs here, and the collector knows only files: what devices did
differently it must see in their envelopes, or in what adds up of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from apache_beam.transforms.window import GlobalWindows

from beam_ldp.ledger import LedgerError
from beam_ldp.pipelines import collect as collect_program
from beam_ldp.pipelines import programs, randomize
from beam_ldp.release import worker_results as results
from beam_ldp.release.devices.release_file import load_release
from beam_ldp.transforms.budgeted import ChargeTo
from tests.pairs import envelopes
from tests.pairs.world import DELTA, Program, World, instead

pytestmark = pytest.mark.e2e

REFUSED, PRICED, CHARGED = "refused", "priced together", "charged anew"
DEVICES = Program("devices", collect_program.PROGRAM, (), ("hair",))
Flags = list[str]


def device_flags(world: World) -> Flags:
    """Of an edge that randomizes for its people."""
    return [
        f"--input={world.folder}/people.csv", "--user-id=uid", "--column=hair",
        f"--domain={world.folder}/hair.txt", "--local-epsilon=2", "--release-id=week",
        "--dataset=them", f"--memoize-key-file={world.folder}/key",
    ]  # fmt: skip


def collector_flags(world: World) -> Flags:
    """Of whoever publishes."""
    return [
        f"--domain={world.folder}/hair.txt", f"--delta={DELTA}", "--min-reports=100",
        "--no-mlflow", f"--ledger=sqlite:///{world.folder}/privacy.db", "--run-id=nightly",
    ]  # fmt: skip


def arrive(world: World, name: str, flags: Flags) -> Path:
    """What devices send, in a folder; people are as they are now."""
    world.write_people(DEVICES)
    folder = world.folder / f"reports of {name}"
    assert randomize.main([*flags, f"--output={folder}"]) == programs.DONE
    return folder


def collect(world: World, name: str, reports: Path, flags: Flags) -> int:
    """Publish as a folder of this name."""
    more = [f"--reports={reports}/*", f"--release={reports}/release.json"]
    return world.publish(DEVICES, name, [*flags, *more])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One release was collected and published."""
    world = World.make(tmp_path_factory.mktemp("devices") / "world")
    reports = arrive(world, "first", device_flags(world))
    assert collect(world, "first", reports, collector_flags(world)) == programs.DONE
    world.check(DEVICES)
    return world


@dataclass(frozen=True)
class Change:
    """One thing that is another one the second time.

    Attributes:
        what: for people.
        expected: what becomes of it.
        devices, collector: their flags, changed; `devices` may change the world too.
    """

    what: str
    expected: str
    devices: Callable[[World, Flags], Flags] = lambda _, flags: flags
    collector: Callable[[Flags], Flags] = lambda flags: flags


def _list(world: World, flags: Flags) -> Flags:
    (world.folder / "hair.txt").write_text("red\ndark\n")
    return flags


def _fresh(world: World, flags: Flags) -> Flags:
    return instead(flags, memoize_key_file=None)


def _key(world: World, flags: Flags) -> Flags:
    (world.folder / "key").write_bytes(bytes(range(100, 132)))
    return flags


def _values(world: World, flags: Flags) -> Flags:
    """Of several people, so that the reports of one at least are others."""
    for i in range(0, 60, 3):
        world.people[i]["hair"] = "dark"
    return flags


def _people(world: World, flags: Flags) -> Flags:
    for i in range(40):
        world.people[10_000 + i] = world.people.pop(i)
    return flags


def _spelling(world: World, flags: Flags) -> Flags:
    moved = world.folder / "elsewhere"
    moved.mkdir()
    world.people = dict(reversed(world.people.items()))
    world.write_people(DEVICES, "elsewhere/of people.csv")
    return instead(flags, input=f"{moved}/../elsewhere/of people.csv")


def again(flags: Flags) -> Flags:
    return instead(flags, run_id="again")


def other_run(flags: Flags) -> Flags:
    return instead(flags, run_id="b")


def frozen(flags: Flags) -> Flags:
    return [*flags, "--frozen-values"]


CHANGES = [
    Change("nothing", REFUSED),  # whose reports these are only devices know
    Change("nothing, run id", REFUSED, collector=again),
    Change("nothing, frozen", PRICED, collector=frozen),
    Change("spelling, order of people, frozen", PRICED, _spelling, frozen),
    Change("column", REFUSED, lambda w, f: instead(f, column="eyes")),
    Change("column, run id", REFUSED, lambda w, f: instead(f, column="eyes"), other_run),
    Change("column, frozen", REFUSED, lambda w, f: instead(f, column="eyes"), frozen),
    Change("list", REFUSED, _list),
    Change("mechanism", REFUSED, lambda w, f: instead(f, local_epsilon="1")),
    Change("key, run id", REFUSED, _key, other_run),
    Change("fresh noise, run id", REFUSED, _fresh, other_run),
    Change("fresh noise, frozen", REFUSED, _fresh, frozen),
    Change("rule", REFUSED, lambda w, f: instead(f, user_id="person")),
    Change("reports of an envelope", REFUSED,
           lambda w, f: [*_fresh(w, f), "--reports-per-envelope=4"]),
    Change("release id", CHARGED, lambda w, f: instead(f, release_id="other"), other_run),
    Change("dataset, run id", CHARGED, lambda w, f: instead(f, dataset="copy of them"), other_run),
    Change("values", REFUSED, _values),
    Change("people", REFUSED, _people),
    Change("people, frozen", PRICED, _people, frozen),
]  # fmt: skip


FAST = ("nothing", "nothing, frozen", "column, run id", "values")
PAIRS = [
    pytest.param(change, id=change.what, marks=[] if change.what in FAST else [pytest.mark.slow])
    for change in CHANGES
]


@pytest.mark.parametrize("change", PAIRS)
def test_one_thing_changes(
    change: Change, first: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = first.copy(tmp_path / "world")
    before, spent = world.ledger.charge("nightly"), world.ledger.status("them").spent
    reports = arrive(world, "second", change.devices(world, device_flags(world)))
    code = collect(world, "second", reports, change.collector(collector_flags(world)))
    world.check(DEVICES)
    after = world.ledger.charge("nightly")
    charges = world.ledger.state.population_of("them").charges_of(0)
    if change.expected == REFUSED:
        assert (
            code in (programs.MISUSED, programs.NOTHING_RELEASED)
            and "second" not in world.published
        )
        assert after == before and world.ledger.status("them").spent == spent
        return
    assert code == programs.DONE
    if change.expected == PRICED:
        assert len(charges) == 1 and world.ledger.status("them").spent > spent
        assert after.local_epsilon == before.local_epsilon, "everybody sends the report they sent"
        assert "declared, not checked" in (world.folder / "second" / "privacy.md").read_text()
    else:
        assert len(charges) == 2 and world.ledger.status("them").local_committed == 4.0


# Envelopes without a key: the same ones are free, and no others are ever published ----------------


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> World:
    """As `first`, of devices that drew fresh noise."""
    world = World.make(tmp_path_factory.mktemp("keyless") / "world")
    reports = arrive(world, "first", _fresh(world, device_flags(world)))
    assert collect(world, "first", reports, collector_flags(world)) == programs.DONE
    return world


def collect_changed(world: World, change: envelopes.Change, flags: Flags) -> int:
    """A second collection, of what `change` makes of the envelopes of the first."""
    first = world.folder / "reports of first"
    release = first / "release.json"
    folder = envelopes.write_changed(change, release, first, world.folder / "envelopes")
    more = [f"--reports={folder}/*", f"--release={release}"]
    return world.publish(DEVICES, "second", [*flags, *more])


@pytest.mark.parametrize(
    ("change", "flags", "same"),
    [
        (envelopes.rearranged, other_run, True),
        (envelopes.forged, other_run, False),
        (envelopes.swapped, again, False),
        pytest.param(envelopes.omitted, other_run, False, marks=pytest.mark.slow),
        pytest.param(envelopes.omitted, frozen, False, marks=pytest.mark.slow),
    ],
)
def test_reports_without_a_key_are_collected_once_or_the_same(
    change: envelopes.Change, flags: Callable[[Flags], Flags], same: bool, keyless: World,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Two counts of the same reports, but for one person's, show that person's: no fresh noise."""
    world = keyless.copy(tmp_path / "world")
    before = world.ledger.balances.head
    code = collect_changed(world, change, flags(collector_flags(world)))
    assert world.ledger.balances.head == before
    world.check(DEVICES)
    if same:
        assert code == programs.DONE and world.estimates("second") == world.estimates("first")
        assert world.record("second")["report_digest"].startswith("set1:")
    else:
        assert code in (programs.NOTHING_RELEASED, programs.MISUSED)


@pytest.mark.parametrize("said", ["digest of an earlier version", "no digest, as of a pipeline"])
def test_envelopes_that_nothing_proves_to_be_the_same_are_refused(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger row of an earlier version, or of a program that leaves none (YAML, `ChargeTo`)."""
    world = World.make(tmp_path / "world")
    reports = arrive(world, "first", _fresh(world, device_flags(world)))
    with monkeypatch.context() as patch:
        if said.startswith("no"):
            patch.setattr(results, "_read_bytes", lambda *_: [])
        else:
            envelopes.digests_of_an_earlier_version(patch)
        assert collect(world, "first", reports, collector_flags(world)) == programs.DONE
        if not said.startswith("no"):  # nor where the digests are equal
            flags = other_run(collector_flags(world))
            assert collect(world, "second", reports, flags) == programs.NOTHING_RELEASED
    before = world.ledger.balances.head
    flags = [*other_run(collector_flags(world)), f"--output={world.folder}/second",
             f"--reports={reports}/*", f"--release={reports}/release.json"]  # fmt: skip
    assert collect_program.main(flags) == programs.NOTHING_RELEASED
    told = " ".join(capsys.readouterr().err.split())
    expected = "not the same envelopes" if said.startswith("no") else "Copy the files"
    assert expected in told and world.ledger.balances.head == before


def test_a_pipeline_does_not_publish_what_a_program_published(keyless: World) -> None:
    """YAML's `CollectReports`, after `collect`: it would settle before it knows what it has."""
    terms = load_release(f"{keyless.folder}/reports of first/release.json").terms
    budget = ChargeTo("them", f"sqlite:///{keyless.folder}/privacy.db")
    with pytest.raises(LedgerError, match="was published by run 'nightly'"):
        budget.reserve(
            budget.worst_event(terms.randomizer, 100), identity=terms.identity,
            windowing=GlobalWindows(), bounded=True, same_reports=True,
        )  # fmt: skip


def test_a_dry_run_says_what_would_become_of_a_second_collection(
    first: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `test_one_thing_changes` shows it: refused, or with the declaration priced together."""
    reports = first.folder / "reports of first"
    asked = [f"--reports={reports}/*", f"--release={reports}/release.json",
             f"--output={first.folder}/dry", "--dry-run", "--format=json",
             *collector_flags(first)]  # fmt: skip
    said = []
    for more in ([], ["--frozen-values"]):
        assert collect_program.main([*asked, *more]) == programs.DONE
        said.append(capsys.readouterr().out)
    assert "refused without --frozen-values: only the devices know" in said[0]
    assert "others are priced with them" in said[1]


@pytest.mark.parametrize("change", [_spelling, _people], ids=["the same people", "some others"])
def test_files_of_two_edges_count_everybody_once(
    change: Callable[[World, Flags], Flags], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same person in two files of two places sends one envelope twice, which counts once."""
    world = World.make(tmp_path / "world")
    reports = arrive(world, "one", device_flags(world))
    other = arrive(world, "other", change(world, device_flags(world)))
    for path in reports.glob("*.ldp"):
        shutil.copy(path, other / f"edge {path.name}")
    assert collect(world, "first", other, collector_flags(world)) == programs.DONE
    world.check(DEVICES)
    people = 400 if change is _spelling else 440
    assert world.record("first")["num_reports"] == people


def test_an_edge_that_answers_another_question_adds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envelopes of the same people for another column are refused, each with a reason."""
    world = World.make(tmp_path / "world")
    mixed = arrive(world, "hair", device_flags(world))
    for path in arrive(world, "eyes", instead(device_flags(world), column="eyes")).glob("*.ldp"):
        shutil.copy(path, mixed / f"eyes {path.name}")
    assert collect(world, "first", mixed, collector_flags(world)) == programs.DONE
    world.check(DEVICES)
    record = world.record("first")
    assert record["num_reports"] == 400 and record["num_bad_rows"] >= 1
