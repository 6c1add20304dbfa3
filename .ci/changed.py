"""Prints the test files that see a change, the nearest first, as many as fit into the time.

    python .ci/changed.py [--base COMMIT] [--minutes 4] [--jobs 2] [FILE ...]

What is changed: the files that are given; else those that differ from the commit, and new ones.
Without a commit: from HEAD where something is not committed yet, else from where the branch left
main.

A test file sees a change if it is changed itself, or imports a changed module, be it through others
(grimp says who imports whom). An import by name counts too: a string that names a module, or a
package with a dot behind it, as tables of commands and entry points do, and the command `beam-ldp`.
A changed file that is no Python is seen as the modules that name it are, and by the tests of its
room. Of a whole house that hangs together nearly every test sees a change of a room at the bottom:
changed files come first, then the tests of the same room, then by the number of imports between.
What does not fit into the time is counted on stderr, and is `make test`'s; the seconds of a file
are those of a processor in its last run by `make` (tests/conftest.py writes them down).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
SECONDS = "build/test-seconds.json"  # of test files, by path
UNKNOWN = 6.0  # seconds of a file that has not run: the mean of all
# What a folder is imported as; the tests without their top, so that folders below need none.
PACKAGES = {"beam_ldp": "beam_ldp", "pipelines": "beam_ldp/pipelines",
            "mlflow/mlflow_ldp": "mlflow_ldp", "tff_adapters": "tff_adapters",
            "flower_adapters": "flower_adapters", "spec": "spec", "tests": "tests",
            "benchmarks": "benchmarks"}  # fmt: skip
NAMED = re.compile(r"""["']((?:beam_ldp|mlflow_ldp|tests|\w+_adapters)(?:\.\w+)+)(\.?)["':{]""")
COMMAND = "beam_ldp.pipelines.cli"
# What `make test` leaves to other environments.
ELSEWHERE = re.compile(r"tests/(engines|yaml|dataflow|pyspark|\w+_adapters)/(?!test_import)")
CORE = "tests.conftest"  # and what it imports of the tests: below everything


def linked(root: Path, folder: Path) -> None:
    """The packages as they are imported, in a folder of links."""
    for source, package in PACKAGES.items():
        (folder / package).mkdir(exist_ok=True)
        for path in (root / source).glob("*"):
            if package != "tests" or path.name != "__init__.py":
                (folder / package / path.name).symlink_to(path)


def module_of(path: str) -> str:
    """The name under which a file is imported."""
    name = path.removesuffix(".py").removesuffix("/__init__")
    for folder in sorted(PACKAGES, key=len, reverse=True):
        if name == folder or name.startswith(folder + "/"):
            return (PACKAGES[folder] + name[len(folder) :]).replace("/", ".")
    return name.replace("/", ".")


def graph_of(root: Path, texts: dict[str, str]) -> grimp.ImportGraph:
    """Who imports whom, also by name; `texts` are those of all files of Python."""
    with tempfile.TemporaryDirectory() as links:
        linked(root, Path(links))
        before = list(sys.path)
        # Of two folders the one with an __init__ would win: that of the tests has one.
        sys.path[:] = [links, *(p for p in before if p and Path(p).resolve() != root)]
        try:
            names = sorted({package.split("/")[0] for package in PACKAGES.values()})
            graph = grimp.build_graph(*names, cache_dir=None)
        finally:
            sys.path[:] = before
    modules = {module_of(path): text for path, text in texts.items()}
    for importer, text in modules.items():
        if importer not in graph.modules:
            continue
        named = {COMMAND} if "beam-ldp" in text and importer.startswith("tests.") else set()
        for name, dot in NAMED.findall(text):
            if dot:
                named |= {m for m in modules if m.rpartition(".")[0] == name}
            else:
                named.add(name)
        for name in (named & graph.modules) - {importer}:
            graph.add_import(importer=importer, imported=name)
    for path in texts:
        folder, _, name = path.rpartition("/")
        if name == "conftest.py" and module_of(path) != CORE:
            below = module_of(folder)
            for test in [m for m in graph.modules if m.startswith(below + ".test_")]:
                graph.add_import(importer=test, imported=module_of(path))
    return graph


def distances(graph: grimp.ImportGraph, starts: Iterable[str]) -> dict[str, int]:
    """Of each module that sees one of these: the fewest imports between them."""
    found = {start: 0 for start in starts if start in graph.modules}
    queue = list(found)
    for module in queue:
        for importer in sorted(graph.find_modules_that_directly_import(module)):
            if importer not in found and importer != CORE:
                found[importer] = found[module] + 1
                queue.append(importer)
    return found


def tests_room(path: str, folders: set[str]) -> str:
    """The folder of tests that mirrors a file's, or the nearest above; packaging for the rest."""
    room = module_of(path).replace("/", ".").split(".")[:-1] if "/" in path else []
    room = room[1:] if room[:1] in (["beam_ldp"], ["tests"]) else room
    while room and "tests/" + "/".join(room) not in folders:
        room.pop()
    return "tests/" + ("/".join(room) or "packaging")


def chosen(changed: list[str], graph: grimp.ImportGraph, texts: dict[str, str]) -> dict[str, int]:
    """Test files that see a change, the nearest first, with how far they are."""
    tests = {
        module_of(path): path
        for path in texts
        if re.match(r"tests/(.*/)?test_\w+\.py", path) and not ELSEWHERE.match(path)
    }
    folders = {path.rpartition("/")[0] for path in tests.values()}
    core = {CORE} | {
        m for m in graph.find_modules_directly_imported_by(CORE) if m.startswith("tests.")
    }
    rooms = {tests_room(path, folders) for path in changed}
    others = [path for path in changed if not path.endswith(".py")]
    starts = {module_of(path) for path in changed if path.endswith(".py")}
    for path in set(changed) - set(others) - set(texts):  # importers of what is gone
        package, _, name = map(re.escape, module_of(path).rpartition("."))
        gone = re.compile(rf"\b{package}(\.{name}\b| import [^)\n]*\b{name}\b)")
        starts |= {module_of(other) for other, text in texts.items() if gone.search(text)}
    of_others = {tests_room(path, folders) for path in others}
    for name in {other.rpartition("/")[2] for other in others if "." in other.strip(".")}:
        starts |= {module_of(path) for path, text in texts.items() if name in text}
    seen = distances(graph, starts)
    if starts & core:
        seen = dict.fromkeys(graph.modules, 99) | seen
    far = {}
    for module, path in tests.items():
        at_home = any(path.startswith(room + "/") for room in rooms)
        if module in seen:
            far[path] = seen[module] and 1 + (0 if at_home else seen[module])
        elif any(path.startswith(room + "/") for room in of_others):
            far[path] = 1
    nearest = sorted(far, key=lambda path: (far[path], seen.get(module_of(path), 99), path))
    return {path: far[path] for path in nearest}


def fitting(far: dict[str, int], seconds: dict[str, float], budget: float) -> list[str]:
    """The first of them that take so many seconds of CPU; of changed ones, all."""
    taken = 0.0
    found = []
    for path, distance in far.items():
        cost = seconds.get(path, UNKNOWN)
        if distance == 0 or taken + cost <= budget:
            found.append(path)
            taken += cost
    return found


def git(*order: str) -> list[str]:
    """Lines of git's answer; none where it fails."""
    done = subprocess.run(["git", *order], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_since(base: str | None) -> list[str]:
    """Files that differ from a commit (module docstring), and those that git does not know."""
    new = git("ls-files", "--others", "--exclude-standard")
    if base is None:
        dirty = bool(git("diff", "--name-only", "HEAD")) or any("/" in path for path in new)
        main = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
        base = "HEAD" if dirty or not main else main[0]
    elif not git("rev-parse", "--verify", base + "^{commit}"):
        raise SystemExit(f"there is no commit {base}")
    return sorted({*git("diff", "--name-only", base), *new})


def main() -> None:
    """Print what to run, and to stderr why."""
    flags = argparse.ArgumentParser()
    flags.add_argument("--base")
    flags.add_argument("--minutes", type=float, default=4)
    flags.add_argument("--jobs", type=int, default=2)
    flags.add_argument("files", nargs="*")
    told = flags.parse_args()
    changed = told.files or changed_since(told.base or None)
    texts = {
        path: (ROOT / path).read_text("utf-8")
        for path in git("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
        if (ROOT / path).is_file()
    }
    far = chosen(changed, graph_of(ROOT, texts), texts)
    timed = ROOT / SECONDS
    seconds = json.loads(timed.read_text("utf-8")) if timed.is_file() else {}
    found = fitting(far, seconds, told.minutes * 60 * told.jobs)
    for path in found:
        print(f"{far[path]:5d}  {path}", file=sys.stderr)
    left = len(far) - len(found)
    rest = f"; {left} farther ones are left to `make test`, or MINUTES={told.minutes:g}"
    print(
        f"{len(changed)} files changed, {len(far)} test files see them, {len(found)} are run"
        + (rest if left else ""),
        file=sys.stderr,
    )
    print(*found)


if __name__ == "__main__":
    main()
