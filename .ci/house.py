"""Measures the house and holds it to `house.toml`: the size of each room, and what is said twice.

    python .ci/house.py           fails where a figure is above the one in house.toml
    python .ci/house.py --lower   writes down the figures that fell; raises none
    python .ci/house.py --show    prints every figure beside its limit

Raise a figure in house.toml by hand, with the reason in a comment behind it.

lines      all lines of the room: Python, and the templates, TOML and JSON that carry logic
code       those without docstrings, comments and blank lines
files      how many files hold them
families   classes whose names end as the parts of a kind of question do (Question, Plan, ...)
mirrored   pairs of dataclasses of three or more fields that share 60 % of the larger one's fields
circles    groups of modules that import each other, be it in a function or for types alone;
           a package's __init__, which only gathers names, does not count
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "house.toml"
PRODUCT = ("beam_ldp", "pipelines", "mlflow", "tff_adapters", "flower_adapters", "spec")
PACKAGES = {"pipelines": "beam_ldp/pipelines", "mlflow/mlflow_ldp": "mlflow_ldp"}  # as installed
LOGIC = (".py", ".html", ".j2", ".jinja", ".txt", ".toml", ".json", ".yaml")
MEASURED = {"beam_ldp/planning/costs.json"}  # timings of a machine, no logic
FAMILY = re.compile("(Questions?|Query|Planner|Plans?|Choice|Answer|Record|Values|Settings)$")
FIELDS, SHARED = 3, 0.6
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER}  # fmt: skip


def files_of(folder: str) -> list[Path]:
    """What counts below a folder; caches and data do not."""
    found = (p for p in (ROOT / folder).rglob("*") if p.suffix in LOGIC and p.is_file())
    return sorted(
        p
        for p in found
        if "__pycache__" not in p.parts and str(p.relative_to(ROOT)) not in MEASURED
    )


def room_of(path: Path) -> str:
    """The folder that is a room of its own: each below beam_ldp, and the others whole."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "beam_ldp" and len(parts) > 2 else parts[0]


def docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of the strings that stand as statements."""
    texts = (
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Expr)
        and isinstance(n.value, ast.Constant)
        and isinstance(n.value.value, str)
    )
    return {line for t in texts for line in range(t.lineno, (t.end_lineno or t.lineno) + 1)}


def code_lines(path: Path, text: str) -> int:
    """Lines that do something; of a template or a table, all that are not blank."""
    if path.suffix != ".py":
        return sum(1 for line in text.splitlines() if line.strip())
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = {
        line for t in tokens if t.type not in LAYOUT for line in range(t.start[0], t.end[0] + 1)
    }
    return len(used - docstring_lines(ast.parse(text)))


def dataclass_fields(node: ast.ClassDef) -> frozenset[str]:
    """Names of the fields of a dataclass, attrs class or NamedTuple; none of another class."""
    marks = " ".join(ast.unparse(mark) for mark in (*node.decorator_list, *node.bases))
    if not re.search(r"dataclass|NamedTuple|attrs|\bdefine|frozen", marks):
        return frozenset()
    return frozenset(
        s.target.id
        for s in node.body
        if isinstance(s, ast.AnnAssign)
        and isinstance(s.target, ast.Name)
        and s.target.id != "_"  # what stands before fields that take keywords
        and "ClassVar" not in ast.unparse(s.annotation)
    )


def mirrored(classes: list[frozenset[str]]) -> int:
    """Pairs of classes that say the same fields."""
    large = [fields for fields in classes if len(fields) >= FIELDS]
    return sum(
        len(one & two) >= SHARED * max(len(one), len(two)) for one, two in combinations(large, 2)
    )


def module_of(path: Path) -> str:
    """The name under which a file is imported."""
    name = str(path.relative_to(ROOT).with_suffix(""))
    for folder, package in PACKAGES.items():
        if name.startswith(folder + "/"):
            name = package + name[len(folder) :]
    return name.replace("/", ".")


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Modules that are imported anywhere in a file, with the name taken from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def circles(trees: dict[str, ast.Module]) -> int:
    """Strongly connected groups of two or more modules (Tarjan)."""
    to = {
        name: {
            found
            for module, taken in imports_of(tree)
            for found in [f"{module}.{taken}" if f"{module}.{taken}" in trees else module]
            if found in trees and found != name
        }
        for name, tree in trees.items()
    }
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    count = 0

    def visit(name: str) -> None:
        nonlocal count
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in to[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            count += len(stack) - at > 1
            del stack[at:]

    for name in to:
        if name not in order:
            visit(name)
    return count


def measure() -> dict[str, dict[str, int]]:
    """Every figure of today, by table and name."""
    figures: dict[str, dict[str, int]] = {}
    trees: dict[str, ast.Module] = {}
    classes: list[frozenset[str]] = []
    for path in (p for folder in PRODUCT for p in files_of(folder)):
        text = path.read_text("utf-8")
        room = figures.setdefault(room_of(path), {"lines": 0, "code": 0, "files": 0, "families": 0})
        room["lines"] += len(text.splitlines())
        room["code"] += code_lines(path, text)
        room["files"] += 1
        if path.suffix == ".py":
            tree = ast.parse(text)
            if path.stem != "__init__":
                trees[module_of(path)] = tree
            found = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            room["families"] += sum(bool(FAMILY.search(node.name)) for node in found)
            classes += map(dataclass_fields, found)
    total = {
        name: sum(room[name] for room in figures.values())
        for name in ("lines", "code", "files", "families")
    }
    tests = [p.read_text("utf-8") for p in files_of("tests") if p.suffix == ".py"]
    figures["tests"] = {"lines": sum(len(text.splitlines()) for text in tests), "files": len(tests)}
    figures["product"] = {**total, "mirrored": mirrored(classes), "circles": circles(trees)}
    return figures


def main(flags: list[str]) -> int:
    """The exit status: 1 where a figure is above its limit, or a room has none."""
    text = LIMITS.read_text("utf-8")
    limits, now = tomllib.loads(text), measure()
    faults = [f"there is no room {room}" for room in limits if room not in now]
    for room, figures in now.items():
        for name, value in figures.items():
            limit = limits.get(room, {}).get(name)
            if "--show" in flags:
                print(f"{room:24} {name:10} {value:>8,} of {limit}")
            if limit is None:
                faults.append(f"{room} has no limit of {name} ({value} now)")
            elif value > limit:
                faults.append(f"{room} has {value:,} {name}, at most {limit:,} are allowed")
            elif value < limit and "--lower" in flags:
                table = re.compile(rf'(\["?{re.escape(room)}"?\][^\[]*?\b{name} = )\d+')
                text = table.sub(rf"\g<1>{value}", text, count=1)
    if "--lower" in flags:
        LIMITS.write_text(text, "utf-8")
    for fault in faults:
        print(f"house.toml: {fault}")
    if faults:
        print("Make it smaller, or raise the figure in house.toml with its reason.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
