"""What the README tells people to type, typed: its commands and its Python, in a fresh folder.

Of a command with `...` or `[` in it, a pattern, only the existence of its sub-command is checked.
What an `export` sets holds for the commands after it, as in the reader's shell.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.warm import run_warm

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
USERS = 1_000_000


def commands(program: str) -> list[str]:
    """Lines of code blocks that start with the program, continued lines joined, no comments."""
    text = README.replace("\\\n", " ")
    found = re.findall(rf"^(?:```)?[ \t]*(?:\$ )?({program} .*)$", text, flags=re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line).strip() for line in found]


def is_pattern(command: str) -> bool:
    return "..." in command or "…" in command or "[" in command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the README's commands read: people, the pages they visited, their numbers."""
    folder = tmp_path_factory.mktemp("readme")
    urls = [f"https://example.org/{page}" for page in range(100)]
    (folder / "urls.txt").write_text("".join(f"{url}\n" for url in urls))
    visits = np.random.default_rng(3).zipf(1.5, USERS) % len(urls)
    column = pa.DictionaryArray.from_arrays(pa.array(visits.astype(np.int32)), urls)
    table = pa.table({"uid": np.arange(USERS), "url": column.cast(pa.string())})
    pq.write_table(table, folder / "events.parquet")
    rng = np.random.default_rng(4)
    people = {"uid": np.arange(100_000), "age": rng.integers(18, 90, 100_000)}
    people |= {"bmi": rng.uniform(18, 40, 100_000), "charges": rng.exponential(9000, 100_000)}
    pa_csv.write_csv(pa.table(people), folder / "people.csv")
    (folder / "ranges.csv").write_text("column,low,high\nage,18,100\nbmi,10,60\ncharges,0,50000\n")
    visits = {"uid": np.tile(np.arange(10_000), 30), "minutes": rng.normal(95, 60, 300_000)}
    pa_csv.write_csv(pa.table(visits), folder / "visits.csv")
    return folder


@pytest.mark.exact
def test_make_targets_exist() -> None:
    named = {word for line in commands("make") for word in line.split()[1:] if "=" not in word}
    assert {"demo", "test"} <= named
    makefile = (ROOT / "Makefile").read_text()
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


@pytest.mark.e2e
@pytest.mark.slow
def test_commands_run(folder: Path) -> None:
    program = str(Path(sys.executable).with_name("beam-ldp"))
    lines = commands("(?:beam-ldp|export)")
    assert any(not is_pattern(line) for line in lines)
    variables: dict[str, str] = {}
    for line in lines:
        first, *words = shlex.split(line)
        if first == "export":
            name, value = words[0].split("=", 1)
            variables[name] = value
        else:
            typed = [words[0], "--help"] if is_pattern(line) else words
            done = run_warm(program, *typed, cwd=folder, timeout=800, **variables)
            assert done.returncode == 0, f"{line}\n{done.stderr[-3000:]}"


@pytest.mark.e2e
def test_python_examples_run(folder: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        script = folder / f"example_{number}.py"
        script.write_text(block)
        done = run_warm(str(script), cwd=folder)
        assert done.returncode == 0, done.stderr[-3000:]
