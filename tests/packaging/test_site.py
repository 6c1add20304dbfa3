"""The site's own facts: versions as pinned, a sentence for every plot, notebooks without output."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import pytest

pytestmark = pytest.mark.exact

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
PINS = {"core": "core-py311", "oldest": "oldest-py310", "tensorflow": "full-py311"}


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, flags=re.MULTILINE))


def rows(page: str) -> list[list[str]]:
    text = (DOCS / page).read_text("utf-8")
    return [
        [c.strip() for c in line.split("|")[1:-1]] for line in re.findall(r"^\|.*$", text, re.M)
    ]


@pytest.fixture(scope="module")
def hooks() -> types.ModuleType:
    """The hook of the site, without MkDocs."""
    structure, files = types.ModuleType("mkdocs.structure"), types.ModuleType("files")
    files.File = files.Files = object  # type: ignore[attr-defined]
    names = {"mkdocs": types.ModuleType("mkdocs"), "mkdocs.structure": structure}
    names["mkdocs.structure.files"] = files
    kept = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / ".ci" / "docs_hooks.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name, module_before in kept.items():
            sys.modules.pop(name)
            if module_before is not None:
                sys.modules[name] = module_before
    return module


def test_libraries_have_the_versions_of_the_pins() -> None:
    table = {row[0]: row[1:] for row in rows("stability.md") if len(row) == 4}
    for label in ("NumPy", "SciPy", "PyArrow", "MLflow", "dp-accounting"):
        assert table[label] == [pins(name)[label.lower()] for name in PINS.values()], label


def test_engines_have_the_versions_that_are_fetched() -> None:
    table = {row[0]: row[1:] for row in rows("stability.md") if len(row) == 6}
    spark = (ROOT / "tests" / "engines" / "spark-pom.xml").read_text("utf-8")
    flink = (ROOT / "tests" / "engines" / "flink-pom.xml").read_text("utf-8")
    cache = (ROOT / "tests" / "engines" / "cache.py").read_text("utf-8")
    beam = pins(PINS["core"])["apache-beam"]
    version = r"</artifactId><version>([^<]+)</version>"
    java = re.findall(rf"beam-runners-spark-3{version}", spark)
    java += re.findall(rf"beam-runners-flink-[\d.]+{version}", flink)
    sparks = set(re.findall(rf"<artifactId>spark-\w+_2\.12{version}", spark))
    (flinks,) = re.findall(r"beam-runners-flink-([\d.]+)<", flink)
    assert len(set(java)) == len(sparks) == 1
    (prism,) = re.findall(r"cmd/prism@v([\d.]+)", cache)
    for label, row in table.items():
        if set(row[0]) != {"-"} and label not in ("what", "PySpark without Beam"):
            assert row[0] == beam, label
        if label.startswith(("Spark", "Flink")):
            assert row[2] == java[0], label
    assert table["Prism"][1] == f"Prism {prism}"
    assert (
        next(row for name, row in table.items() if name.startswith("Flink"))[1] == f"Flink {flinks}"
    )
    for label in ("Spark, in the job server and as a cluster", "PySpark without Beam"):
        assert table[label][1] == f"Spark {next(iter(sparks))}"
    assert pins("pyspark-py311")["pyspark"] in sparks
    tensorflow = pins(PINS["tensorflow"])
    named = [f"TensorFlow Federated {tensorflow['tensorflow-federated']}",
             f"TensorFlow {tensorflow['tensorflow']}"]  # fmt: skip
    assert ", ".join(named) in table
    flower = pins("flower-py311")["flwr"]
    assert f"Flower {flower}: a SuperLink and SuperNodes on loopback" in table
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for row in table.values():
        for target in re.findall(r"`make ([\w-]+)`", row[-1]):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_plot_says_how_to_read_it(hooks: types.ModuleType) -> None:
    plots = [*(ROOT / "benchmarks" / "results").rglob("*.png"), *(DOCS / "images").glob("*.png")]
    assert {plot.name for plot in plots} == set(hooks.READ)
    assert all(len(said) > 40 and said.rstrip().endswith(".") for said in hooks.READ.values())


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stripped_short_and_readable(notebook: Path) -> None:
    held = json.loads(notebook.read_text("utf-8"))
    first, *_ = held["cells"]
    assert first["cell_type"] == "markdown" and first["source"][0].startswith("# ")
    assert set(held["metadata"]) == {"kernelspec", "language_info"}
    assert len({cell["id"] for cell in held["cells"]}) == len(held["cells"]) <= 25
    for cell in held["cells"]:
        assert not cell["metadata"]
        source = "".join(cell["source"])
        assert all(len(line) <= 120 for line in source.splitlines())
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ast.parse(source)


def test_all_five_notebooks_are_there_and_in_the_site() -> None:
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"quick-start", "choosing-epsilon", "means", "federated", "audit"}
    site = (ROOT / ".ci" / "mkdocs.yml").read_text("utf-8")
    for name in names:
        assert f"notebooks/{name}.md" in site


def test_a_page_of_a_notebook_shows_what_it_gave(hooks: types.ModuleType, tmp_path, monkeypatch):
    notebook = tmp_path / "quick-start.ipynb"
    page = hooks.notebook_page(NOTEBOOKS[-1])
    assert page.startswith("# ") and "```python\n" in page

    def cell(kind: str, source: str, outputs: list) -> dict:
        return {"cell_type": kind, "source": [source], "outputs": outputs}

    stream = {"output_type": "stream", "name": "stdout", "text": ["two\n"]}
    warned = {"output_type": "stream", "name": "stderr", "text": ["a warning\n"]}
    picture = {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "<F>"}}
    table = {
        "output_type": "execute_result",
        "data": {"text/html": ["<style>x</style><table>\n\n"]},
    }
    plain = {"output_type": "execute_result", "data": {"text/plain": ["<a & b>"]}}
    cells = [cell("markdown", "# Title", []), cell("code", "1 + 1", [stream, warned, picture]),
             cell("code", "frame", [table, plain])]  # fmt: skip
    monkeypatch.setattr(hooks, "EXECUTED", tmp_path)
    notebook.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    page = hooks.notebook_page(notebook)
    assert "```text\ntwo\n" in page and "a warning" not in page and "base64,aGk=" in page
    assert '<div class="output"><table></div>' in page and "<style" not in page
    assert "<pre>&lt;a &amp; b&gt;</pre>" in page and "without running" not in page
    monkeypatch.setattr(hooks, "EXECUTED", tmp_path / "none")
    assert "without running" in hooks.notebook_page(notebook)


def test_links_to_notebooks_lead_to_their_pages(hooks: types.ModuleType) -> None:
    text = "[a](notebooks/quick-start.ipynb) [b](../README.md)"
    assert hooks.on_page_markdown(text) == "[a](notebooks/quick-start.md) `README.md`"
