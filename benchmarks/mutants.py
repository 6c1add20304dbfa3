"""Faults put into every room, one at a time, and the test that saw each.

    python -m benchmarks.mutants [--each 4]    # a minute for each; goes on where it was stopped

A mutant is one place of one module changed: a comparison, a condition, an operator, a minimum, a
constant; of each room as many. The test files that `.ci/changed.py` says are nearest to the module
run against it until one test fails. What survives is no fault (the same comes out another way, or
nobody promised it), or only tests farther away see it, or a test is missing. Programs that tests
start in processes of their own run as they are. Writes results/mutants.json, from which rows of
code that has changed meanwhile are left out, and mutants.md after every mutant.
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
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).parent / "results" / "mutants.json"
ROOMS = {  # by the folder that is mutated: what it is imported as
    **{
        f"beam_ldp/{room}": f"beam_ldp.{room}"
        for room in (
            "accounting", "decisions", "federated", "ledger", "planning", "protocols", "questions",
            "randomizers", "release", "research", "settings", "transforms", "verifier",
        )
    },
    "pipelines": "beam_ldp.pipelines",
    "mlflow/mlflow_ldp": "mlflow_ldp",
}  # fmt: skip
EACH, SECONDS, MINUTES = 4, 600, 1  # of a room; of a processor, for all tests of one; nearest tests
FLAGS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m",
         "not slow and not bench and not engines and not tff and not yaml")  # fmt: skip
_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}
_REVERSED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        module: as it is imported.
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


def _said(node: ast.AST) -> str:
    """An expression; of a statement with a body, its condition."""
    return f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else ast.unparse(node)


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
        was, line = _said(node), node.lineno
        after = make(node)
        self.found = line, was, _said(after)
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

    def visit_If(self, node: ast.If) -> Any:  # noqa: N802, D102
        def make(one: ast.If) -> ast.If:
            one.test = ast.copy_location(ast.UnaryOp(ast.Not(), one.test), one.test)
            return one

        return self._changed(node, make)

    def visit_Constant(self, node: ast.Constant) -> Any:  # noqa: N802, D102
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return node
        return self._changed(node, lambda one: ast.copy_location(ast.Constant(value + 1), one))


def path_of(module: str) -> str:
    """The file of a module, from the root."""
    for folder, package in ROOMS.items():
        if module.startswith(package + "."):
            return folder + module[len(package) :].replace(".", "/") + ".py"
    raise ValueError(f"module must be of a room, got {module}")


def source_of(module: str) -> str:
    """Of a module of a room."""
    return (ROOT / path_of(module)).read_text("utf-8")


def mutated(module: str, place: int) -> tuple[ast.Module, tuple[int, str, str]] | None:
    """The module with that place changed, and what that is; None past the last place."""
    change = _Change(place)
    tree = ast.fix_missing_locations(change.visit(ast.parse(source_of(module))))
    return None if change.found is None else (tree, change.found)


def drawn(each: int, seed: int) -> Iterator[Mutant]:
    """So many mutants of each room, evenly from all its places; in turn, so that any part of them
    is of all rooms."""
    rooms = []
    for folder, package in ROOMS.items():
        places = []
        for file in sorted((ROOT / folder).rglob("[a-z]*.py")):
            inner = file.relative_to(ROOT / folder).with_suffix("").as_posix()
            module = f"{package}.{inner.replace('/', '.')}"
            counted = _Change(-1)
            counted.visit(ast.parse(source_of(module)))
            places += [(module, place) for place in range(counted.seen + 1)]
        random.Random(f"{seed} {folder}").shuffle(places)
        rooms.append(places[:each])
    for module, place in (one for turn in zip(*rooms, strict=True) for one in turn):
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
            file = str(ROOT / path_of(fullname))
            spec = importlib.util.spec_from_loader(fullname, self, origin=file)
            assert spec is not None
            spec.has_location = True  # some tests read the file of a module
            return spec
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


def files_for(module: str) -> list[str]:
    """The test files that should see a fault in a module: the nearest that fit into the time."""
    order = [sys.executable, ".ci/changed.py", f"--minutes={MINUTES}", "--jobs=1", path_of(module)]
    done = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def _judge(module: str, place: int, files: Sequence[str], told: Any) -> None:
    found = mutated(module, place)
    assert found is not None
    for name in [one for one in sys.modules if one.startswith(("beam_ldp", "mlflow_ldp", "tests"))]:
        del sys.modules[name]  # of a process that had loaded them unchanged
    sys.meta_path.insert(0, _Loader(module, found[0]))
    first = _First()
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.chdir(ROOT)
    pytest.main([*FLAGS, *files], plugins=[first])
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


def judged(mutant: Mutant) -> Mutant:
    """What its tests say."""
    began = time.monotonic()
    try:
        files = files_for(mutant.module)
        killer = _in_a_process(_judge, mutant.module, mutant.place, files)
    except TimeoutError:
        killer = "time"
    except EOFError:
        killer = "the import"
    fields = {**asdict(mutant), "killer": killer, "seconds": round(time.monotonic() - began, 1)}
    return Mutant(**fields)


def page(mutants: Sequence[Mutant], left: Sequence[Mutant] = ()) -> str:
    """Markdown, survivors first, and last what is not judged yet."""
    survived = sum(not one.killer for one in mutants)
    still = f" {len(left)} more were drawn and are not judged yet." if left else ""
    lines = [
        "# Faults in every room, and what sees them",
        "",
        "`python -m benchmarks.mutants`. Each row is one place changed; the test is the first that "
        "fails in the test files nearest to its module.",
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
        if (ROOT / path_of(one.module)).exists()
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
    parser.add_argument("--each", type=int, default=EACH)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args(argv)
    import apache_beam  # noqa: F401  # loaded once, for all
    import dp_accounting  # noqa: F401
    import hypothesis  # noqa: F401
    import mpmath  # noqa: F401
    import scipy.stats  # noqa: F401

    found = kept()
    known = {(one.module, one.place) for one in found}
    left = [one for one in drawn(told.each, told.seed) if (one.module, one.place) not in known]
    while left:
        found.append(judged(left.pop(0)))
        print(json.dumps(asdict(found[-1])), flush=True)
        keep(found, left)
    keep(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
