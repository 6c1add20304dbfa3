"""What programs that run once gave before, they give now: numbers apart from words.

`cases.py` says what is run, `refusals.py` what is refused, `frozen.py` in which world, and how
goldens are made anew. A case is run once, and asked for its numbers and for its words. The numbers
golden keeps a record, `privacy.json`, under the names of its first version: where a later version
keeps them elsewhere, `facts` says so, and the golden stays as it is.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import beam_ldp
from beam_ldp.pipelines import template
from tests.golden import cases, frozen, refusals
from tests.golden.cases import (
    FREQUENCIES,
    JOB,
    NOBODY,
    OTHERS,
    PYTHON,
    TOLD,
    WITHHELD,
    Case,
)
from tests.golden.frozen import NUMBERS, TEXT, Golden, Plain, Ran

# Not `exact`: what Click, Rich and NumPy print depends on their versions, and these are pinned.
pytestmark = pytest.mark.e2e

GOLDEN = Golden("programs")
LEDGER = "privacy.db"
PROSE = ("created", "untracked", "version", "warnings")  # of a record, beside its facts
MANY = 24  # numbers in a list; of longer ones sums are kept


@pytest.fixture(scope="module")
def given() -> Callable[[Case, str], Any]:
    """What a case gives through a door, run once: `(numbers, text)`."""

    @cache
    def run(case: Case, door: str = "") -> tuple[Any, Any]:
        with frozen.place() as folder, frozen.world(folder) as patch:
            cases.furnish(folder)
            before = set(frozen.tree(folder))
            reports = frozen.memoized_reports(patch)
            said = DOORS[door](case)
            numbers = _numbers(folder, before, said, reports)
            numbers = _undrawn(case, numbers) if case.drawn else numbers
            return numbers, _text(folder, before, said)

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
            new = _typed(name, value) if "=" in word else True
            if name in ("column", "domain", "between") and name in found:
                held = found[name]
                found[name] = [*(held if isinstance(held, list) else [held]), new]
            else:
                found[name] = new
        else:  # `--range 0 100`
            held = found[name]
            found[name] = float(word) if held is True else (held, float(word))
    found["data"] = found.pop("input", ())
    if isinstance(found.get("domain"), list):
        found["domain"] = dict(zip(found["column"], found["domain"]))
    if program == "mean":
        found["columns"] = str(found.pop("column", "")).split(",")
        found["ranges"] = found.pop("range", found.pop("ranges", None))
        return "means", found
    return "frequencies", found


def _typed(name: str, value: str) -> Any:
    """Numbers as numbers, other than in lists of them."""
    if name in ("bins", "quantiles", "between", "shape", "norm"):
        return value
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value


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


def _undrawn(case: Case, numbers: dict[str, Any]) -> dict[str, Any]:
    """The same without estimates: of a table, the columns that noise leaves alone."""
    if case.name == "bandit":
        return {key: numbers[key] for key in ("codes", "files")}
    kept = dict(numbers["content"])
    for path, told in kept.items():
        if path.endswith(".csv"):
            kept[path] = {k: told[k] for k in ("question", "value", "arm") if k in told}
    return {**numbers, "content": kept}


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
    """What is there that was not, but for the state, the ledger, and hashes of people."""
    beside = (".state", LEDGER, "job.yaml", "store/")
    return [
        path for path in frozen.tree(folder) if path not in before and not path.startswith(beside)
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
        lines = sorted(path.read_text("utf-8").splitlines())  # which come in any order
        return [numbers_of(json.loads(line)) for line in lines]
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
    try:
        finite = [float(one) for one in flat] if len(flat) > MANY else []
    except (TypeError, ValueError):
        finite = []
    if not finite:
        return [squeezed(one) for one in told]
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

CASES = (*FREQUENCIES, *OTHERS, *NOBODY, *WITHHELD, *TOLD)
RULES = refusals.rules()


def _params(found: Iterable[tuple[Case, str]]) -> list[Any]:
    return [
        pytest.param(
            case, door, id=f"{case.name}-{door}" if door else case.name,
            marks=[pytest.mark.slow] if case.slow else [],
        )
        for case, door in found
    ]  # fmt: skip


@pytest.mark.parametrize("case, door", _params((case, "") for case in CASES))
def test_numbers(case: Case, door: str, given: Callable[[Case, str], Any]) -> None:
    GOLDEN.check(NUMBERS, case.name, given(case, door)[0])


@pytest.mark.parametrize("case, door", _params((case, "") for case in CASES if case.read))
def test_text(case: Case, door: str, given: Callable[[Case, str], Any]) -> None:
    GOLDEN.check(TEXT, case.name, given(case, door)[1])


@pytest.mark.parametrize("case, door", _params((case, d) for case in CASES for d in case.doors))
def test_another_door_gives_the_same(
    case: Case, door: str, given: Callable[[Case, str], Any]
) -> None:
    """A job file everything, what is printed too; a call from Python prints nothing."""
    numbers, text = given(case, door)
    if door == PYTHON:
        numbers = {**numbers, "printed": GOLDEN.kept(NUMBERS, case.name).get("printed", [])}
        numbers = {key: one for key, one in numbers.items() if one}
    GOLDEN.check(NUMBERS, case.name, numbers, recorded=False)
    if door == JOB:
        GOLDEN.check(TEXT, case.name, text, recorded=False)


@pytest.fixture(scope="module")
def desk() -> Iterator[Path]:
    """A folder with people and a budget, in which nothing may be left."""
    with frozen.place() as folder, frozen.world(folder):
        _set_up(folder)
        yield folder


def _set_up(folder: Path) -> None:
    """Furnish a folder anew."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cases.furnish(folder)
    assert _ran(cases.DESIGN).code == 0 and _ran(cases.START).code == 0


