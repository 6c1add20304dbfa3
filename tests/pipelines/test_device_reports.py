"""Devices and collectors beyond one list: numbers, public groups, central targets, edges that run
again."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import collect, frequency, randomize
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse, LimitedHadamard
from beam_ldp.randomizers.identity import ONE_ROW_DECLARED, ROW, digest_of
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean, ScalarMean
from beam_ldp.randomizers.walsh_hadamard import rotation_seed_of
from beam_ldp.randomizers.wire import OTHER_RELEASE, GroupTerms, ReleaseTerms, encode_envelope
from beam_ldp.release.devices.release_file import Coordinates, ReleaseFile
from beam_ldp.wording import number
from tests.pipelines.test_frequency import FILES
from tests.randomizers.wire_terms import terms_of

pytestmark = pytest.mark.e2e

PEOPLE = 4000
HELD = {"DE": ("red", 2000), "FR": ("green", 1500), "LI": ("red", 100), "XX": ("green", 400)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with a colour, a country and two numbers; every person has two equal rows."""
    folder = tmp_path_factory.mktemp("devices")
    rows = ["uid,c,country,minutes,age\n"]
    rng = np.random.default_rng(4)
    uid = 0
    for country, (colour, count) in HELD.items():
        for minutes, age in zip(rng.integers(0, 1440, count), rng.integers(18, 98, count)):
            rows += [f"{uid},{colour},{country},{minutes},{age}\n"] * 2
            uid += 1
    (folder / "values.csv").write_text("".join(rows))
    (folder / "d.txt").write_text("red\ngreen\n")
    (folder / "groups.txt").write_text("DE\nFR\nLI\nAT\n")
    (folder / "ranges.csv").write_text("column,low,high\nminutes,0,1440\nage,18,98\n")
    (folder / "key").write_bytes(bytes(range(32)))
    return folder


def device(place: Path, out: Path, *more: str) -> int:
    return randomize.main(
        [f"--input={place}/values.csv", f"--output={out}", "--release-id=week-47",
         "--dataset=people", "--user-id=uid", *more]
    )  # fmt: skip


def gather(out: Path, reports: Path, *more: str) -> int:
    release = reports if reports.is_dir() else reports.parent
    return collect.main(
        [f"--reports={reports}", f"--release={release}/release.json", "--delta=1e-8",
         f"--output={out}", "--no-mlflow", "--no-ledger", *more]
    )  # fmt: skip


def table(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "estimates.csv").open(newline="", encoding="utf-8")))


def listed(place: Path) -> list[str]:
    return ["--column=c", f"--domain={place}/d.txt"]


@pytest.mark.statistical
def test_means_arrive(place: Path, tmp_path: Path) -> None:
    """Two numbers in ranges of their own, within 5 standard errors (two comparisons of fresh
    randomness: false alarms below 2e-6), and the files of `beam-ldp mean`."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    flags = ["--column=minutes,age", f"--ranges={place}/ranges.csv", "--local-epsilon=4"]
    assert device(place, reports, *flags) == DONE
    agreed = ReleaseFile.from_json(json.loads((reports / "release.json").read_text()))
    assert agreed.coordinates is not None and agreed.sampling == "iid"
    assert agreed.coordinates.names == ("minutes", "age")
    assert gather(out, reports, f"--min-reports={PEOPLE}") == DONE
    assert sorted(path.name for path in out.iterdir()) == FILES
    truth = np.loadtxt(place / "values.csv", delimiter=",", skiprows=1, usecols=(3, 4)).mean(axis=0)
    found = table(out)
    assert [row["coordinate"] for row in found] == ["minutes", "age"]
    for row, expected in zip(found, truth):
        assert abs(float(row["mean"]) - expected) < 5 * float(row["standard_error"])
    record = json.loads((out / "privacy.json").read_text())
    assert record["num_reports"] == PEOPLE and record["statistic"] == "mean"
    assert record["sampling"] == "iid" and record["in_ranges"] and record["user_id"] is None
    assert record["local_epsilon"] == pytest.approx(4, abs=1e-9) and record["epsilon"] < 4
    said = (out / "privacy.md").read_text()
    assert "sent a report" in said and "the drawing of one row per person" in said


@pytest.mark.statistical
def test_devices_and_collector_agree_on_the_rotation(place: Path, tmp_path: Path) -> None:
    """`release.json` names the seed that follows from the identity; 5 standard errors, two
    comparisons: false alarms below 2e-6."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    flags = ["--column=minutes,age", "--norm=l2", "--radius=1500", "--mechanism=L2Mean",
             "--local-epsilon=4"]  # fmt: skip
    assert device(place, reports, *flags) == DONE
    terms = ReleaseFile.from_json(json.loads((reports / "release.json").read_text())).terms
    own = terms.randomizer
    assert own.rotation_seed == rotation_seed_of(terms.identity) > 0
    assert gather(out, reports, f"--min-reports={PEOPLE}") == DONE
    found = json.loads((out / "privacy.json").read_text())["mechanism"]
    assert LocalRandomizer.from_config(found) == own
    truth = np.loadtxt(place / "values.csv", delimiter=",", skiprows=1, usecols=(3, 4)).mean(axis=0)
    for row, expected in zip(table(out), truth):
        assert abs(float(row["mean"]) - expected) < 5 * float(row["standard_error"])


