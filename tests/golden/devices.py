"""What devices are asked and send, form by form; what collectors make of files that were kept.

Each form of `release.json` has files in `devices/`, as the version that froze them wrote them:
`FORM.json` the release, `FORM.ldp` its envelopes one after the other, in the order of their bytes.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden import frozen

KEPT = Path(__file__).parent / "devices"
KEEPING = os.environ.get(frozen.RECORD) == frozen.OLD
PEOPLE = 60
OVERHEAD = 48  # bytes of an envelope that are no report: docs/wire-format.md

_LISTS = ("--column=hair", "--domain=hair.txt")
_MORE_LISTS = ("--column=eyes", "--domain=eyes.txt")
_NUMBERS = ("--column=age,steps", "--local-epsilon=4")
_LEVELS = ("--levels=2,1", "--level-secret=key")


@dataclass(frozen=True)
class Form:
    """One form of `release.json`.

    Attributes:
        asks: flags of `randomize`, besides those of every release; `()` where there are others.
        reads: flags of `collect`.
        memoized: whether a key decides what is sent; else every run sends other bytes.
    """

    asks: tuple[str, ...]
    reads: tuple[str, ...] = ()
    memoized: bool = True


FORMS = {
    "list": Form((*_LISTS, "--local-epsilon=2"), ("--domain=hair.txt",)),
    "list_by_sets": Form(
        (*_LISTS, "--local-epsilon=1", "--mechanism=SubsetSelection"), ("--domain=hair.txt",)
    ),
    "list_for_a_target": Form(
        (*_LISTS, "--epsilon=1", "--delta=1e-6", f"--expected-users={PEOPLE}"),
        ("--domain=hair.txt", "--epsilon=1"),
    ),
    "list_in_groups": Form(
        (*_LISTS, "--local-epsilon=2", "--group-by=town", "--groups=towns.txt"),
        ("--domain=hair.txt", "--groups=towns.txt", "--min-reports=20"),
    ),
    "one_of_two_lists": Form(
        (*_LISTS, *_MORE_LISTS, "--local-epsilon=2"), ("--domain=hair.txt", "--domain=eyes.txt")
    ),
    "two_lists": Form(
        (*_LISTS, *_MORE_LISTS, "--local-epsilon=4", "--design=all"),
        ("--domain=hair.txt", "--domain=eyes.txt", "--honest-fraction=0.9"),
    ),
    "bins": Form(("--column=age", "--bins=0:90:3", "--local-epsilon=2")),
    "tree": Form(
        ("--column=age", "--bins=0:90:9", "--quantiles=0.5", "--between=30:60", "--fan-out=3",
         "--local-epsilon=3"),
        ("--quantiles=0.25,0.75", "--between=-inf:30"),
    ),
    "mean_in_a_range": Form(("--column=age", "--range", "0", "90", "--local-epsilon=2")),
    "mean_in_ranges": Form((*_NUMBERS, "--range", "0", "90", "--range", "0", "50")),
    "mean_in_a_norm": Form((*_NUMBERS, "--norm=l2", "--radius=100", "--mechanism=L2Mean")),
    "levels": Form((*_LISTS, *_LEVELS), ("--domain=hair.txt",)),
    "recoverable": Form(
        (*_LISTS, "--local-epsilon=2", "--recover-key-file=week.key"), ("--domain=hair.txt",), False
    ),
    "four_in_an_envelope": Form(
        (*_LISTS, "--local-epsilon=2", "--reports-per-envelope=4"), ("--domain=hair.txt",), False
    ),
}  # fmt: skip
COLLECTED = ("--delta=1e-6", "--no-mlflow")


def write_inputs(folder: Path) -> None:
    """People, the public lists, and a key."""
    hair, towns = ("red", "fair", "dark"), ("north", "south")
    rows = [
        f"{i},{hair[i % 3]},{'ab'[i % 2]},{37 * i % 90},{11 * i % 50},{towns[i % 8 > 4]}"
        for i in range(PEOPLE)
    ]
    (folder / "people.csv").write_text("\n".join(["uid,hair,eyes,age,steps,town", *rows]) + "\n")
    for name, values in (("hair", hair[:2]), ("eyes", "ab"), ("towns", towns)):
        (folder / f"{name}.txt").write_text("".join(f"{value}\n" for value in values))
    write_secret(folder / "key")


def write_secret(path: Path, content: bytes = bytes(range(32))) -> None:
    """A file that its owner alone reads."""
    path.write_bytes(content)
    path.chmod(0o600)


def ask(form: Form, output: str) -> frozen.Ran:
    """What devices do with the people of `write_inputs`."""
    return frozen.command(
        "randomize", "--input=people.csv", "--user-id=uid", "--dataset=them", "--release-id=week",
        *form.asks, *(("--memoize-key-file=key",) if form.memoized else ()), f"--output={output}",
    )  # fmt: skip


def envelopes(data: bytes, release: dict[str, Any]) -> list[bytes]:
    """Whole envelopes that follow each other, in the order of their bytes: docs/wire-format.md."""
    each, found = -(-release["bits_per_report"] // 8), []
    while data:
        size = OVERHEAD + each * int.from_bytes(data[40:44], "big")
        found.append(data[:size])
        data = data[size:]
    return sorted(found)


def sent_to(folder: Path, release: dict[str, Any]) -> list[bytes]:
    """The envelopes in a folder."""
    return envelopes(b"".join(path.read_bytes() for path in folder.glob("*.ldp")), release)


def put_kept(name: str, folder: Path) -> None:
    """A folder of reports as `randomize` leaves it, of the files that were kept."""
    folder.mkdir(parents=True)
    (folder / "release.json").write_bytes((KEPT / f"{name}.json").read_bytes())
    (folder / "reports-00000.ldp").write_bytes((KEPT / f"{name}.ldp").read_bytes())


# What an output says -------------------------------------------------------------------------

PRICES = (
    "local_epsilon", "epsilon", "epsilon_lower", "epsilon_class_lower", "epsilon_if_known",
    "epsilon_if_visible", "charged_local_epsilon", "delta", "method", "proof_status", "num_reports",
    "num_bad_rows", "min_reports", "honest_reports", "smallest_batch", "exactness",
    "bits_per_report", "mean_squared_error", "readers", "identity_digest", "report_digest",
    "publication",
)  # fmt: skip
PERSISTED = ("identity", "mechanism", "event", "certificate")  # whole: ledgers and auditors read it


def numbers_of(record: dict[str, Any]) -> dict[str, Any]:
    """Numbers and persisted parts of a `privacy.json`, whatever its keys are called one day."""
    told = {name: record[name] for name in PRICES if name in record}
    told |= {name: digest_of(record[name]) for name in PERSISTED if name in record}
    if record.get("parts"):
        told["parts"] = [
            {k: v for k, v in part.items() if isinstance(v, (int, float, str))}
            for part in record["parts"]
        ]
    return told


def digest_of(value: Any) -> str:
    """Of JSON, keys in any order, numbers as they are rounded in goldens."""
    return frozen.digest(json.dumps(_rounded(value), sort_keys=True))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def table(path: Path) -> Iterator[list[Any]]:
    """The cells of a table; the first row are its columns."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.reader(file):
            yield [_cell(text) for text in row]


def _cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def output_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers of an output, and what people read of it."""
    record = json.loads((folder / "privacy.json").read_text("utf-8"))
    tables = {path.name: list(table(path)) for path in sorted(folder.glob("*.csv"))}
    numbers: dict[str, Any] = {"files": frozen.tree(folder), "price": numbers_of(record)}
    numbers |= {name: rows[1:] for name, rows in tables.items()}
    for path in sorted(folder.glob("*.txt")):
        numbers[path.name] = path.read_text("utf-8")
    text: dict[str, Any] = {name: rows[0] for name, rows in tables.items()}
    text |= {"privacy.json": list(record), "warnings": record.get("warnings")}
    text["privacy.md"] = (folder / "privacy.md").read_text("utf-8")
    return numbers, text


def keep_record(name: str, folder: Path) -> None:
    """Where goldens are recorded, keep a `privacy.json` for those who read it later."""
    if KEEPING:
        place = KEPT.with_name("stores") / "records" / f"{name}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((folder / "privacy.json").read_bytes())
