"""Faults put into the accountant, one at a time, and the test that saw each.

    python -m benchmarks.mutants [--number 60]    # half a minute each; goes on where it was stopped

A mutant is one place of one module changed: a comparison, an operator, a minimum, a constant. The
tests of accounting that call the module run against it until one fails: those that call the changed
function first, the quickest of them before the others, which one run of all of them finds out. What
survives is either no fault (the same numbers come out another way) or a test that is missing.
Writes results/mutants.json, from which rows of code that has changed meanwhile are left out, and
mutants.md after every mutant.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.util
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).parent / "results" / "mutants.json"
ROOM = "beam_ldp.accounting"
MODULES = (
    "events",
    "prices",
    *(
        f"{folder}.{file.stem}"
        for folder in ("composition", "divergences", "reports", "shuffle")
        for file in sorted((ROOT / ROOM.replace(".", "/") / folder).glob("[a-z]*.py"))
    ),
)
NUMBER, SECONDS = 60, 600  # of a processor: all tests take half of it
FLAGS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not bench")
_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
_REVERSED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: below `beam_ldp.accounting`.
        place: number of the node among those that can be changed.
        line: of the source.
        was, became: the smallest expression that holds it.
        killer: test that failed; "" if none did, "time" if they did not end.
        seconds: until then.
    """

    module: str
    place: int
    line: int
    was: str
    became: str
    killer: str = ""
    seconds: float = 0.0


class _Change(ast.NodeTransformer):
    """Changes one node, counted in the order of the source."""

    def __init__(self, place: int) -> None:
        self.place, self.seen = place, -1
        self.found: tuple[int, str, str] | None = None

    def _changed(self, node: Any, make: Any) -> Any:
        self.generic_visit(node)
        self.seen += 1
        if self.seen != self.place:
            return node
        was, line = ast.unparse(node), node.lineno
        after = make(node)
        self.found = line, was, ast.unparse(after)
        return after

    def visit_Compare(self, node: ast.Compare) -> Any:  # noqa: N802, D102
        kind = type(node.ops[0])
        if len(node.ops) > 1 or kind not in _COMPARED:
            return self.generic_visit(node)

        def make(one: ast.Compare) -> ast.Compare:
            table = _REVERSED if self.place % 2 and kind in _REVERSED else _COMPARED
            one.ops = [table[kind]()]
            return one

        return self._changed(node, make)

    def visit_BinOp(self, node: ast.BinOp) -> Any:  # noqa: N802, D102
        kind = type(node.op)
        if kind not in _OPERATORS or isinstance(node.left, (ast.List, ast.Constant)):
            return self.generic_visit(node)

        def make(one: ast.BinOp) -> ast.BinOp:
            one.op = _OPERATORS[kind]()
            return one

        return self._changed(node, make)

    def visit_Call(self, node: ast.Call) -> Any:  # noqa: N802, D102
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name not in _EXTREMES:
            return self.generic_visit(node)

        def make(one: ast.Call) -> ast.Call:
            if isinstance(one.func, ast.Attribute):
                one.func.attr = _EXTREMES[name]
            else:
                one.func = ast.Name(_EXTREMES[name], ast.Load())
            return one

        return self._changed(node, make)

    def visit_Constant(self, node: ast.Constant) -> Any:  # noqa: N802, D102
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return node
        return self._changed(node, lambda one: ast.copy_location(ast.Constant(value + 1), one))


def source_of(module: str) -> str:
    """Of a module of the room."""
    return (ROOT / f"{ROOM}.{module}".replace(".", "/")).with_suffix(".py").read_text("utf-8")


def mutated(module: str, place: int) -> tuple[ast.Module, tuple[int, str, str]] | None:
    """The module with that place changed, and what that is; None past the last place."""
    change = _Change(place)
    tree = ast.fix_missing_locations(change.visit(ast.parse(source_of(module))))
    return None if change.found is None else (tree, change.found)


def drawn(number: int, seed: int) -> Iterator[Mutant]:
    """So many mutants, evenly from all places of all modules."""
    places = []
    for module in MODULES:
        counted = _Change(-1)
        counted.visit(ast.parse(source_of(module)))
        places += [(module, place) for place in range(counted.seen + 1)]
    random.Random(seed).shuffle(places)
    for module, place in places[:number]:
        found = mutated(module, place)
        assert found is not None
        line, was, became = found[1]
        yield Mutant(module, place, line, was, became)


