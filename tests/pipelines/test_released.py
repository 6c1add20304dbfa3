"""Releases from Python: on any table, the same in every respect as the program on a file."""

from __future__ import annotations

import doctest
import inspect
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_ldp
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import mean as mean_program
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE
from beam_ldp.pipelines.usage import frequency, heavy_hitters, mean, user_mean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release import charging
from beam_ldp.release import python as released
from beam_ldp.release.gates import NothingReleasedError, NotPublishedError
from beam_ldp.release.inputs.tables import arrow_table, held
from tests.packaging.doc_blocks import BLOCK

pytestmark = pytest.mark.e2e

USERS = 2_000
ASKED: dict[str, Any] = {
    "user_id": "uid", "local_epsilon": 2, "delta": 1e-6, "expected_users": USERS, "quiet": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go: nothing may stay there."""
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture
def people() -> pa.Table:
    """Each once, with a text, two numbers and a country."""
    draw = np.random.default_rng(7)
    return pa.table(
        {
            "uid": np.arange(USERS),
            "word": np.array(["a", "b", "c"])[draw.integers(3, size=USERS)],
            "age": draw.integers(18, 90, size=USERS),
            "shown": draw.integers(0, 2, size=USERS).astype(float),
            "land": np.array(["x", "y"])[draw.integers(2, size=USERS)],
        }
    )


def ledger_at(path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{path}")
    made.set_budget("visits", epsilon=9.0, delta=1e-5, local_epsilon=4.0)
    return made


# The same as the program ---------------------------------------------------------------------


def test_with_the_key_a_table_gives_what_the_program_gives_on_its_file(
    people: pa.Table, tmp_path: Path
) -> None:
    """Bit for bit, under one identity; the ledger takes it as the same release, and charges once.

    The program first, then the table, then the file from Python, then the table once more.
    """
    pq.write_table(people, tmp_path / "people.parquet")
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    (tmp_path / "key").write_bytes(bytes(range(32)))
    ledger = ledger_at(tmp_path / "privacy.db")
    told = {
        "dataset": "visits", "release_id": "week 1", "memoize_key_file": tmp_path / "key",
        "ledger": ledger.url,
    }  # fmt: skip
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in told.items()]
    assert main(
        [f"--input={tmp_path}/people.parquet", "--column=word", f"--domain={tmp_path}/words.txt",
         f"--output={tmp_path}/out", "--user-id=uid", "--local-epsilon=2", "--delta=1e-6",
         f"--expected-users={USERS}", "--no-mlflow", *flags]
    ) == DONE  # fmt: skip
    first = pq.read_table(tmp_path / "out/estimates.parquet").replace_schema_metadata()
    status = ledger.status("visits")

    inputs = (people, tmp_path / "people.parquet", people.to_pandas())
    for data in inputs:
        found = beam_ldp.frequencies(data, "word", ["a", "b", "c"], **ASKED, **told)
        assert found.to_arrow().equals(first)
        assert found.privacy.publication == 2  # the same reports again, however often
        assert found.privacy.identity_digest in (tmp_path / "out/privacy.json").read_text()
    after = BudgetLedger(ledger.url).status("visits")
    assert (after.spent, after.local_spent) == (status.spent, status.local_spent) == (
        pytest.approx(after.spent), 2.0,
    )  # fmt: skip

    changed = people.set_column(1, "word", pa.array(["a"] * USERS))
    with pytest.raises(NothingReleasedError, match="the reports differ"):
        beam_ldp.frequencies(changed, "word", ["a", "b", "c"], **ASKED, **told)


def test_fresh_noise_is_charged_each_time_until_the_budget_refuses(
    people: pa.Table, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path / "privacy.db")
    charged = {"dataset": "visits", "ledger": ledger.url, **ASKED}
    one = beam_ldp.frequencies(people, "word", ["a", "b"], run_id="one", **charged)
    assert one.privacy.charged == "yes" and "charged" in one.statement
    with pytest.raises(ValueError, match="run"):
        beam_ldp.frequencies(people, "word", ["a", "b"], run_id="one", **charged)
    two = beam_ldp.means(people, "age", ranges=(18, 90), **charged)
    assert not one.to_arrow().equals(two.to_arrow())
    assert BudgetLedger(ledger.url).status("visits").local_spent == 4.0
    with pytest.raises(NothingReleasedError, match="local"):
        beam_ldp.means(people, "age", ranges=(18, 90), **charged)
    assert BudgetLedger(ledger.url).status("visits").local_spent == 4.0


def test_what_the_ledger_did_not_take_is_kept_for_later(
    people: pa.Table, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from beam_ldp.pipelines.cli import group

    ledger = ledger_at(tmp_path / "privacy.db")
    charged = {"dataset": "visits", "ledger": ledger.url, **ASKED}

    def away(*_: Any) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch, pytest.raises(NotPublishedError, match="finalize") as told:
        patch.setattr(charging, "settle", away)
        beam_ldp.frequencies(people, "word", ["a", "b"], **charged)
    place = str(told.value).split("beam-ldp finalize ")[1].split("`")[0].removesuffix(" settles")
    done = CliRunner().invoke(group, ["finalize", place, "--ledger", ledger.url])
    assert done.exit_code == DONE, done.output
    assert (Path(place) / "estimates.csv").exists()
    for path in sorted(scratch.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def test_an_output_holds_the_same_files_and_is_not_replaced_unasked(
    people: pa.Table, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = {"ranges": {"age": (18, 90), "shown": (0, 1)}, "output": out, "no_mlflow": True}
    found = beam_ldp.means(people, ["age", "shown"], **ASKED, **asked)
    assert found.output == str(out)
    assert (out / "privacy.md").read_text() == found.statement
    kept = pq.read_table(out / "estimates.parquet").replace_schema_metadata()
    assert kept.equals(found.to_arrow())
    with pytest.raises(ValueError, match="^output .* exists; overwrite replaces it"):
        beam_ldp.means(people, ["age", "shown"], **ASKED, **asked)
    pq.write_table(people, tmp_path / "people.parquet")
    (tmp_path / "ranges.csv").write_text("column,low,high\nage,18,90\nshown,0,1\n")
    flags = [f"--input={tmp_path}/people.parquet", "--column=age,shown", "--user-id=uid",
             f"--ranges={tmp_path}/ranges.csv", "--local-epsilon=2", "--delta=1e-6",
             f"--expected-users={USERS}", "--no-mlflow"]  # fmt: skip
    assert mean_program.main([*flags, f"--output={tmp_path}/again"]) == DONE
    files = {path.name for path in out.iterdir()}
    assert files == {path.name for path in (tmp_path / "again").iterdir()}


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the docstrings, and the ten lines of the README."""
    assert doctest.testmod(released).failed == 0
    page = Path(__file__).parents[2] / "README.md"
    (code,) = BLOCK.findall(page.read_text())
    monkeypatch.chdir(tmp_path)
    exec(code[0], {})
    assert (tmp_path / "answers.png").exists()


# Tables ---------------------------------------------------------------------


class _Polars:
    """As Polars gives itself: large texts."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow(self) -> pa.Table:
        fields = [
            field.with_type(pa.large_string()) if field.type == pa.string() else field
            for field in self._table.schema
        ]
        return self._table.cast(pa.schema(fields))


class _Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class _Interchange:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, **how: Any) -> Any:
        return self._table.__dataframe__(**how)


FORMS = {
    "arrow": lambda table: table,
    "reader": lambda table: table.to_reader(),
    "batch": lambda table: table.to_batches()[0],
    "pandas": lambda table: table.to_pandas(),
    "categories": lambda table: table.to_pandas().astype({"word": "category"}),
    "columns": lambda table: table.to_pydict(),
    "polars": _Polars,
    "stream": _Stream,
    "interchange": _Interchange,
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_every_kind(people: pa.Table, form: str) -> None:
    """The same people give the same estimate, whatever holds them: noise is simulated."""
    asked = {**ASKED, "seed": 1}
    found = beam_ldp.frequencies(FORMS[form](people), "word", ["a", "b", "c"], **asked)
    expected = beam_ldp.frequencies(people, "word", ["a", "b", "c"], **asked)
    assert found.to_arrow().equals(expected.to_arrow())
    assert found.privacy.num_reports == USERS and found.privacy.num_bad_rows == 0
    assert found.privacy.simulated


def test_rows_of_one_person_and_bad_rows(people: pa.Table) -> None:
    """Ids that pandas made floats, a person twice, nulls: as the program counts them."""
    frame = people.to_pandas()
    frame.loc[0, "uid"] = None
    frame.loc[1, "word"] = None
    frame = pd.concat([frame, frame[100:200]])
    found = beam_ldp.frequencies(frame, "word", ["a", "b", "c"], **ASKED)
    assert (found.privacy.num_reports, found.privacy.num_bad_rows) == (USERS - 2, 2)
    with pytest.raises(NothingReleasedError, match="min_reports is 2,000"):
        beam_ldp.frequencies(frame, "word", ["a", "b", "c"], min_reports=USERS, **ASKED)


def test_two_threads_do_not_mix_their_tables(people: pa.Table) -> None:
    found: dict[int, int] = {}

    def release(users: int) -> None:
        asked = {**ASKED, "expected_users": users}
        done = beam_ldp.frequencies(people.slice(0, users), "word", ["a"], **asked)
        found[users] = done.privacy.num_reports

    threads = [threading.Thread(target=release, args=(users,)) for users in (500, 1500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {500: 500, 1500: 1500}


def test_several_questions_groups_and_numbers_in_bins(people: pa.Table) -> None:
    two = beam_ldp.frequencies(
        people, ["word", "land"], {"word": ["a", "b", "c"], "land": Domain(("x", "y"))}, **ASKED
    )
    assert set(two.to_arrow().column("question").to_pylist()) == {"word", "land"}
    grouped = beam_ldp.frequencies(
        people, "word", Domain(("a", "b"), "rest"), group_by="land", groups=["x", "y"],
        **{**ASKED, "min_reports": 500},
    )  # fmt: skip
    assert grouped.to_arrow().column("value").to_pylist() == ["a", "b", "rest"] * 2
    ages = beam_ldp.frequencies(
        people, "age", bins=[10, 30, 50, 90], quantiles=[0.25, 0.5], between=(30, 50), **ASKED
    )
    assert ages.to_arrow().num_rows >= 3 and "quantile" in repr(ages)


# What one looks at ---------------------------------------------------------------------


def test_what_was_released_can_be_looked_at(
    people: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {**ASKED, "quiet": False, "local_epsilon": None, "epsilon": 1, "max_local_epsilon": 4}
    found = beam_ldp.frequencies(people, "word", ["a", "b", "<b>"], **asked)
    told = capsys.readouterr()
    assert not told.out and found.plan in " ".join(told.err.split())
    assert "local epsilon" in repr(found) and "95 % interval" in repr(found)
    page = found._repr_html_()
    assert page.startswith("<pre") and "&lt;b&gt;" in page and "<b>" not in page
    assert found.plot().axes[0].get_xlabel() == "people"
    assert found.statement.startswith("# Privacy statement")
    frame = found.to_pandas()
    assert list(frame["value"]) == ["a", "b", "<b>", "other"]
    assert pa.table(found).equals(found.to_arrow())  # as Polars and others take it


# What is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"epsilonn": 1}, TypeError, "did you mean epsilon"),
        ({"delta": None}, ValueError, "^delta is missing"),
        (
            {"delta": None, "expected_users": None},
            ValueError,
            "^missing: delta, expected_users or min_reports$",
        ),
        (
            {"local_epsilon": None, "domain": ()},
            ValueError,
            "^missing: domain or bins, epsilon or local_epsilon$",
        ),
        ({"delta": 2}, ValueError, "^delta must lie in"),
        ({"epsilon": 1}, ValueError, "one of epsilon .* and local_epsilon"),
        ({"expected_users": "many"}, ValueError, "^expected_users must be a whole number"),
        ({"expected_users": None}, ValueError, "give expected_users or min_reports"),
        ({"ledger": "sqlite:///x.db"}, ValueError, "dataset must name the data set"),
        ({"memoize_key_file": "key"}, ValueError, "memoize_key_file needs user_id and release_id"),
        ({"domain": ["other"]}, ValueError, "see other_label"),
        ({"domain": ["a\nb"]}, ValueError, "^domain must hold values"),
        ({"domain": ["a", "a"]}, ValueError, "^domain must hold distinct values$"),
        ({"domain": {"b": ["a"]}}, ValueError, "a list for each column"),
        ({"domain": ()}, ValueError, "^domain is missing"),
        ({"domain": [None, "a"]}, ValueError, "^domain must hold text.*place 0 is of type None"),
        ({"groups": ["a", 1.0]}, ValueError, "^groups must hold text.*place 1 is of type float"),
        ({"domain": {"word": [b"a"]}}, ValueError, "^domain must hold text.*of type bytes"),
        ({"column": "wordd"}, ValueError, "^column wordd.*did you mean word"),
        ({"data": 3}, TypeError, "^data must be a path, paths, or a table"),
        ({"data": "/none.csv"}, ValueError, "^data /none.csv: no file matches"),
        ({"stream": True}, TypeError, "unknown argument stream"),
    ],
)
def test_errors_name_the_argument(
    people: pa.Table, asked: dict[str, Any], error: type[Exception], said: str
) -> None:
    told = {**ASKED, "data": people, "column": "word", "domain": ["a"], **asked}
    with pytest.raises(error, match=said):
        beam_ldp.frequencies(told.pop("data"), told.pop("column"), told.pop("domain"), **told)


DOORS = {
    "frequencies": (frequency, {"data", "column", "domain"}),
    "means": (mean, {"data", "columns", "ranges"}),
    "user_means": (user_mean, {"data", "columns", "ranges"}),
    "heavy_hitters": (heavy_hitters, {"data", "column"}),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_signature_names_every_setting(door: str) -> None:
    """So that editors and `help` know them; `range` is said by `ranges`."""
    usage, named = DOORS[door]
    spelled = set(inspect.signature(getattr(beam_ldp, door)).parameters)
    offered = {name.replace("column", "columns") if "ranges" in named else name
               for name in released._arguments(usage.USAGE)}  # fmt: skip
    assert spelled == (offered - {"range"}) | named | {"output", "quiet"}


def test_a_person_with_many_rows_and_words_that_nobody_listed(people: pa.Table) -> None:
    twice = pa.concat_tables([people, people])
    of_users = beam_ldp.user_means(
        twice, "age", ranges=(0, 100), rows_per_user=2, sigma=5, **{**ASKED, "local_epsilon": 4}
    )
    assert of_users.privacy.num_reports == USERS and of_users.to_arrow().num_rows == 1
    same = people.append_column("same", pa.array(["x"] * USERS))
    words = beam_ldp.heavy_hitters(
        same, "same", max_bytes=1, code_bits=16, **{**ASKED, "local_epsilon": 8}
    )
    assert "x" in words.to_arrow().column("word").to_pylist()


def test_numbers_and_arrays_of_numpy_and_pandas_are_arguments() -> None:
    """As Python's own, also inside a mapping or a tuple."""
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]})
    for given, plain in (
        (np.log(3), float(np.log(3))), (np.int64(600), 600), (np.array(["a", "b"]), ["a", "b"]),
        (pd.Series(["a"]), ["a"]), (frame.columns[1:], ["b"]), ({"x": np.float64(1)}, {"x": 1.0}),
        ((np.float64(0), 4), (0.0, 4)), ("text", "text"), (None, None),
    ):  # fmt: skip
        found = released.of_python(given)
        assert found == plain and type(found) is type(plain)


