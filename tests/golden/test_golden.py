"""What programs that run once gave before, they give now: numbers by themselves, words by themselves.

`cases.py` says what is run; `frozen.py`, in which world, and how goldens are made anew. A case is
run once, and asked for its numbers and for its words. Of `privacy.json` the numbers golden keeps
what is of `FACTS`, under the names of its first version: where a later version keeps them elsewhere,
`fact` says so, and the golden stays as it is.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import beam_ldp
from beam_ldp.pipelines import template
from tests.golden import cases, frozen
from tests.golden.cases import FREQUENCIES, JOB, OTHERS, PYTHON, TOLD, Case
from tests.golden.frozen import NUMBERS, TEXT, Golden, Plain, Ran

GOLDEN = Golden("programs")
LEDGER = "privacy.db"
PROSE = ("created", "untracked", "version", "warnings")  # of a record, beside its facts
MANY = 24  # numbers in a list; of longer ones sums are kept


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case, str], Any]:
    """What a case gives through a door, run once: `(numbers, text)`."""

    @cache
    def run(case: Case, door: str = "") -> tuple[Any, Any]:
        folder = tmp_path_factory.mktemp("case")
        with frozen.world(folder) as patch:
            cases.furnish(folder)
            before = set(frozen.tree(folder))
            reports = frozen.memoized_reports(patch)
            said = DOORS[door](case)
            return _numbers(folder, before, said, reports), _text(folder, before, said)

    return run


# The doors -----------------------------------------------------------------------------------


def _by_flags(case: Case) -> list[Ran]:
    return [_ran(command) for command in case.commands]


def _by_job(case: Case) -> list[Ran]:
    """The last command by the job file that it prints."""
    *before, last = case.commands
    said = [_ran(command) for command in before]
    printed = _ran(f"{last} --print-job")
    assert printed.code == 0, printed.err
    Path("job.yaml").write_text(printed.out, "utf-8")
    return [*said, _ran("run job.yaml")]


def _by_python(case: Case) -> list[Ran]:
    """The only command as a call; what it returns is compared with what it wrote."""
    program, arguments = as_call(case.commands[0])
    released = getattr(beam_ldp, program)(**arguments, quiet=True)
    assert released.privacy.to_json() == _json("out/privacy.json")
    assert released.to_arrow().equals(pq.read_table("out/estimates.parquet"))
    return [Ran(0, "", "")]


DOORS: dict[str, Callable[[Case], list[Ran]]] = {
    "": _by_flags, JOB: _by_job, PYTHON: _by_python
}  # fmt: skip


def _ran(command: str) -> Ran:
    words = shlex.split(command)
    if command == "visitors":
        cases.visitors()
        return Ran(0, "", "")
    if words[0] == "template":
        return Ran(template.main(words[1:]), "", "")
    return frozen.command(*words)


def as_call(command: str) -> tuple[str, dict[str, Any]]:
    """The function and the arguments that say what flags say."""
    program, *words = shlex.split(command)
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            flag, _, value = word[2:].partition("=")
            name = flag.replace("-", "_")
            new = yaml.safe_load(value) if value else True
            if name in ("column", "domain", "between") and name in found:
                held = found[name]
                found[name] = [*(held if isinstance(held, list) else [held]), new]
            else:
                found[name] = new
        else:  # `--range 0 100`
            held = found[name]
            found[name] = float(word) if held is True else (held, float(word))
    found["data"] = found.pop("input")
    if program == "mean":
        found["columns"] = str(found.pop("column")).split(",")
        found["ranges"] = found.pop("range", found.pop("ranges", None))
        return "means", found
    return "frequencies", found


# What is kept --------------------------------------------------------------------------------


def _numbers(folder: Path, before: set[str], said: list[Ran], reports: Any) -> Any:
    """Exit codes, files and all that is in them but words, rows of the ledger, memoized reports."""
    plain = Plain(folder)
    made = _made(folder, before)
    rows = frozen.ledger_rows(folder / LEDGER)[3:]  # after the budget
    found = {
        "codes": [one.code for one in said],
        "files": made,
        "printed": [numbers_of(_read(one.out)) for one in said if one.out.startswith("{")],
        "content": {path: _content(folder / path) for path in made},
        "ledger": [squeezed(row) for row in rows],
        "reports": reports(),
    }
    return plain({name: one for name, one in found.items() if one})


def _text(folder: Path, before: set[str], said: list[Ran]) -> Any:
    """What is printed and written for people; of JSON its words and its keys in their order."""
    plain = Plain(folder)
    made = _made(folder, before)
    jsons = {path: words_of(_json(folder / path)) for path in made if path.endswith(".json")}
    return plain(
        {
            "said": [_spoken(one) for one in said],
            "pages": {p: (folder / p).read_text() for p in made if p.endswith((".md", ".yaml"))},
            "json": jsons,
        }
    )


def _made(folder: Path, before: set[str]) -> list[str]:
    """What is there that was not: names, with those of no run in place of those of one."""
    return [
        path
        for path in frozen.tree(folder)
        if path not in before and not path.startswith((".state", LEDGER, "job.yaml"))
    ]


def _spoken(said: Ran) -> dict[str, Any]:
    found = said.out
    if found.startswith("{"):
        return {"json": words_of(_read(found)), "err": said.err}
    return {"out": found, "err": said.err}


def _content(path: Path) -> Any:
    """The numbers of a file."""
    if path.suffix == ".csv":
        return _columns(path.read_text("utf-8"))
    if path.suffix == ".json":
        told = _json(path)
        return facts(told) if path.name == "privacy.json" else numbers_of(told)
    if path.suffix == ".jsonl":
        return [numbers_of(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    if path.suffix == ".parquet":
        schema = pq.read_schema(path)
        return {
            "schema": [f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema],
            "rows": pq.read_metadata(path).num_rows,
        }
    return path.suffix or path.name


def _columns(text: str) -> dict[str, list[Any]]:
    names, *rows = csv.reader(io.StringIO(text))
    return {name: [_number(row[i]) for row in rows] for i, name in enumerate(names)}


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record states of a release: all of it but `PROSE`."""
    return {name: squeezed(told) for name, told in record.items() if name not in PROSE}


