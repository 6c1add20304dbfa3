"""Faults put into the accountant, one at a time, and the test that saw each.

    python -m benchmarks.mutants            # writes benchmarks/results/mutants.md; an hour or so

A mutant is one place of one module changed: a comparison, an operator, a minimum, a constant. The
tests of accounting run against it, those named after the module first, until one fails. What
survives is either no fault (the same numbers come out another way) or a test that is missing.
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
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).parent / "results" / "mutants.md"
MODULES = (
    "events", "reports", "prices", "divergences.hockey_stick", "divergences.loss_grid",
    "divergences.moments", "divergences.shuffle_rdp", "composition.accountant",
    "composition.central", "composition.ledger_bounds", "composition.loss_curves",
    "shuffle.mean_price", "shuffle.multi_message", "shuffle.one_release",
)  # fmt: skip
ROOM = "beam_ldp.accounting"
NUMBER, SECONDS = 60, 150
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
    for module, place in sorted(random.Random(seed).sample(places, number)):
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


def files_for(module: str) -> list[str]:
    """Files of tests, those named after the module first."""
    own = f"test_{module.rpartition('.')[2]}.py"
    files = sorted((ROOT / "tests" / "accounting").rglob("test_*.py"), key=lambda f: f.name != own)
    files.append(ROOT / "tests" / "benchmarks" / "test_price_proof.py")
    return [str(file) for file in files]


def _judge(module: str, place: int, told: Any) -> None:
    import pytest

    found = mutated(module, place)
    assert found is not None
    sys.meta_path.insert(0, _Loader(f"{ROOM}.{module}", found[0]))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    first = _First()
    flags = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not bench"]
    pytest.main([*flags, *files_for(module)], plugins=[first])
    told.send(first.failed)


def judged(mutant: Mutant) -> Mutant:
    """What its tests say."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    began = time.monotonic()
    process = context.Process(target=_judge, args=(mutant.module, mutant.place, send))
    process.start()
    send.close()
    killer = "time"
    try:
        if receive.poll(SECONDS):
            killer = str(receive.recv())
    except EOFError:
        killer = "the import"
    process.kill()
    process.join()
    fields = {**asdict(mutant), "killer": killer, "seconds": time.monotonic() - began}
    return Mutant(**fields)


def page(mutants: Sequence[Mutant]) -> str:
    """Markdown, survivors first."""
    survived = sum(not one.killer for one in mutants)
    lines = [
        "# Faults in the accountant, and what sees them",
        "",
        "`python -m benchmarks.mutants`. Each row is one place changed; the test is the first of "
        "the tests of accounting that failed.",
        "",
        f"{len(mutants) - survived} of {len(mutants)} were seen.",
        "",
        "| module, line | was | became | seen by |",
        "|---|---|---|---|",
    ]
    for one in sorted(mutants, key=lambda one: (bool(one.killer), one.module, one.line)):
        was, became = (f"`{_short(text)}`" for text in (one.was, one.became))
        by = one.killer.rpartition("accounting/")[2] or "**nothing**"
        lines.append(f"| {one.module}, {one.line} | {was} | {became} | {by} |")
    return "\n".join(lines) + "\n"


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
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401

    found = []
    for mutant in drawn(told.number, told.seed):
        found.append(judged(mutant))
        print(json.dumps(asdict(found[-1])), flush=True)
    PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