def names_of_views() -> pa.Array:
    """A dictionary of text that stands elsewhere: such types came with Arrow 16."""
    return pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), pa.array(["a", "b"], pa.string_view())
    )


@pytest.mark.parametrize(
    "column",
    [
        *([names_of_views()] if hasattr(pa, "string_view") else []),
        pa.RunEndEncodedArray.from_arrays(
            [1, 2], ["a", "b"], pa.run_end_encoded(pa.int32(), pa.string())
        ),
    ],
)
def test_types_that_parquet_does_not_give_back_are_named(column: pa.Array) -> None:
    with (
        pytest.raises(ValueError, match="^column c has the type .*cast it"),
        held(pa.table({"c": column})),
    ):
        pass


def test_a_mean_of_no_numbers_says_so(people: pa.Table) -> None:
    table = people.append_column("wait", pa.array([3] * people.num_rows, pa.duration("s")))
    with pytest.raises(ValueError, match="column wait: .*wrong type: .*means and bins take"):
        beam_ldp.means(table, "wait", ranges=(0, 10), **ASKED)


def test_what_is_no_table_is_not_quoted() -> None:
    with pytest.raises(ValueError, match="hold values of one type") as told:
        arrow_table({"word": ["a secret", 7, b"x"]})
    assert "secret" not in str(told.value)
