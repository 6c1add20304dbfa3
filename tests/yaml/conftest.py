"""Pipelines of Beam YAML in this process, and the pages' own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "beam-yaml.md"
PIPELINES = dict(re.findall(r'```yaml title="(\S+)"\n(.*?)```', PAGE.read_text("utf-8"), re.DOTALL))
LOCAL = ["--runner=FnApiRunner"]

Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(text, *flags)`: a pipeline to its end, in a folder of the test."""
    from apache_beam.yaml import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)

    def once(text: str, *flags: str) -> None:
        main.run([f"--yaml_pipeline={text}", *(flags or LOCAL)])

    return once


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a JSON sink."""
    return [
        json.loads(line)
        for path in sorted(folder.glob(f"{name}*"))
        for line in path.read_text("utf-8").splitlines()
    ]
