"""Job files: the same run as flags, in three notations; their schema; what is refused, and how."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from beam_ldp.pipelines import cli, job_runs
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import PROGRAMS, program_of, usage_of
from beam_ldp.release.job_files import (
    job_schema,
    job_text,
    jobs_of,
    read_job,
    settings_of_kind,
)
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import read_setting
from beam_ldp.settings.usage import Arguments

USAGE = usage_of("frequency")
pytestmark = pytest.mark.e2e

JOB = """
source:  {csv: "x.csv"}
people:  {id: u, one_row: false}
release: {dataset: telemetry, id: week-47, ledger: env}
questions:
  - {frequency: v, domain: {file: domain.txt}, other: "(other)"}
privacy: {epsilon: 1, delta: 1e-8, max_local_epsilon: 6, expected_users: 1e6}
output:  {folder: out/}
"""
FLAGS = [
    "--input=x.csv", "--input-format=csv", "--user-id=u", "--dataset=telemetry",
    "--release-id=week-47", "--column=v", "--domain=domain.txt", "--other-label=(other)",
    "--epsilon=1", "--delta=1e-8", "--max-local-epsilon=6", "--expected-users=1e6",
    "--output=out/",
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "x.csv").write_text("u,v\n1,a\n")
    (tmp_path / "domain.txt").write_text("a\nb\n")
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only(jobs: list[tuple[str, Arguments]]) -> Arguments:
    ((program, given),) = jobs
    assert program == "frequency"
    return given


def test_a_job_file_is_its_flags(place: Path) -> None:
    """The same settings, checked; 1e-8 and 1e6 are numbers, which YAML takes for text."""
    from_file = bound(USAGE, only(read_job("job.yaml"))).job
    assert from_file == bound(USAGE, read_flags(USAGE, FLAGS)).job
    assert from_file.privacy.expected_users == 10**6 and from_file.privacy.delta == 1e-8


def test_three_notations_say_the_same(place: Path) -> None:
    (place / "job.toml").write_text(
        'source = {csv = "x.csv"}\npeople = {id = "u", one_row = false}\n'
        'release = {dataset = "telemetry", id = "week-47", ledger = "env"}\n'
        "privacy = {epsilon = 1, delta = 1e-8, max_local_epsilon = 6, expected_users = 1e6}\n"
        'output = {folder = "out/"}\n'
        '[[questions]]\nfrequency = "v"\ndomain = {file = "domain.txt"}\nother = "(other)"\n'
    )
    content = {
        "source": {"csv": "x.csv"}, "people": {"id": "u", "one_row": False},
        "release": {"dataset": "telemetry", "id": "week-47", "ledger": "env"},
        "questions": [{"frequency": "v", "domain": "domain.txt", "other": "(other)"}],
        "privacy": {"epsilon": 1, "delta": 1e-8, "max_local_epsilon": 6, "expected_users": 1e6},
        "output": {"folder": "out/"},
    }  # fmt: skip
    (place / "job.json").write_text(json.dumps(content))
    found = [only(read_job(f"job.{ending}")) for ending in ("yaml", "toml", "json")]
    assert found[0] == found[1] == found[2]


def example(kind: str, about: Any) -> Any:
    """A value that a setting takes, other than its default."""
    if about.choices:
        return about.choices[-1]
    values = (3, "0.5", "l1", "60s", "1,2", "text", True)
    for value in values:
        one = [value] * about.arity if about.arity > 1 else value
        try:
            read_setting(kind, about, one)
        except ValueError:
            continue
        return one
    raise AssertionError(about)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        *((program, None) for program in PROGRAMS if program != "randomize"),
        ("randomize", "frequency"),
        ("randomize", "mean"),
    ],
)
def test_every_setting_of_every_program_survives_the_file(
    program: str, kind: str | None, tmp_path: Path
) -> None:
    """`--print-job` of all flags at once, read back, is what was given: no setting is forgotten.
    Devices answer questions of two kinds, with the settings of each."""
    usage = usage_of(program)
    given: dict[str, dict[str, Any]] = {}
    for part, name, about in usage:
        if part.home == "question" and kind and name not in settings_of_kind(usage, kind):
            continue
        if part.home:
            read = read_setting(f"{part.home}.{name}", about, example(name, about))
            given.setdefault(part.home, {})[name] = read
    if "id" in given.get("people", {}):
        given["people"].pop("one_row", None)  # which excludes it
    (tmp_path / "job.yaml").write_text(job_text(usage, Arguments(given, [])))
    ((found, back),) = read_job(str(tmp_path / "job.yaml"))
    assert found == program and back.settings == given


def test_devices_have_the_settings_of_their_kinds_and_no_others() -> None:
    usage = usage_of("randomize")
    kinds = ("frequency", "mean", "ab_test")
    known = {name for kind in kinds for name in settings_of_kind(usage, kind)}
    assert known == {name for part, name, _ in usage if part.home == "question"}


def test_several_questions_survive_the_file(tmp_path: Path) -> None:
    flags = ["--column=hair", "--domain=h", "--column=eyes", "--domain=e"]
    given = read_flags(USAGE, flags)
    (tmp_path / "job.yaml").write_text(job_text(USAGE, given))
    back = only(read_job(str(tmp_path / "job.yaml")))
    assert back["question"] == {"column": ("hair", "eyes"), "domain": ("h", "e")}


def test_flags_win_over_the_file(place: Path, capsys: Any) -> None:
    assert job_runs.main(["job.yaml", "--expected-users=5e5", "--print-job"]) == 0
    assert "expected_users: 500000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("privacy:", "privcy:"), "unknown section privcy.*did you mean privacy"),
        (("epsilon: 1,", "epsilom: 1,"), "unknown setting privacy.epsilom.*did you mean epsilon"),
        (("frequency: v", "frequencies: v"), "must begin with one of frequency, mean, user_mean"),
        (("epsilon: 1,", "epsilon: -1,"), "privacy.epsilon must be a number > 0, got -1"),
        (("one_row: false", "one_row: 1"), "people.one_row must be true or false, got 1"),
        (("{folder: out/}", "out/"), "output must hold settings, such as"),
        (("JOB", "JOB"), None),
    ],
)
def test_what_does_not_fit_is_named_by_its_key(
    change: tuple[str, str], said: str | None, place: Path
) -> None:
    (place / "job.yaml").write_text(JOB.replace(*change))
    if said is None:
        assert only(read_job("job.yaml"))["output"] == {"folder": "out/"}
        return
    with pytest.raises(SettingError, match=said):
        read_job("job.yaml")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("job.yaml", "- 1", "must hold sections"), ("job.yaml", "a: [", "cannot be read"),
        ("job.json", "{", "cannot be read"), ("job.json", "[" * 100_000, "cannot be read"),
        ("job.toml", "a =", "cannot be read"), ("job.ini", "", "must end in .yaml"),
        ("job.yaml", "source: {}", "questions is missing"),
        ("job.yaml", "program: fly", "program must be one of frequency"),
        ("job.yaml", "questions: {a: 1}", "must be a list of questions"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_job_is_refused(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SettingError, match=said):
        read_job(str(tmp_path / name))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingError, match="nowhere.yaml cannot be read"):
        read_job("nowhere.yaml")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.yaml", "privacy: {epsilon: 1}\nprivacy: {epsilon: 2}"),
        ("job.yaml", "privacy: {epsilon: 1, epsilon: 2}"),
        ("job.json", '{"privacy": {"epsilon": 1, "epsilon": 2}}'),
        ("job.toml", "[privacy]\nepsilon = 1\nepsilon = 2"),
    ],
)
def test_a_key_twice_is_refused(name: str, content: str, tmp_path: Path) -> None:
    """The second would replace the first without a word."""
    (tmp_path / name).write_text(content)
    with pytest.raises(SettingError, match="cannot be read"):
        read_job(str(tmp_path / name))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"program": "frequency", "questions": [{"mean": "age"}]}, "asks frequency, not mean"),
        ({"program": "randomize", "questions": [{"mean": "x", "domain": "d"}]}, "question.domain"),
        ({"program": "randomize", "questions": [{"frequency": "x", "radius": 1}]}, "on.radius"),
        ({"program": "randomize", "questions": [{"user_mean": "x"}]}, "not user_mean"),
        ({"questions": [{"heavy_hitters": "x", "column": "y"}]}, "leave column out"),
        ({"questions": [{"frequency": "x", "column": "y"}]}, "leave column out"),
        ({"questions": [{"mean": "x", "range": [0, 9]}, {"mean": "y"}]}, "must agree on range"),
        ({"questions": [{"mean": "x"}, {"mean": "y", "range": [0, 9]}]}, "must agree on range"),
    ],
)
def test_a_question_is_of_the_kind_that_it_names(content: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        jobs_of(content)


def test_a_yaml_tag_makes_nothing(tmp_path: Path) -> None:
    """A job file is data: it imports and calls nothing."""
    (tmp_path / "job.yaml").write_text("source: !!python/object/apply:os.getcwd []")
    with pytest.raises(SettingError, match="cannot be read"):
        read_job(str(tmp_path / "job.yaml"))


def test_a_refusal_of_the_program_is_an_exit_code(place: Path, capsys: Any) -> None:
    (place / "job.yaml").write_text(JOB.replace("delta: 1e-8, ", ""))
    assert job_runs.main(["job.yaml"]) == 2
    assert "--delta is missing" in capsys.readouterr().err


# Questions of different kinds --------------------------------------------------------------

MIXED = JOB.replace(
    "privacy:", "  - {mean: [age, bmi], ranges: {age: [0, 120], bmi: [10, 60]}}\nprivacy:"
).replace("people:  {id: u, one_row: false}", "people: {id: u}")


def test_questions_of_different_kinds_share_what_they_may_cost(place: Path) -> None:
    (place / "job.yaml").write_text(MIXED)
    jobs = read_job("job.yaml")
    assert [program for program, _ in jobs] == ["frequency", "mean"]
    for name, whole in (("epsilon", 1), ("delta", 1e-8), ("max_local_epsilon", 6)):
        assert sum(given["privacy"][name] for _, given in jobs) == pytest.approx(whole)
    assert [given["release"]["id"] for _, given in jobs] == ["week-47-frequency", "week-47-mean"]
    assert [given["output"]["folder"] for _, given in jobs] == ["out/frequency", "out/mean"]
    listed = [given["output"]["bad_rows_file"] for _, given in jobs]
    assert listed == [f"out.private/{kind}.bad_rows.jsonl" for kind in ("frequency", "mean")]
    assert all(given["privacy"]["expected_users"] == 10**6 for _, given in jobs)


def test_flags_over_a_mixed_job_are_shared_too(place: Path, capsys: Any) -> None:
    """A target on the command line is for all of the job, not for each of its releases."""
    (place / "job.yaml").write_text(MIXED)
    flags = ["--epsilon=0.5", "--release-id=week-48", "--output=new", "--print-job"]
    assert job_runs.main(["job.yaml", *flags]) == 0
    written = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["privacy"]["epsilon"] for one in written] == [0.25, 0.25]
    assert [one["release"]["id"] for one in written] == ["week-48-frequency", "week-48-mean"]
    assert [one["output"]["folder"] for one in written] == ["new/frequency", "new/mean"]


def test_the_rest_of_a_mixed_job_runs_alone_with_its_own_share(place: Path, capsys: Any) -> None:
    """After a kill between two releases: the one that is there is refused, never run anew; the
    other one must not take the whole privacy cost because it is asked alone."""
    (place / "job.yaml").write_text(MIXED)
    assert job_runs.main(["job.yaml", "--only=mean", "--print-job"]) == 0
    alone = yaml.safe_load(capsys.readouterr().out)
    assert alone["privacy"]["epsilon"] == 0.5 and alone["release"]["id"] == "week-47-mean"
    assert job_runs.main(["job.yaml", "--only=user-mean"]) == 2
    assert "--only must be one of frequency, mean" in capsys.readouterr().err


def test_both_releases_of_a_mixed_job_are_published(place: Path) -> None:
    """The records add up to at most what the file allows."""
    rows = "".join(f"{i},{'ab'[i % 2]},{20 + i % 50},{15 + i % 30}\n" for i in range(3000))
    (place / "x.csv").write_text("u,v,age,bmi\n" + rows + "9999,,,\n")
    (place / "job.yaml").write_text(
        MIXED.replace("1e6", "3000").replace("ledger: env", "ledger: none")
    )
    assert job_runs.main(["job.yaml", "--no-mlflow"]) == 0
    records = [
        json.loads((place / "out" / kind / "privacy.json").read_text())
        for kind in ("frequency", "mean")
    ]
    listed = {path.name for path in (place / "out.private").iterdir()}
    assert listed == {"frequency.bad_rows.jsonl", "mean.bad_rows.jsonl"}
    assert {path.name for path in (place / "out").iterdir()} == {"frequency", "mean"}
    assert sum(record["epsilon"] for record in records) <= 1
    assert sum(record["local_epsilon"] for record in records) <= 6
    assert records[0]["identity_digest"] != records[1]["identity_digest"]


def test_one_row_beside_an_id_is_about_errors_and_without_it_a_declaration() -> None:
    for question, each in (({"mean": "age"}, True), ({"frequency": "age"}, None)):
        content = {"people": {"id": "u", "one_row": True}, "questions": [question]}
        ((_, given),) = jobs_of(content)
        assert given["people"] == {"id": "u"} and given["question"].get("one_row_each") is each
    content = {"program": "randomize", "people": {"id": "u", "one_row": True}}
    ((_, given),) = jobs_of({**content, "questions": [{"frequency": "v", "domain": "d"}]})
    assert "one_row_each" not in given["question"]  # which would ask for numbers
    ((_, given),) = jobs_of({"people": {"one_row": True}, "questions": [{"mean": "age"}]})
    assert given["people"] == {"one_row": True} and "one_row_each" not in given["question"]


def test_ranges_stand_in_the_job_file_or_in_a_file_of_their_own(tmp_path: Path) -> None:
    ranges = {"age": (0.0, 120.0), "bmi": (10.0, 60.0)}
    ((_, given),) = jobs_of({"questions": [{"mean": ["age", "bmi"], "ranges": ranges}]})
    assert given["question"]["ranges"] == ranges
    (tmp_path / "job.yaml").write_text(job_text(usage_of("mean"), given))
    assert read_job(str(tmp_path / "job.yaml")) == [("mean", given)]
    ((_, given),) = jobs_of({"questions": [{"mean": "age", "ranges": {"file": "r.csv"}}]})
    assert given["question"]["ranges"] == "r.csv"
    for wrong in ({"age": [0]}, {"age": 3}, {"age": ["low", "high"]}, 7):
        with pytest.raises(SettingError, match="question.ranges must be a file, or"):
            jobs_of({"questions": [{"mean": "age", "ranges": wrong}]})


# The schema --------------------------------------------------------------------------------


def test_the_schema_takes_the_example_and_names_every_setting() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(JOB), schema)
    jsonschema.validate(yaml.safe_load(MIXED), schema)
    text = json.dumps(schema)
    for program in PROGRAMS:
        for part, name, _ in usage_of(program):
            if part.home and name not in ("paths", "format", "column"):
                assert f'"{name}"' in text
    assert not re.search(r"\{[a-z]+\.", text)


@pytest.mark.parametrize(
    "change",
    [("privacy:", "privcy:"), ("epsilon: 1,", "epsilon: true,"), ("frequency: v", "frequences: v")],
)
def test_the_schema_refuses_what_the_reader_refuses(change: tuple[str, str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    changed = yaml.safe_load(JOB.replace(*change))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, job_schema())
    with pytest.raises(SettingError):
        jobs_of(changed)


@pytest.mark.parametrize("program", ["frequency", "train"])
def test_a_job_that_would_run_is_not_printed_for_a_dry_run(program: str, capsys: Any) -> None:
    assert program_of(usage_of(program)).main(["--dry-run", "--print-job"]) == 2
    printed = capsys.readouterr()
    assert not printed.out and "--dry-run and --print-job exclude each other" in printed.err


def test_the_command_says_what_it_is(capsys: Any) -> None:
    assert job_runs.main(["--help"]) == 0
    assert "--print-job" in capsys.readouterr().out
    assert job_runs.main([]) == 2
    capsys.readouterr()
    assert job_runs.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == job_schema()
    assert "run" in cli.group.list_commands(None)  # type: ignore[arg-type]