def test_errors_allow_for_the_draw_of_a_row(place: Path, tmp_path: Path) -> None:
    """With --user-id one of several rows was drawn, which the collector learns from the release;
    the errors are those of `sampling="iid"` and larger than without."""
    reports = tmp_path / "reports"
    assert device(place, reports, *listed(place), "--local-epsilon=6", "--seed=1") == DONE
    terms = json.loads((reports / "release.json").read_text())
    errors = []
    for sampling in ("iid", "fixed"):
        (reports / "release.json").write_text(json.dumps({**terms, "sampling": sampling}))
        out = tmp_path / sampling
        assert gather(out, reports, f"--domain={place}/d.txt", "--min-reports=4000") == DONE
        errors.append([float(row["frequency_standard_error"]) for row in table(out)])
    oracle = ReleaseTerms.from_json(terms).randomizer
    value = [float(row["frequency"]) for row in table(tmp_path / "iid")]
    truth = np.clip(value, 0, 1) / np.clip(value, 0, 1).sum()
    drawn = np.sqrt(oracle.variance(PEOPLE, truth, "iid"))
    assert errors[0] == pytest.approx(drawn, rel=0.02)
    assert all(iid > fixed for iid, fixed in zip(*errors))


@pytest.mark.statistical
def test_groups_arrive(place: Path, tmp_path: Path) -> None:
    """Each country by itself, small and absent ones withheld by name; 5 standard errors (nine
    comparisons of fresh randomness: false alarms below 1e-5)."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    groups = [f"--groups={place}/groups.txt"]
    flags = [*listed(place), "--group-by=country", *groups, "--epsilon=1", "--delta=1e-8",
             "--min-reports=300"]  # fmt: skip
    assert device(place, reports, *flags) == DONE
    assert gather(out, reports, f"--domain={place}/d.txt", *groups, "--min-reports=300") == DONE
    record = json.loads((out / "privacy.json").read_text())
    sizes = {part["group"]: part["num_reports"] for part in record["parts"]}
    assert sizes == {"DE": 2000, "FR": 1500, "other": 400}
    assert {part["group"]: part["num_reports"] for part in record["withheld"]} == {
        "LI": 100, "AT": 0,
    }  # fmt: skip
    assert record["group_by"] == "country" and record["honest_reports"] == 400
    prices = {part["group"]: part["epsilon"] for part in record["parts"]}
    assert prices["DE"] < prices["FR"] < prices["other"] == record["epsilon"] <= 1
    for row in table(out):
        colour, count = HELD["XX" if row["group"] == "other" else row["group"]]
        expected = count if row["value"] == colour else 0
        assert abs(float(row["count"]) - expected) < 5 * float(row["count_standard_error"]) + 1e-9
    assert "which group a person is in" in (out / "privacy.md").read_text()
    for more, message in (
        ([], "--groups is missing"),
        ([f"--groups={place}/d.txt"], "not the list of groups that the devices used"),
    ):
        flags = [f"--domain={place}/d.txt", "--min-reports=300", *more]
        assert gather(tmp_path / "no", reports, *flags) == MISUSED, message


def test_a_central_target_is_met_and_held(place: Path, tmp_path: Path, capsys: Any) -> None:
    """`--epsilon` decides the local one, for the fewest reports that are to be counted; fewer cost
    more, and are released only where that is allowed."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    flags = [*listed(place), "--epsilon=0.5", "--delta=1e-8", "--expected-users=4000"]
    assert device(place, reports, *flags) == DONE
    randomizer = ReleaseTerms.from_json(
        json.loads((reports / "release.json").read_text())
    ).randomizer
    assert 0.49 < float(shuffle_epsilon(randomizer, 3600, 1e-8)) <= 0.5
    price = shuffle_epsilon(randomizer, PEOPLE, 1e-8)
    more = [f"--domain={place}/d.txt", "--min-reports=100", "--epsilon=0.5"]
    assert gather(out, reports, *more) == DONE
    record = json.loads((out / "privacy.json").read_text())
    assert record["target_epsilon"] == 0.5 and record["epsilon"] == float(number(price))
    some = sorted(reports.glob("*.ldp"))[0]
    capsys.readouterr()
    assert gather(tmp_path / "less", some, *more) == NOTHING_RELEASED
    said = " ".join(capsys.readouterr().err.split())
    assert "Pass --allow-over-target to release anyway" in said and "above the target 0.5" in said
    assert gather(tmp_path / "less", some, *more, "--allow-over-target") == DONE
    assert "above the target 0.5" in " ".join(capsys.readouterr().err.split())
    stated = json.loads((tmp_path / "less" / "privacy.json").read_text())
    assert stated["epsilon"] > 0.5