# Tests of one mutant, in a process of its own that has the libraries loaded ------------------


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from another tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:  # noqa: D102
        if fullname == self.name:
            return importlib.util.spec_from_loader(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> None:  # noqa: D102
        exec(compile(self.tree, f"<mutant of {self.name}>", "exec"), module.__dict__)  # noqa: S102


class _First:
    """Remembers the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


@dataclass(frozen=True)
class Called:
    """What one test called, and how long it took.

    Attributes:
        functions: of the room, each as (file, line where it begins).
        seconds: of the test.
    """

    functions: frozenset[tuple[str, int]]
    seconds: float


class _Recorder:
    """Finds what each test calls."""

    def __init__(self) -> None:
        self.calls: dict[str, Called] = {}
        self.room = str(ROOT / ROOM.replace(".", "/"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        functions: set[tuple[str, int]] = set()

        def seen(frame: FrameType, event: str, argument: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(self.room):
                functions.add((code.co_filename, code.co_firstlineno))

        began = time.monotonic()
        sys.setprofile(seen)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.calls[item.nodeid] = Called(frozenset(functions), time.monotonic() - began)


class _Sorter:
    """Leaves these tests, in the given order."""

    def __init__(self, order: Sequence[str]) -> None:
        self.places = {name: place for place, name in enumerate(order)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.places]
        items.sort(key=lambda item: self.places[item.nodeid])


def function_around(source: str, line: int) -> int:
    """First line of the innermost function that holds a line of a module; 0 outside of all."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= line <= (node.end_lineno or first):
                found = max(found, first)
    return found


def order_for(mutant: Mutant, calls: Mapping[str, Called]) -> list[str]:
    """Names of tests: those that called the function, then others of its module; quickest first.

    Of a constant outside of all functions: any others, too.
    """
    file = str((ROOT / f"{ROOM}.{mutant.module}".replace(".", "/")).with_suffix(".py"))
    place = file, function_around(source_of(mutant.module), mutant.line)

    def elsewhere(name: str) -> bool:
        return all(function[0] != file for function in calls[name].functions)

    def rank(name: str) -> tuple[bool, bool, float]:
        return place not in calls[name].functions, elsewhere(name), calls[name].seconds

    asked = (name for name in calls if not place[1] or not elsewhere(name))
    return sorted(asked, key=rank)


def _files() -> list[str]:
    tests = ROOT / "tests"
    others = (
        "ledger/test_commitments.py",
        "ledger/test_losses.py",
        "benchmarks/test_price_proof.py",
    )
    files = [*sorted((tests / "accounting").rglob("test_*.py")), *(tests / name for name in others)]
    return [str(file) for file in files]


def _silently(plugins: list[object]) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    pytest.main([*FLAGS, *_files()], plugins=plugins)


def _record(told: Any) -> None:
    first, recorder = _First(), _Recorder()
    _silently([first, recorder])
    told.send((first.failed, recorder.calls))


def _judge(module: str, place: int, order: Sequence[str], told: Any) -> None:
    found = mutated(module, place)
    assert found is not None
    for name in [one for one in sys.modules if one.startswith(("beam_ldp", "tests"))]:
        del sys.modules[name]  # of a process that had loaded them unchanged
    sys.meta_path.insert(0, _Loader(f"{ROOM}.{module}", found[0]))
    first = _First()
    _silently([first, _Sorter(order)])
    told.send(first.failed)


def _limited(work: Any, *arguments: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    work(*arguments)


def _in_a_process(work: Any, *arguments: Any) -> Any:
    """What it sends, which has the libraries of this process; TimeoutError and EOFError."""
    receive, send = multiprocessing.Pipe(duplex=False)
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=_limited, args=(work, *arguments, send))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise TimeoutError from None
        raise
    finally:
        process.kill()
        process.join()


def recorded() -> dict[str, Called]:
    """What every test calls, of the code as it is."""
    failed, calls = _in_a_process(_record)
    if failed:
        raise SystemExit(f"error: {failed} fails without any mutant; mend it first")
    return dict(calls)


def judged(mutant: Mutant, calls: Mapping[str, Called]) -> Mutant:
    """What its tests say."""
    began = time.monotonic()
    order = order_for(mutant, calls)
    try:
        killer = _in_a_process(_judge, mutant.module, mutant.place, order)
    except TimeoutError:
        killer = "time"
    except EOFError:
        killer = "the import"
    fields = {**asdict(mutant), "killer": killer, "seconds": time.monotonic() - began}
    return Mutant(**fields)


def page(mutants: Sequence[Mutant], left: Sequence[Mutant] = ()) -> str:
    """Markdown, survivors first, and last what is not judged yet."""
    survived = sum(not one.killer for one in mutants)
    still = f" {len(left)} more were drawn and are not judged yet." if left else ""
    lines = [
        "# Faults in the accountant, and what sees them",
        "",
        "`python -m benchmarks.mutants`. Each row is one place changed; the test is the quickest "
        "of those that call the changed function and fail, or else of those that call its module.",
        "",
        f"{len(mutants) - survived} of {len(mutants)} were seen.{still}",
        "",
        "| module, line | was | became | seen by |",
        "|---|---|---|---|",
    ]
    for one in sorted(mutants, key=lambda one: (bool(one.killer), one.module, one.line)):
        was, became = (f"`{_short(text)}`" for text in (one.was, one.became))
        by = one.killer.rpartition("tests/")[2] or "**nothing**"
        lines.append(f"| {one.module}, {one.line} | {was} | {became} | {by} |")
    for one in sorted(left, key=lambda one: (one.module, one.line)):
        was, became = (f"`{_short(text)}`" for text in (one.was, one.became))
        lines.append(f"| {one.module}, {one.line} | {was} | {became} | not judged yet |")
    return "\n".join(lines) + "\n"


def kept() -> list[Mutant]:
    """What was judged before, of places that are still as they were."""
    rows = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else []
    mutants = [Mutant(**row) for row in rows]
    return [
        one
        for one in mutants
        if one.module in MODULES
        and (found := mutated(one.module, one.place)) is not None
        and found[1] == (one.line, one.was, one.became)
    ]


def keep(mutants: Sequence[Mutant], left: Sequence[Mutant] = ()) -> None:
    """Write the record and the page."""
    rows = [json.dumps(asdict(one)) for one in mutants]
    RECORD.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    RECORD.with_suffix(".md").write_text(page(mutants, left), encoding="utf-8")


def _short(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:70]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; what survives is for people to judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args(argv)
    import dp_accounting  # noqa: F401  # loaded once, for all
    import hypothesis  # noqa: F401
    import mpmath  # noqa: F401
    import scipy.stats  # noqa: F401

    found = kept()
    known = {(one.module, one.place) for one in found}
    left = [one for one in drawn(told.number, told.seed) if (one.module, one.place) not in known]
    calls = recorded() if left else {}
    while left:
        found.append(judged(left.pop(0), calls))
        print(json.dumps(asdict(found[-1])), flush=True)
        keep(found, left)
    keep(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
