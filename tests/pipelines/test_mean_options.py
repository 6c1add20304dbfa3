"""The flags of the mean program, and what the launcher finds out about the columns."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import usage_of
from beam_ldp.release.inputs.line_formats import read_json_lines
from beam_ldp.release.inputs.previews import Field, choose_fields, dimension_of, read_fields
from beam_ldp.release.inputs.sources import InputFileError, RowGroups, read_row_groups
from beam_ldp.release.job_files import jobs_of
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job

USAGE = usage_of("mean")
pytestmark = pytest.mark.exact

CENTRAL = ["--epsilon=1", "--delta=1e-8", "--expected-users=1e5"]
BALL = ["--norm=l2", "--radius=2"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "x.csv").write_text("u,a,b\n1,0,0\n")
    return [f"--input={tmp_path}/x.csv", "--column=a,b", f"--output={tmp_path}/out"]


def settings_of(flags: list[str]) -> Job:
    return bound(USAGE, read_flags(USAGE, flags)).job


def test_a_range_may_be_negative_in_any_spelling(files: list[str]) -> None:
    for low in ("-1", "-1.5", "-.5", "-1e3", "-2E-3"):
        settings = settings_of([*files, *CENTRAL, "--range", low, "1e3"])
        assert settings.question.range == (float(low), 1000.0)


# Rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "column", "delta", "output"])
def test_what_is_needed_is_named(files: list[str], name: str) -> None:
    kept = [flag for flag in [*files, *CENTRAL, *BALL] if not flag.startswith(f"--{name}=")]
    with pytest.raises(SettingError, match=f"--{name} is missing"):
        settings_of(kept)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (CENTRAL, "--radius is missing"),
        ([*CENTRAL, "--norm=l1"], "--radius is missing"),
        ([*CENTRAL, "--norm=l3"], "--norm must be l2, l1, linf, binary or a number >= 1, got l3"),
        ([*CENTRAL, "--norm=0.5"], "number >= 1"),
        ([*CENTRAL, "--norm=l2", "--radius=1e300"], r"--radius must lie in \[1e-100, 1e\+100\]"),
        (
            [*CENTRAL, "--norm=binary", "--radius=1"],
            "--radius cannot be combined with --norm binary",
        ),
        (
            [*CENTRAL, "--range", "0", "1", "--radius=1"],
            "cannot be combined with --norm and --radius",
        ),
        ([*CENTRAL, "--ranges=r.csv", "--norm=l2"], "--ranges bounds each number"),
        ([*CENTRAL, "--range", "0", "1", "--ranges=r.csv"], "exclude each other"),
        ([*CENTRAL, *BALL, "--shape=8"], "--shape must be HEIGHTxWIDTH"),
        ([*CENTRAL, *BALL, "--shape=0x8"], "--shape must be"),
        ([*CENTRAL, *BALL, "--top=0"], "--top"),
        ([*CENTRAL, *BALL, "--dimension=0"], "--dimension must lie in"),
        ([*CENTRAL, *BALL, "--one-row-each"], "--one-row-each needs --user-id"),
        ([*CENTRAL, *BALL, "--local-epsilon=1"], "one of --epsilon"),
        ([*BALL, "--epsilon=1", "--delta=1e-8"], "--epsilon needs --expected-users"),
        ([*CENTRAL, *BALL, "--model=local", "--local-epsilon=1"], "local they mean the same"),
        ([*CENTRAL, *BALL, "--model=local", "--allow-over-target"], "needs a central target"),
        ([*BALL, "--epsilon=9", "--model=local"], "--epsilon must be at most 8, got 9"),
        ([*CENTRAL, *BALL, "--input-format=text"], "cannot be used with text"),
    ],
)
def test_rules(files: list[str], extra: list[str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        settings_of([*files, *extra])


@pytest.mark.parametrize("flag", ["--norm=l3", "--norm=0.5", "--norm=nan", "--radius=0",
                                  "--radius=inf", "--range=1", "--outside=drop", "--model=central",
                                  "--bad-rows=other", "--dimension=1.5"])  # fmt: skip
def test_a_value_of_the_wrong_kind_names_its_flag(flag: str) -> None:
    with pytest.raises(SettingError, match=flag.split("=")[0]):
        read_flags(USAGE, [flag])


def test_defaults(files: list[str]) -> None:
    settings = settings_of([*files, *CENTRAL, *BALL])
    assert (
        settings.question.column == ("a,b",)
        and settings.question.norm == "l2"
        and settings.question.radius == 2.0
    )
    assert settings.min_reports == 90_000 and settings.sampling == "fixed"
    assert settings.question.outside == "clip" and settings.bad_rows_leave_a_trace
    assert settings.trusts_the_shuffler


def test_ranges_are_the_cube(files: list[str]) -> None:
    settings = settings_of([*files, *CENTRAL, "--range", "-5", "5e2"])
    assert settings.question.range == (-5.0, 500.0)
    assert (settings.question.norm, settings.question.radius) == ("linf", 1.0)


def test_any_power_is_a_norm(files: list[str]) -> None:
    assert settings_of([*files, *CENTRAL, "--norm=1.5", "--radius=1"]).question.norm == 1.5


def test_the_local_model_needs_no_delta_and_no_users(files: list[str]) -> None:
    settings = settings_of([*files, *BALL, "--model=local", "--epsilon=3", "--min-reports=10"])
    assert (
        settings.privacy.local_epsilon == 3.0
        and settings.privacy.epsilon is None
        and settings.privacy.delta == 0.0
    )
    assert not settings.trusts_the_shuffler and settings.planned_reports == 10


def test_the_draw_of_a_row_is_in_the_errors_unless_somebody_knows_better(files: list[str]) -> None:
    drawn = [*files, *CENTRAL, *BALL, "--user-id=u"]
    assert settings_of(drawn).sampling == "iid"
    assert settings_of([*drawn, "--one-row-each"]).sampling == "fixed"


def test_a_job_file_holds_settings_with_two_values(files: list[str]) -> None:
    content = {"questions": [{"mean": ["a", "b"], "range": [0, 1440], "one_row_each": False}]}
    ((program, given),) = jobs_of(content)
    assert program == "mean"
    flags = [flag for flag in files if "column" not in flag]
    settings = bound(USAGE, read_flags(USAGE, [*flags, *CENTRAL]).over(given)).job
    assert settings.question.range == (0.0, 1440.0) and settings.question.column == ("a", "b")


# Columns ----------------------------------------------------------------------------------------

FIELDS = [
    Field("uid"),
    Field("f0"),
    Field("f1"),
    Field("x,y"),
    Field("v", True, 3),
    Field("w", True),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["f0"], ["f0"]),
        (["f1,f0"], ["f1", "f0"]),
        (["f1", "f0"], ["f1", "f0"]),
        (["f*"], ["f0", "f1"]),
        (["f[1]"], ["f1"]),
        (["x,y"], ["x,y"]),
        (["*0, f1"], ["f0", "f1"]),
        (["?id,f0"], None),
        (["v"], ["v"]),
    ],
)
def test_columns_are_found_by_name_and_glob(wanted: list[str], found: list[str] | None) -> None:
    """In the order of the flag; a glob never means the user id."""
    if found is None:
        with pytest.raises(SettingError, match="no such column"):
            choose_fields(wanted, FIELDS, "uid")
        return
    assert [field.name for field in choose_fields(wanted, FIELDS, "uid")] == found


@pytest.mark.parametrize("wanted", [[""], [","], [" , "], []])
def test_no_column_at_all_is_said(wanted: list[str]) -> None:
    with pytest.raises(SettingError, match="--column must name a column"):
        choose_fields(wanted, FIELDS, None)


def test_many_columns_are_not_all_listed() -> None:
    fields = [Field(f"c{i}") for i in range(100)]
    with pytest.raises(SettingError, match=r"c7, … \(100 in all\)"):
        choose_fields(["zzz"], fields, None)


@pytest.mark.parametrize(
    ("names", "stated", "found"),
    [
        (["f0", "f1"], None, 2), (["f0", "f1"], 2, 2), (["v"], None, 3), (["v"], 3, 3),
        (["w"], 7, 7), (["f0"], None, 1), (["f0"], 5, 5), (["f0", "f1"], 3, None),
        (["v"], 4, None), (["w"], None, None), (["f0", "v"], None, None),
    ],
)  # fmt: skip
def test_dimension(names: list[str], stated: int | None, found: int | None) -> None:
    fields = [next(field for field in FIELDS if field.name == name) for name in names]
    if found is None:
        with pytest.raises(SettingError, match="--dimension|--column"):
            dimension_of(fields, stated)
        return
    assert dimension_of(fields, stated) == found


def test_the_fields_of_every_format(tmp_path: Path) -> None:
    byte = pa.int8()
    kinds = pa.schema(
        [("a", pa.float32()), ("v", pa.list_(byte, 5)), ("w", pa.list_(byte)),
         ("x", pa.large_list(byte))]
    )  # fmt: skip
    pq.write_table(pa.table({n: [] for n in kinds.names}, schema=kinds), tmp_path / "p")
    assert read_fields(str(tmp_path / "p"), "parquet", ",") == [
        Field("a"), Field("v", True, 5), Field("w", True), Field("x", True),
    ]  # fmt: skip
    (tmp_path / "c").write_bytes(b'\xef\xbb\xbf\n\na;"b;c"\r\n1;2\n')
    assert read_fields(str(tmp_path / "c"), "csv", ";") == [Field("a"), Field("b;c")]
    (tmp_path / "j.gz").write_bytes(gzip.compress(b'\n[1]\n{"a": 1, "v": [1, 2]}\n{"z": 1}\n'))
    assert read_fields(str(tmp_path / "j.gz"), "jsonl", ",") == [Field("a"), Field("v", True)]
    assert read_fields(str(tmp_path / "gone"), "text", ",") == [Field("value")]
    for kind in ("parquet", "csv", "jsonl"):
        with pytest.raises(InputFileError, match="gone"):
            read_fields(str(tmp_path / "gone"), kind, ",")
    (tmp_path / "empty").write_text("")
    assert read_fields(str(tmp_path / "empty"), "csv", ",") == []
    assert read_fields(str(tmp_path / "empty"), "jsonl", ",") == []


# Reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[1, 2.50, -3e-1]", "[1,2.50,-3e-1]"), ("[7]", "7"), ("[]", "[]"), ("null", None),
        ("5", "5"),
    ],
)  # fmt: skip
def test_lists_of_numbers_keep_the_text_that_they_were_written_as(
    value: str, text: str | None
) -> None:
    (lines,) = read_json_lines(io.BytesIO(f'{{"v": {value}}}\n'.encode()), ["v"], lists=True)
    assert lines.rows == [(text,)]


@pytest.mark.parametrize("value", ['["1"]', "[[1]]", "[null]", "[true]", "[NaN]", '[{"a": 1}]'])
def test_lists_of_something_else_are_problems(value: str) -> None:
    (lines,) = read_json_lines(io.BytesIO(f'{{"v": {value}}}\n'.encode()), ["v"], lists=True)
    assert lines.rows[0].reason in ("list of something else than numbers", "NaN")


def test_no_lists_where_a_value_is_one_field() -> None:
    (lines,) = read_json_lines(io.BytesIO(b'{"v": [1]}\n'), ["v"])
    assert lines.rows[0].reason == "field is neither text nor number"


def test_long_rows_come_in_short_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 784 numbers per row would take 3 GiB where one of single numbers takes 4 MiB."""
    from beam_ldp.release.inputs import sources

    monkeypatch.setattr(sources, "NUMBERS_PER_BATCH", 1000)
    pq.write_table(pa.table({"v": list(range(250))}), tmp_path / "x.parquet")
    with (tmp_path / "x.parquet").open("rb") as file:
        groups = RowGroups(0, 1, 0, 250)
        sizes = [b.num_rows for b in read_row_groups(file, groups, ["v"], row_numbers=10)]
        assert sizes == [100, 100, 50]
        assert [b.num_rows for b in read_row_groups(file, groups, ["z"], row_numbers=10)] == sizes
        assert [b.num_rows for b in read_row_groups(file, groups, ["v"])] == [250]