def numbers_of(told: Any) -> Any:
    """JSON without prose: texts of one word stay, as names, digests and choices are."""
    if isinstance(told, Mapping):
        if "identity_digest" in told:
            return facts(told)
        kept = {key: numbers_of(one) for key, one in told.items() if key not in PROSE}
        return {key: one for key, one in kept.items() if one is not None}
    if isinstance(told, list):
        return squeezed([numbers_of(one) for one in told])
    return None if isinstance(told, str) and " " in told else told


def words_of(told: Any, place: str = "") -> Any:
    """The keys of JSON in their order, and its prose."""
    if isinstance(told, Mapping):
        keys = list(told)
        inside = {key: words_of(one) for key, one in told.items()}
        return {"": " ".join(keys), **{key: one for key, one in inside.items() if one}}
    if isinstance(told, list):
        found = [words_of(one) for one in told]
        once = [one for i, one in enumerate(found) if one and one not in found[:i]]
        return once or None
    return told if isinstance(told, str) and " " in told else None


def squeezed(told: Any) -> Any:
    """JSON in which a long list of numbers is its length and its sums, which tell any change."""
    if isinstance(told, Mapping):
        return {key: squeezed(one) for key, one in told.items()}
    if not isinstance(told, list):
        return told
    flat = list(_leaves(told))
    if len(flat) <= MANY or any(isinstance(one, str | Mapping | None) for one in flat):
        return [squeezed(one) for one in told]
    finite = [float(one) for one in flat]
    weighted = [one * (i % 97 + 1) for i, one in enumerate(finite)]
    return {"numbers": len(flat), "sum": sum(finite), "weighted": sum(weighted)}


def _leaves(told: Any) -> Any:
    for one in told:
        if isinstance(one, list):
            yield from _leaves(one)
        else:
            yield one


def _json(path: Path | str) -> Any:
    return json.loads(Path(path).read_text("utf-8"))


def _read(out: str) -> Any:
    return json.loads(out)


# The tests -----------------------------------------------------------------------------------


def _params(*tables: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.slow else [])
        for table in tables
        for case in table
    ]


@pytest.mark.e2e
@pytest.mark.parametrize("case", _params(FREQUENCIES, OTHERS, TOLD))
def test_numbers(case: Case, given: Callable[[Case, str], Any]) -> None:
    GOLDEN.check(NUMBERS, case.name, given(case, "")[0])


@pytest.mark.e2e
@pytest.mark.parametrize("case", _params(FREQUENCIES, OTHERS, TOLD))
def test_text(case: Case, given: Callable[[Case, str], Any]) -> None:
    GOLDEN.check(TEXT, case.name, given(case, "")[1])