def test_an_edge_that_runs_again_counts_nobody_twice(place: Path, tmp_path: Path) -> None:
    """With a secret key: the same people, more people, another order of rows: each person has one
    report, and what the collector gives is the same to the last digit."""
    first, again, out = tmp_path / "first", tmp_path / "again", tmp_path / "out"
    flags = [*listed(place), "--local-epsilon=3", f"--memoize-key-file={place}/key",
             "--dataset=people"]  # fmt: skip
    assert device(place, first, *flags) == DONE
    lines = (place / "values.csv").read_text().splitlines(keepends=True)
    more = tmp_path / "more.csv"
    more.write_text("".join([lines[0], "9999,red,DE,1,20\n", *lines[1:]]))
    assert device(place, again, f"--input={more}", *flags) == DONE
    common = [f"--domain={place}/d.txt", "--min-reports=4000"]
    assert gather(out, first, *common) == DONE
    assert json.loads((out / "privacy.json").read_text())["num_reports"] == PEOPLE
    both = tmp_path / "both"
    assert gather(both, first, f"--reports={again}", *common) == DONE
    assert json.loads((both / "privacy.json").read_text())["num_reports"] == PEOPLE + 1
    refused = [
        json.loads(line)
        for line in Path(f"{both}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    assert len(refused) == PEOPLE
    assert {row["reason"] for row in refused} == {"sent before: another envelope has its id"}


@pytest.mark.slow
def test_without_a_key_a_second_run_is_other_people(place: Path, tmp_path: Path) -> None:
    """What no collector can tell: fresh randomness under new ids."""
    first, again = tmp_path / "first", tmp_path / "again"
    for reports in (first, again):
        assert device(place, reports, *listed(place), "--local-epsilon=3") == DONE
    out = tmp_path / "out"
    flags = [f"--reports={again}", f"--domain={place}/d.txt", "--min-reports=10"]
    assert gather(out, first, *flags) == DONE
    assert json.loads((out / "privacy.json").read_text())["num_reports"] == 2 * PEOPLE


def test_numbers_misused(place: Path, tmp_path: Path, capsys: Any) -> None:
    reports, out = tmp_path / "reports", tmp_path / "out"
    numbers = ["--column=minutes", "--range", "0", "1440", "--local-epsilon=2"]
    for flags, message in (
        (["--column=minutes", "--local-epsilon=2"], "give --domain or --bins"),
        ([*numbers, "--bad-rows=other"], "--bad-rows of numbers must be dead-letter or zero"),
        ([*numbers, "--group-by=country"], "for numbers, --group-by for values of a list"),
        ([*numbers, "--mechanism=KRandomizedResponse"], "is unknown"),
        (["--column=nowhere", "--radius=1", "--local-epsilon=2"], "nowhere"),
    ):
        assert device(place, reports, *flags) == MISUSED, flags
        assert message in " ".join(capsys.readouterr().err.split()), flags
    assert device(place, reports, *numbers) == DONE
    capsys.readouterr()
    for more, message in (
        ([f"--domain={place}/d.txt"], "--domain is for lists of values"),
        (["--shape=2x2"], "--shape 2x2 must have as many pixels"),
        (["--shape=2"], "--shape must be HEIGHTxWIDTH"),
        (["--postprocess=clip"], "--postprocess is for frequencies"),
    ):
        assert gather(out, reports, "--min-reports=10", *more) == MISUSED, more
        assert message in " ".join(capsys.readouterr().err.split()), more
    terms = json.loads((reports / "release.json").read_text())
    changed = terms["coordinates"].replace("1440", "720")
    (reports / "release.json").write_text(json.dumps({**terms, "coordinates": changed}))
    assert gather(out, reports, "--min-reports=10") == MISUSED
    assert "contradict themselves: coordinates" in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_of_numbers_reads_no_report(place: Path, tmp_path: Path, capsys: Any) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "a").write_bytes(b"junk")
    coordinates = Coordinates(("a", "b"), CoordinateRanges((0, 1), (2, 3)))
    told = ReleaseFile(terms_of_numbers(LInfMean(2, 3.0), coordinates), "iid", coordinates)
    (reports / "release.json").write_text(json.dumps(told.to_json()))
    flags = ["--min-reports=1000", "--dry-run", "--format=json"]
    assert gather(tmp_path / "out", reports, *flags) == DONE
    plan = json.loads(capsys.readouterr().out)
    assert plan["dimension"] == 2 and plan["times_lower_bound"] is None
    assert plan["local_epsilon"] == 3 and not (tmp_path / "out").exists()
    assert gather(tmp_path / "out", reports, *flags[:-1]) == DONE
    assert "against the best possible" not in capsys.readouterr().out


def terms_of_numbers(randomizer: Any, coordinates: Coordinates) -> ReleaseTerms:
    return terms_of(randomizer, columns=coordinates.names, values=coordinates.values.hex())


@pytest.mark.exact
def test_release_files_survive_a_round_trip() -> None:
    listed, numbers = Domain(("a", "b")), Coordinates(("x",), CoordinateRanges(0, 1))
    oracle, bit = KRandomizedResponse(3, 1.0), ScalarMean(1, 2.0, signed=True)
    plain = terms_of(oracle, columns=("c",), values=listed.digest.hex())
    groups = digest_of(b"g", listed.digest).hex()
    grouped = terms_of(oracle, columns=("c",), values=listed.digest.hex(), groups=groups)
    many, names = terms_of(LInfMean(2, 3.0), columns=("list",)), Coordinates(("0", "1"))
    for release in (
        ReleaseFile(plain),
        ReleaseFile(grouped, "iid", None, "g", listed.digest),
        ReleaseFile(terms_of_numbers(bit, numbers), "iid", numbers),
        ReleaseFile(terms_of_numbers(bit, Coordinates(("é",))), coordinates=Coordinates(("é",))),
        ReleaseFile(many, coordinates=names),
    ):
        assert ReleaseFile.from_json(json.loads(json.dumps(release.to_json()))) == release
    for terms, rest in (
        (plain, ("iid", None, "g", listed.digest)),
        (grouped, ()),
        (grouped, ("iid", None, "h", listed.digest)),
        (grouped, ("iid", None, "g", bytes(16))),
        (ReleaseTerms(oracle, grouped.identity.of_group("DE")), ("iid", None, "g", listed.digest)),
    ):
        with pytest.raises(ValueError, match="contradict themselves: groups"):
            ReleaseFile(terms, *rest)  # type: ignore[arg-type]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sampling": "often"}, "sampling must be"),
        ({"group_by": "g"}, "belong together"),
        ({"group_by": 7}, "group_by must name a column"),
        ({"groups_digest": "00"}, "groups_digest must be 16 bytes"),
        ({"groups_digest": 5}, "groups_digest must be 16 bytes"),
        ({"coordinates": None}, "lack coordinates"),
        ({"coordinates": 5}, "must be the text of a JSON object"),
        ({"coordinates": '{"columns":["x"]}'}, "contradict themselves: coordinates"),
        ({"coordinates": '{"columns":["y"],"low":[0],"high":[1]}'}, "names of coordinates"),
        ({"coordinates": '{"columns":[]}'}, "at least one column"),
        ({"coordinates": '{"columns":[3]}'}, "must name columns"),
        ({"coordinates": '{"columns":["x"],"low":0}'}, "low|high"),
        ({"coordinates": '{"columns":["x"],"more":0}'}, "must be the text of a JSON object"),
    ],
)
def test_release_files_that_contradict_themselves(changed: dict[str, Any], message: str) -> None:
    numbers = Coordinates(("x",), CoordinateRanges(0, 1))
    terms = terms_of_numbers(ScalarMean(1, 2.0, signed=True), numbers)
    good = ReleaseFile(terms, "iid", numbers)
    with pytest.raises(ValueError, match=message):
        ReleaseFile.from_json({**good.to_json(), **changed})


