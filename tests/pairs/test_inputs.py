"""One file in many forms, published a second time: identical, or refused by check and by the run.

The same people under the same release and key: what can be read gives the same reports, for free.
What cannot be read in full gives nothing, and costs nothing.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import check, frequency, programs

pytestmark = pytest.mark.e2e

PEOPLE = 6000  # 90 kB: check reads 64 kB
ANSWERS = ("content", "neutre", "déçu")
ROWS = [(f"{i}", ANSWERS[min(2, i % 10)]) for i in range(PEOPLE)]
TEXT = "uid,answer\n" + "".join(f"{uid},{answer}\n" for uid, answer in ROWS)
LAST = "5999,déçu\n"
SAME, REFUSED, AT_THE_END = programs.DONE, programs.MISUSED, programs.NOTHING_RELEASED

# What is written, how the run ends, and how check does, which may have seen a part.
FORMS: dict[str, tuple[str, bytes, int, int, tuple[str, ...]]] = {
    "UTF-8": ("a.csv", TEXT.encode(), SAME, SAME, ()),
    "byte order mark": ("a.csv", b"\xef\xbb\xbf" + TEXT.encode(), SAME, SAME, ()),
    "gzip": ("a.csv.gz", gzip.compress(TEXT.encode()), SAME, SAME, ()),
    "Windows line ends": ("a.csv", TEXT.replace("\n", "\r\n").encode(), SAME, SAME, ()),
    "missing values": (
        "a.csv", TEXT.encode() + b"".join(b"%d,\n" % i for i in range(PEOPLE, 2 * PEOPLE)), SAME,
        SAME, (),
    ),
    "a few rows that are torn": ("a.csv", TEXT.encode() + b"7000\n" * 60, SAME, SAME, ()),
    "Latin-1": ("a.csv", TEXT.encode("latin-1"), REFUSED, REFUSED, ("iconv -f WINDOWS-1252",)),
    "Latin-1, packed": (
        "a.csv.gz", gzip.compress(TEXT.encode("latin-1")), REFUSED, REFUSED, ("is not UTF-8",)
    ),
    "Latin-1, one answer": (
        "a.csv", TEXT.removesuffix(LAST).encode() + LAST.encode("latin-1"), AT_THE_END, SAME,
        ("line 6001 of", "a.csv is not UTF-8", "iconv -f WINDOWS-1252"),
    ),
    "UTF-16": ("a.csv", TEXT.encode("utf-16"), REFUSED, REFUSED, ("iconv -f UTF-16",)),
    "rows that are torn": (
        "a.csv", TEXT.encode() + b"7000\n" * 61, AT_THE_END, SAME,
        ("61 of 6,061 rows that hold a value cannot be read (wrong number of fields: 61)",),
    ),
    "rows that are torn, at the beginning": (
        "a.csv", TEXT.replace("\n", "\n7000\n" * 600, 1).encode(), REFUSED, REFUSED,
        ("wrong number of fields", "--max-bad-rows is 0.01"),
    ),
}  # fmt: skip


def flags(folder: Path, name: str, output: str, memoized: bool = True) -> list[str]:
    noise = [f"--memoize-key-file={folder}/key", "--release-id=week-1"] if memoized else []
    return [
        *noise,
        f"--input={folder}/{name}", "--column=answer", "--user-id=uid",
        f"--domain={folder}/list.txt", "--local-epsilon=2", "--delta=1e-6", "--min-reports=1000",
        "--dataset=them",
        f"--ledger=sqlite:///{folder}/privacy.db", f"--output={folder}/{output}", "--no-mlflow",
    ]  # fmt: skip


def publish(
    folder: Path, name: str, output: str, *more: str, memoized: bool = True
) -> tuple[int, str]:
    console = Console(width=1000, file=io.StringIO())
    code, _ = programs.run_flags(
        frequency.PROGRAM,
        [*flags(folder, name, output, memoized), *more],
        console,
        shown=False,
    )
    return code, console.file.getvalue()  # type: ignore[attr-defined]


def spent(folder: Path) -> tuple[float, float]:
    status = BudgetLedger(f"sqlite:///{folder}/privacy.db").status("them")
    return status.committed, status.local_spent


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first publication, of a Parquet file."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "list.txt").write_text("\n".join(ANSWERS), encoding="utf-8")
    (folder / "key").write_bytes(bytes(32))
    (folder / "key").chmod(0o600)
    BudgetLedger.create(f"sqlite:///{folder}/privacy.db").set_budget(
        "them", epsilon=9.0, delta=1e-5, local_epsilon=9.0
    )
    uids, answers = zip(*ROWS)
    pq.write_table(pa.table({"uid": uids, "answer": answers}), folder / "a.parquet")
    assert publish(folder, "a.parquet", "first")[0] == programs.DONE
    return folder


@pytest.fixture
def world(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "world"))


def judge(world: Path, name: str, codes: tuple[int, int], said: tuple[str, ...]) -> None:
    before = spent(world)
    by_check = check.main(["frequency", *flags(world, name, "second"), "--format=json"])
    code, told = publish(world, name, "second")
    assert (code, by_check) == codes, told
    assert spent(world) == before
    assert all(part in told for part in said), told
    if code != SAME:
        assert not (world / "second").exists() and not list(world.glob(".second*"))
        return
    tables = [(world / output / "estimates.csv").read_bytes() for output in ("first", "second")]
    assert tables[0] == tables[1]


QUICK = ("UTF-8", "gzip", "missing values", "Latin-1", "Latin-1, one answer", "rows that are torn")


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=[] if f in QUICK else [pytest.mark.slow]) for f in FORMS]
)
def test_the_same_people_in_another_form(form: str, world: Path) -> None:
    name, content, code, by_check, said = FORMS[form]
    (world / name).write_bytes(content)
    judge(world, name, (code, by_check), said)


LOGS = {"Delta": "_delta_log/0.json", "Iceberg": "metadata/v1.metadata.json", "Hudi": ".hoodie/x"}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "Delta" else [pytest.mark.slow]) for k in LOGS]
)
def test_a_folder_before_and_after_it_became_a_table(kind: str, world: Path) -> None:
    """A folder of files is read; as that of a table it is refused, and its snapshot is read."""
    (world / "t/data").mkdir(parents=True)
    shutil.copy(world / "a.parquet", world / "t/data/f.parquet")
    (world / "t" / LOGS[kind]).parent.mkdir()
    (world / "t" / LOGS[kind]).touch()
    judge(world, "t/data", (REFUSED, REFUSED), ("is the folder of a table", "export a snapshot"))
    shutil.copytree(world / "t/data", world / "snapshot")
    judge(world, "snapshot", (SAME, SAME), ())


def test_a_refused_release_costs_what_people_were_asked_and_may_be_allowed(world: Path) -> None:
    """Fresh noise: people sent reports before the refusal, which stay charged locally; with
    --max-bad-rows the same file is released, and its record counts what it lost."""
    name, content, *_ = FORMS["rows that are torn"]
    (world / name).write_bytes(content)
    before = spent(world)
    code, said = publish(world, name, "second", memoized=False)
    assert code == AT_THE_END and "rows that hold a value cannot be read" in said
    assert spent(world) == (before[0], before[1] + 2.0)
    code, said = publish(world, name, "second", "--max-bad-rows=0.02", memoized=False)
    assert code == programs.DONE, said
    assert "61 rows cannot be read (wrong number of fields: 61)" in said
    assert "the result is biased, and no error bar shows it" in said
    record = json.loads((world / "second/privacy.json").read_text())
    assert (record["num_reports"], record["num_bad_rows"]) == (PEOPLE, 61)
    assert spent(world)[0] > before[0]