@pytest.fixture
def refused(desk: Path) -> Callable[[str], tuple[Any, Any]]:
    """`(numbers, text)` of a rule at each of its doors."""

    def ask(rule: str) -> tuple[Any, Any]:
        command, doors = RULES[rule]
        before, rows = frozen.tree(desk), len(frozen.ledger_rows(LEDGER))
        os.chdir(desk)
        said = {"flags": _ran(command)}
        if doors:
            said["check"] = _checked(_ran(refusals.as_check(command)))
            printed = _ran(f"{command} --print-job")
            if printed.code == 0:
                Path(".job.yaml").write_text(printed.out, "utf-8")
                said["job"] = _ran("run .job.yaml")
                Path(".job.yaml").unlink()
            if command.startswith(("frequency", "mean")) and "--stream" not in command:
                said[PYTHON] = _called(command)
        made = [path for path in frozen.tree(desk) if path not in before]
        charged = len(frozen.ledger_rows(LEDGER)) - rows
        plain = Plain(desk)
        if made or charged:
            _set_up(desk)  # the other rules find it as it was
        assert not made and not charged, f"{rule}: {said}"
        numbers = {door: one.code for door, one in said.items()}
        return numbers, plain(_said_once({door: one.err + one.out for door, one in said.items()}))

    return ask


def _called(command: str) -> Ran:
    """As a call: the code is 2 where it raises as for a wrong argument."""
    try:
        program, arguments = as_call(command)
        getattr(beam_ldp, program)(**arguments, quiet=True)
    except Exception as error:
        wrong = isinstance(error, ValueError | TypeError)
        return Ran(2 if wrong else 3, "", f"{type(error).__name__}: {error}")
    return Ran(0, "", "")


def _checked(said: Ran) -> Ran:
    """Of all that is checked, what is refused."""
    if not said.out.startswith("{"):
        return said
    refused = [one["said"] for one in _read(said.out)["checks"] if one["status"] == "refused"]
    return Ran(said.code, "", "\n".join(refused))


def _said_once(said: dict[str, str]) -> dict[str, str]:
    """By door; what another door said before in the same words is left out."""
    found: dict[str, str] = {}
    for door, text in said.items():
        one = re.sub(r"^(error|SettingError): ", "", " ".join(text.split()))
        if one not in found.values():
            found[door] = one
    return found


@pytest.mark.parametrize("part", [NUMBERS, TEXT])
@pytest.mark.parametrize("rule", RULES)
def test_refusals(rule: str, part: str, refused: Callable[[str], Any]) -> None:
    GOLDEN.check(part, f"refused {rule}", _asked(refused, rule)[part == TEXT])


_ASKED: dict[str, Any] = {}


def _asked(refused: Callable[[str], Any], rule: str) -> Any:
    if rule not in _ASKED:
        _ASKED[rule] = refused(rule)
    return _ASKED[rule]


@pytest.mark.parametrize("part", [NUMBERS, TEXT])
@pytest.mark.parametrize("command", cases.HELPED)
def test_help(command: str, part: str, desk: Path) -> None:
    """Flags are frozen with the numbers: none is lost where their words are written anew."""
    brief = _ran(f"{command} --help")
    whole = _ran(f"{command} --help-all")
    page = whole.out if whole.code == 0 else brief.out
    codes = [brief.code, whole.code]
    if part == NUMBERS:
        flags = re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)(?: (\S+))?", page, re.MULTILINE)
        given: Any = {"codes": codes, "flags": sorted({f"{a} {b}".strip() for a, b in flags})}
    else:
        lines = set(page.splitlines())
        given = {"all": page, "brief": [one for one in brief.out.splitlines() if one not in lines]}
    GOLDEN.check(part, f"help {command}", given)


@pytest.mark.parametrize("part", [NUMBERS, TEXT])
def test_schema_of_job_files(part: str, desk: Path) -> None:
    schema = json.loads(_ran("run --schema").out)
    given = schema if part == TEXT else dict(_allowed(schema))
    GOLDEN.check(part, "schema", _descriptions(schema) if part == TEXT else given)


def _allowed(schema: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """What may stand at each place of a job file."""
    own = {k: v for k, v in schema.items() if k in ("type", "enum", "minimum", "maximum", "const",
           "exclusiveMinimum", "required", "pattern", "$ref", "additionalProperties")}  # fmt: skip
    if own:
        yield place or "job", json.dumps(own, sort_keys=True)
    for key, one in schema.items():
        inside = one if isinstance(one, list) else [one]
        if key in ("properties", "$defs"):
            for name, found in one.items():
                yield from _allowed(found, f"{place}.{name}")
        elif key in ("anyOf", "oneOf", "allOf", "items", "prefixItems"):
            for i, found in enumerate(inside):
                if isinstance(found, Mapping):
                    yield from _allowed(found, f"{place}|{key[0]}{i}")


def _descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [one for one in map(_descriptions, schema) if one]
    if not isinstance(schema, Mapping):
        return None
    own = {"": schema["description"]} if isinstance(schema.get("description"), str) else {}
    return own | {k: one for k, v in schema.items() if (one := _descriptions(v))}


@pytest.mark.parametrize("part", [NUMBERS, TEXT])
def test_no_case_is_left_over(part: str) -> None:
    made = [case.name for case in CASES if part == NUMBERS or case.read]
    made += [f"refused {rule}" for rule in RULES] + [f"help {one}" for one in cases.HELPED]
    GOLDEN.check_cases([*made, "schema"], part)