def test_envelopes_of_other_groups_are_of_another_release(place: Path, tmp_path: Path) -> None:
    """A device that names a group of its own, or none, is refused with a reason."""
    listed, groups = Domain(("red", "green")), Domain(("DE",))
    oracle = KRandomizedResponse(3, 2.0)
    shared = terms_of(
        oracle,
        columns=("c",),
        values=listed.digest.hex(),
        groups=digest_of(b"country", groups.digest).hex(),
    )
    ours = GroupTerms(shared, groups.labels)
    theirs = GroupTerms(shared, ("ZZ",))
    report = np.zeros(1, dtype=np.uint8)
    sent = [encode_envelope(ours.of(i % 2), report) for i in range(40)]
    sent += [encode_envelope(theirs.of(0), report), encode_envelope(shared, report)]
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "inbox").write_bytes(b"".join(sent))
    told = ReleaseFile(shared, "fixed", None, "country", groups.digest)
    (reports / "release.json").write_text(json.dumps(told.to_json()))
    (tmp_path / "groups.txt").write_text("DE\n")
    out = tmp_path / "out"
    flags = [f"--domain={place}/d.txt", f"--groups={tmp_path}/groups.txt", "--min-reports=20"]
    assert gather(out, reports, *flags) == DONE
    record = json.loads((out / "privacy.json").read_text())
    assert {p["group"]: p["num_reports"] for p in record["parts"]} == {"DE": 20, "other": 20}
    listed = Path(f"{out}.private", "bad_rows.jsonl").read_text()
    refused = [json.loads(line) for line in listed.splitlines()]
    assert [row["reason"] for row in refused] == [OTHER_RELEASE]


