"""Every Python block of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beam_ldp.randomizers import registry
from tests.packaging.doc_blocks import BLOCK, code_of, excused_python, hidden_python
from tests.packaging.stable import commands, flags_of
from tests.warm import run_warm

ROOT = Path(__file__).resolve().parents[2]
DOCS, TESTS = ROOT / "docs", ROOT / "tests"
MARK = "-" * 20
TENSORFLOW = {"federated.md", "training.md"}  # run by tests/tff_adapters, where it is
FLOWER = {"flower.md", "migrating.md"}  # run by tests/flower_adapters, where it is
SPARK = {"pyspark.md"}  # run by tests/pyspark, where Spark for Python is
GENERATED = {"gallery.md"}  # by the site's hook
WITH_CODE = {page.name for page in DOCS.glob("*.md") if code_of(page)}
PAGES = sorted(WITH_CODE - TENSORFLOW - FLOWER - SPARK)


@pytest.mark.e2e
@pytest.mark.parametrize("name", PAGES)
def test_code_blocks(name, tmp_path):
    blocks = BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    program = f"\nprint({MARK!r})\n".join(code for code, _ in blocks)
    script = tmp_path / "page.py"
    script.write_text(program, encoding="utf-8")
    run = run_warm(str(script), cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-2000:]
    for (_, promised), printed in zip(blocks, run.stdout.split(MARK), strict=True):
        if promised:
            lines = [line.strip() for line in promised.strip().splitlines()]
            assert [line.strip() for line in printed.strip().splitlines()] == lines


@pytest.mark.exact
def test_pages_are_found():
    assert {"accounting.md", "outputs.md", "stages.md"} <= set(PAGES)
    assert TENSORFLOW | SPARK <= WITH_CODE


def anchors(page: Path) -> set[str]:
    """Those that the site gives to the headings of a page."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.M | re.S)
    names = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", n).strip().lower()) for n in names}


def dead_links(page: Path) -> list[str]:
    """Links to a file that is not there, or to a heading that its page does not have."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if "://" in target or name in GENERATED:
            continue
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(f"{page.name}: {target}")
    return dead


@pytest.mark.exact
def test_links_lead_somewhere():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    pages += [*DOCS.glob("*.md"), *(ROOT / "benchmarks" / "results").glob("*.md")]
    pages += [ROOT / "deploy" / "core" / "README.md"]
    assert len(pages) > 40
    assert not [dead for page in pages for dead in dead_links(page)]


@pytest.mark.exact
def test_dead_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# What `it` costs\n```\n# no heading\n```\n[a](page.md#what-it-costs) [b](#what-it-costs)"
        " [c](https://example.org/x) [d](gone.md) [e](#no-heading)\n"
    )
    assert dead_links(page) == ["page.md: gone.md", "page.md: #no-heading"]


@pytest.mark.exact
def test_pages_that_code_and_messages_name_exist():
    folders = (
        "beam_ldp",
        "pipelines",
        "mlflow",
        "tff_adapters",
        "flower_adapters",
        "tests",
        "benchmarks",
        ".ci",
    )
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    files += [ROOT / name for name in ("Makefile", "pyproject.toml", "CONTRIBUTING.md", ".ci/run")]
    named = {
        (name, path.name)
        for path in files
        for name in re.findall(r"\bdocs/([\w/-]+\.(?:md|js|html))", path.read_text("utf-8"))
    }
    assert len(named) > 15
    assert not [pair for pair in sorted(named) if not (DOCS / pair[0]).exists()]


@pytest.mark.exact
@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_no_python_hides_where_no_test_runs_it(page):
    """Every block is Python that runs, commands, what a program prints, or labelled text."""
    assert not hidden_python(page)


@pytest.mark.exact
def test_hidden_python_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n    x = f(1)\n\n```\nimport os\n```\n\n```python\nx = 1\n```\n\n    {'a': 1}\n\n"
        "```text\nx = f(1)\n```\n\n    a table   of words\n\n```sh\nls\n```\n\n"
        "   ```\n   g()\n   ```\n"
        '\n```python title="feed.py"\ny = 1\n```\n'
        "\n<!-- not run: needs a moon -->\n\n    import moon\n"
    )
    assert hidden_python(page) == [3, 5, 25]
    assert excused_python(page) == [35]
    assert code_of(page) == ["x = 1\n"]


@pytest.mark.exact
def test_answers_to_nist_name_files_and_commands_that_exist():
    text = (DOCS / "nist.md").read_text("utf-8")
    named = re.findall(r"`((?:beam_ldp|pipelines|benchmarks|tests)/[\w./-]*)`", text)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
    flags = {name: set(flags_of(told)) for name, told in commands().items()}
    for words in re.findall(r"`beam-ldp ([^`]+)`", text):
        command, flag = re.fullmatch(r"([a-z -]*?[a-z])(?: (--[a-z-]+))?", words).groups()
        assert any(name == command or name.startswith(f"{command} ") for name in flags), words
        assert not flag or flag in flags[command], words


@pytest.mark.exact
def test_errata_name_tests_that_exist():
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    tests: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):  # some rooms have files of one name
        tests[path.name] = tests.get(path.name, "") + path.read_text(encoding="utf-8")
    file = ""
    for named, function in re.findall(r"`(?:[\w/]*?(test_\w+\.py))?(?:::(test_\w+))?`", text):
        file = named or file
        if file:
            assert file in tests, file
            assert not function or f"def {function}(" in tests[file], f"{file}::{function}"


@pytest.mark.exact
def test_every_mechanism_has_its_place_in_the_documentation():
    page = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    for task, heading in (("frequency", "Frequency oracles"), ("mean", "Means")):
        told = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        missing = [kind.__name__ for kind in registry.offered(task) if kind.__name__ not in told]
        assert not missing
