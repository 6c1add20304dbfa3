"""Statements of kinds from elsewhere, and how templates become Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_ldp.release import statement as module
from beam_ldp.release.statement import say_by, statement
from tests.release.test_statement import RECORD

pytestmark = pytest.mark.exact


def test_another_package_brings_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "toy_release"
    (place / "templates").mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / "templates" / "toy.md.j2").write_text(
        '{% extends "statement.md.j2" %}\n{% block list %}yes and no{% endblock %}\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "_packages", [*module._packages])
    try:
        say_by("toy_release")
        said = statement({**RECORD.told(), "kind": "toy"})
    finally:
        module.templates.cache_clear()
    assert "* yes and no, the mechanism and its parameters (public input" in said
    assert "the list of values" in statement(RECORD.told())


def test_lines_become_paragraphs_lists_and_tables() -> None:
    told = "# a\nb\nc\n, d\n\n\n* e\nf\n\n* g\n\n| h |\ni |\n| j |\n\n\n**k**\nl\n"
    assert module._lines(told) == [
        "# a", "b c, d", "", "* e f", "* g", "", "| h | i |", "| j |", "", "**k** l",
    ]  # fmt: skip
