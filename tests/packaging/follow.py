"""Following a page: its Python, its files and its commands, in one shell and one fresh folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.packaging.doc_commands import Block, blocks
from tests.warm import warm_commands

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAKING_DATA = {"engines.md", "real-data.md", "streaming.md"}  # by their Python, which runs first
OF_A_CLONE = (".engines", ".venv-tff", "tests")  # what pages expect in the folder they are read in
_PYTHON = re.compile(r'^```python(?: title="(?P<title>[\w.]+)")?\n(?P<code>.*?)^```', re.M | re.S)


def needing(target: str) -> list[str]:
    """Pages with a block that only this target of the Makefile runs."""
    pages = sorted(DOCS.glob("*.md"))
    return [page.name for page in pages if any(b.target == target for b in blocks(page))]


def follow(
    name: str, place: Path, data: Path | None = None, *, target: str = "", timeout: float
) -> None:
    """Runs a page from top to bottom.

    Args:
        name: of the page.
        place: a fresh folder, where it is run.
        data: folder of files that the page's commands read.
        target: which marked blocks are run besides those that are not marked.
        timeout: seconds.
    """
    for folder, names in ((data, None), (ROOT, OF_A_CLONE)):
        for file in folder.iterdir() if folder else ():
            if names is None or (target and file.name in names):
                (place / file.name).symlink_to(file)
    found = [b for b in blocks(DOCS / name) if not b.reason and b.target in ("", target)]
    script = _python_of(name, place) if name in MAKING_DATA else []
    script += _lines(found)
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(script)],
        cwd=place,
        env={
            **os.environ,
            "PATH": os.pathsep.join(_commands(target) + [os.environ["PATH"]]),
            "BEAM_LDP_ENGINES": os.environ.get("BEAM_LDP_ENGINES", str(ROOT / ".engines")),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _commands(target: str) -> list[str]:
    """Where commands are looked for: as installed where a page runs on engines, else warm."""
    installed = str(Path(sys.executable).parent)
    return [installed] if target else [warm_commands(), installed]


def _python_of(name: str, place: Path) -> list[str]:
    """The data first, and the files that the page says to save."""
    lines = []
    for i, block in enumerate(_PYTHON.finditer((DOCS / name).read_text("utf-8"))):
        file = place / (block["title"] or f"_block_{i}.py")
        file.write_text(block["code"], "utf-8")
        if not block["title"]:
            lines.append(f"python {file.name}")
    return lines


def _lines(found: list[Block]) -> list[str]:
    return [line for block in found for line in block.script]