# Whose budget -----------------------------------------------------------------------------------


@pytest.fixture
def people(tmp_path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{tmp_path}/privacy.db")
    made.set_budget("people", epsilon=9.0, delta=1e-6, local_epsilon=9.0)
    return made


def charge(out: Path, reports: Path, ledger: BudgetLedger, *more: str) -> int:
    return collect.main(
        [f"--reports={reports}", f"--release={reports}/release.json", "--delta=1e-8",
         f"--output={out}", "--no-mlflow", f"--ledger={ledger.url}", "--run-id=week",
         "--min-reports=100", *more]
    )  # fmt: skip


def rows_of(place: Path, reports: Path, *more: str) -> int:
    """Reports of rows: nothing says whose they are."""
    return randomize.main(
        [f"--input={place}/values.csv", f"--output={reports}", "--release-id=week-47",
         "--dataset=people", *listed(place), "--local-epsilon=2", *more]
    )  # fmt: skip


def test_a_budget_of_people_is_not_charged_for_rows(
    place: Path, tmp_path: Path, people: BudgetLedger, capsys: Any
) -> None:
    """What was seen: everybody's two rows, two reports each, charged as one person's one."""
    reports, lists = tmp_path / "reports", f"--domain={place}/d.txt"
    assert rows_of(place, reports) == DONE
    for more in ([], ["--dry-run"]):
        assert charge(tmp_path / "out", reports, people, lists, *more) == MISUSED
        said = " ".join(capsys.readouterr().err.split())
        assert "a budget of people cannot be charged" in said and "--one-row-per-person" in said
    assert not people.has_run("week") and not (tmp_path / "out").exists()
    assert gather(tmp_path / "out", reports, lists, "--min-reports=100") == DONE  # uncharged
    simulated = tmp_path / "simulated"
    assert rows_of(place, simulated, "--seed=1") == DONE  # has no price
    assert charge(tmp_path / "out2", simulated, people, lists) == DONE
    assert not people.has_run("week")


@pytest.mark.parametrize("about", ["list", "numbers"])
def test_somebodys_word_stands_in_the_release_and_in_the_ledger(
    place: Path, tmp_path: Path, people: BudgetLedger, about: str
) -> None:
    reports, lists = tmp_path / "reports", [f"--domain={place}/d.txt"]
    asked = [*listed(place), "--local-epsilon=2"]
    if about == "numbers":
        lists, asked = [], ["--column=age", "--range", "18", "98", "--local-epsilon=2"]
    told = [f"--input={place}/values.csv", "--release-id=week-47", "--dataset=people", *asked,
            "--one-row-per-person"]  # fmt: skip
    assert randomize.main([*told, f"--output={reports}"]) == DONE
    identity = json.loads((reports / "release.json").read_text())["identity"]
    assert identity["bounding"] == ONE_ROW_DECLARED
    assert charge(tmp_path / "out", reports, people, *lists) == DONE
    made = people.charge("week")
    assert made.status == "settled" and made.identity.bounding == ONE_ROW_DECLARED
    assert made.about["one_report_per"] == f"envelope, {ONE_ROW_DECLARED}"


def test_drawn_rows_are_somebodys(place: Path, tmp_path: Path, people: BudgetLedger) -> None:
    reports = tmp_path / "reports"
    assert device(place, reports, *listed(place), "--local-epsilon=2") == DONE
    assert charge(tmp_path / "out", reports, people, f"--domain={place}/d.txt") == DONE
    assert people.charge("week").about["one_report_per"] == "envelope, one row of each uid"


@pytest.mark.parametrize("declared", [False, True])
def test_the_rule_is_that_of_the_program_with_the_same_flags(place: Path, declared: bool) -> None:
    """So that the devices' release and the program's stand for the same question."""
    flags = [f"--input={place}/values.csv", "--release-id=w", "--dataset=people", *listed(place),
             "--local-epsilon=2", *["--one-row-per-person"] * declared]  # fmt: skip
    given = read_flags(randomize.USAGE, [*flags, "--output=o"])
    there = randomize.check(given).release.terms.identity
    given = read_flags(frequency.USAGE, [*flags, "--output=o", "--delta=1e-6", "--min-reports=10"])
    asked = frequency.Frequency.of(given)
    assert asked.identity(asked.choose()) == there
    assert there.bounding == (ONE_ROW_DECLARED if declared else ROW)


@pytest.mark.statistical
def test_devices_with_few_random_bits(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Half of the devices speak, the collector counts on it: within 5 standard errors, two
    comparisons of fresh randomness: false alarms below 2e-6. Too few bits are refused by number."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    flags = [*listed(place), "--local-epsilon=2", "--random-bits=0.26"]
    assert device(place, tmp_path / "no", *flags, "--mechanism=KRandomizedResponse") == MISUSED
    said = " ".join(capsys.readouterr().err.split())
    assert "KRandomizedResponse: a report takes 0.96022" in said and "random_bits is 0.26" in said
    assert device(place, tmp_path / "no", *listed(place), "--local-epsilon=2",
                  "--mechanism=LimitedHadamard") == MISUSED  # fmt: skip
    assert "--mechanism LimitedHadamard needs --random-bits" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert device(place, reports, *flags) == DONE
    terms = ReleaseFile.from_json(json.loads((reports / "release.json").read_text())).terms
    own = terms.randomizer
    assert isinstance(own, LimitedHadamard) and (own.mode, own.row) == ("timeshare", "public")
    assert own.cond_entropy_bits == pytest.approx(0.26)
    more = [f"--domain={place}/d.txt", f"--min-reports={PEOPLE}"]
    assert gather(out, reports, *more) == DONE
    for row, count in zip(table(out), (2100, 1900, 0)):
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])
    record = json.loads((out / "privacy.json").read_text())
    assert LocalRandomizer.from_config(record["mechanism"]) == own
    assert record["epsilon"] < record["local_epsilon"] == 2
