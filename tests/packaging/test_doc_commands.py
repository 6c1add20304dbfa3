"""What the documentation tells people to type, typed; what cannot be typed here says why."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.packaging.doc_blocks import excused_python
from tests.packaging.doc_commands import OF_THE_CLONE, PROGRAMS, Block, blocks, is_pattern
from tests.packaging.follow import ROOT, follow, needing

PAGES = sorted((ROOT / "docs").glob("*.md"))
FOUND = {page.name: list(blocks(page)) for page in PAGES}
RUN = {
    name: [block for block in found if not block.reason and not block.target]
    for name, found in FOUND.items()
    if any(block.script for block in found if not block.reason and not block.target)
}
TARGETS = {"test-slow-engines", "test-tff-slow", "test-flower"}
PEOPLE = 100_000
ASKED_OF_EXPERIMENTS = 150_000  # 143,714 are planned for
URLS = [f"https://example.org/{page}" for page in range(10)]


def parse(tmp_path: Path, text: str) -> list[Block]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return list(blocks(page))


@pytest.mark.exact
def test_blocks_are_found_as_a_reader_finds_them(tmp_path: Path) -> None:
    text = (
        "Text\n\n```sh\nbeam-ldp plan frequency --expected-users 1 \\\n    --x 2   # why\n```\n\n"
        "    export A=b\n    beam-ldp frequency ... --dataset d\n\n"
        "<!-- not run: needs a moon -->\n\n```\nmake demo\n```\n\n"
        "```python\nbeam = 1\n```\n\n    not a program\n\n```\nvalues | Randomize(...)\n```\n"
    )
    one, two, three = parse(tmp_path, text)
    assert one.lines == ("beam-ldp plan frequency --expected-users 1  --x 2",) and one.line == 3
    assert two.script == ["export A=b", "beam-ldp frequency --help"] and not two.reason
    assert three.reason == "needs a moon" and three.script == []


@pytest.mark.exact
def test_what_is_named_of_the_clone_exists_and_every_reason_says_something() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    every = [block for found in FOUND.values() for block in found]
    assert len(every) > 40
    for block in every:
        assert not block.reason or len(block.reason) > 10, block
        for line in block.lines:
            if clone := OF_THE_CLONE.match(line):
                path = clone["file"] or f"{clone['module'].replace('.', '/')}.py"
                assert (ROOT / path.split("::")[0]).exists(), block
            if line.startswith("make "):
                for target in re.findall(r" ([a-z][a-z-]*)", line):
                    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), block


@pytest.mark.exact
def test_few_blocks_are_not_run() -> None:
    """The list is short, and a marker that marks nothing is a leftover."""
    every = [block for found in FOUND.values() for block in found]
    skipped = [block for block in every if block.reason]
    elsewhere = [block for block in every if block.target]
    text = "".join(page.read_text("utf-8") for page in PAGES)
    python = [line for page in PAGES for line in excused_python(page)]
    assert text.count("<!-- not run: ") == len(skipped) + len(python) <= 20
    assert text.count("<!-- run by make ") == len(elsewhere) >= 8
    assert {block.target for block in elsewhere} == TARGETS
    assert {"engines.md", "streaming.md"} <= set(needing("test-slow-engines"))
    for name, found in RUN.items():
        for block in found:
            for line in block.script:
                assert line.split()[0] in PROGRAMS, f"{name}:{block.line}: {line}"
                assert is_pattern(line) or not re.search(r"(?<!\$)\b[A-Z]{4,}\b(?!=)", line), block


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages' commands read."""
    folder = tmp_path_factory.mktemp("docs")
    rng = np.random.default_rng(5)
    lists = {"urls": URLS, "countries": ["de", "fr"], "hair": ["black", "brown", "red"],
             "eyes": ["blue", "brown"], "colours": ["red", "green"]}  # fmt: skip
    for name, values in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{value}\n" for value in values))
    (folder / "events").mkdir()
    for part in range(4):
        rows = 2 * PEOPLE // 4
        table = {"uid": np.arange(part * rows, (part + 1) * rows), "url": rng.choice(URLS, rows)}
        table["country"] = rng.choice(["de", "fr", "es"], rows)
        pq.write_table(pa.table(table), folder / "events" / f"{part}.parquet")
    uid = np.arange(PEOPLE)
    people = {"uid": uid, "age": rng.integers(18, 90, PEOPLE)}
    people |= {"bmi": rng.uniform(18, 40, PEOPLE), "charges": rng.exponential(9000, PEOPLE)}
    pa_csv.write_csv(pa.table(people), folder / "people.csv")
    pq.write_table(pa.table(people), folder / "people.parquet")
    (folder / "ranges.csv").write_text("column,low,high\nage,18,100\nbmi,10,60\ncharges,0,50000\n")
    survey = {"hair": rng.choice(lists["hair"], PEOPLE), "eyes": rng.choice(lists["eyes"], PEOPLE)}
    pa_csv.write_csv(pa.table(survey), folder / "survey.csv")
    pa_csv.write_csv(pa.table({"url": rng.choice(URLS, 10**6)}), folder / "values.csv")
    visits = {"uid": np.tile(uid, 30), "minutes": rng.normal(95, 60, 30 * PEOPLE).round(1)}
    pa_csv.write_csv(pa.table(visits), folder / "visits.csv")
    arm = rng.integers(0, 2, ASKED_OF_EXPERIMENTS)
    bought = rng.random(len(arm)) < np.where(arm, 0.11, 0.10)
    experiment = {"uid": np.arange(len(arm)), "variant": np.array(["control", "variant"])[arm]}
    pq.write_table(pa.table({**experiment, "bought": bought}), folder / "visits.parquet")
    plays = np.array(["1:blue", "1:red"])[np.arange(230) % 2]  # of the service in bandits.md
    rewards = {"play": plays, "reward": rng.choice([-1.0, 1.0], 230), "uid": uid[:230]}
    pq.write_table(pa.table(rewards), folder / "batch1.parquet")
    return folder


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize("name", sorted(RUN))
def test_commands_of_a_page_run(name: str, data: Path, tmp_path: Path) -> None:
    """In one shell, from top to bottom, as a reader would."""
    follow(name, tmp_path, data, timeout=600)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.engines
@pytest.mark.parametrize("name", needing("test-slow-engines"))
def test_commands_of_a_page_run_on_engines(name: str, data: Path, tmp_path: Path) -> None:
    """All of them, those that need Prism, Spark or Flink too: tutorials to their last line."""
    follow(name, tmp_path, data, target="test-slow-engines", timeout=880)
    if name == "engines.md":
        estimates = [tmp_path / place / "estimates.csv" for place in ("laptop", "spark", "cluster")]
        assert len({path.read_bytes() for path in estimates}) == 1
    if name == "streaming.md":
        found = [path.name for path in (tmp_path / "stream").iterdir()]
        tables = list((tmp_path / "stream").glob("*/estimates.csv"))
        assert len(tables) >= 6 and any("withheld" in name for name in found), found
