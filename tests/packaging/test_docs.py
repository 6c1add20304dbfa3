"""Every Python block of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beam_ldp.randomizers import registry
from tests.packaging.doc_blocks import BLOCK, code_of, excused_python, hidden_python
from tests.warm import run_warm

DOCS = Path(__file__).resolve().parents[2] / "docs"
TESTS = DOCS.parent / "tests"
MARK = "-" * 20
TENSORFLOW = {  # run by tests/tff_adapters, where it is
    "federated-migration.md", "federated.md", "personalisation.md", "reconstruction.md",
    "training.md",
}  # fmt: skip
SPARK = {"pyspark.md"}  # run by tests/pyspark, where Spark for Python is
GENERATED = {"gallery.md"}  # by the site's hook
WITH_CODE = {page.name for page in DOCS.glob("*.md") if code_of(page)}
PAGES = sorted(WITH_CODE - TENSORFLOW - SPARK)


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
def test_pages_are_found_and_links_lead_somewhere():
    assert {"accounting.md", "estimates.md", "stages.md"} <= set(PAGES)
    assert TENSORFLOW | SPARK <= WITH_CODE
    for page in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and target not in GENERATED:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


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
    for task, pages in (("frequency", ["oracles.md"]), ("mean", ["means.md", "priv-unit.md"])):
        told = "".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
        missing = [kind.__name__ for kind in registry.offered(task) if kind.__name__ not in told]
        assert not missing
