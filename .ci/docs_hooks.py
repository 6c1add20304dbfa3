"""What MkDocs does not do by itself: pages made from the repository's own files.

The gallery shows every plot under benchmarks/results/ beside the command that makes it; links that
leave docs/ become plain text (the site has no repository to point to).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PLOTS = ROOT / "benchmarks" / "results"


def on_files(files: Files, config: Any) -> Files:
    """Add the plots, and the gallery that shows them."""
    lines = [
        "# Gallery",
        "",
        "Every plot that the benchmarks draw, with what it is drawn from.",
        "",
    ]
    for plot in sorted(PLOTS.rglob("*.png")):
        place = f"gallery/{plot.relative_to(PLOTS).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(plot)))
        title = plot.stem.replace("_", " ").replace("-", " ").capitalize()
        lines += [f"## {title}", "", f"`benchmarks/results/{plot.relative_to(PLOTS)}`", ""]
        lines += [f"![{title}]({place})", ""]
    files.append(File.generated(config, "gallery.md", content="\n".join(lines)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside docs/ as code."""
    return re.sub(r"\[[^\]]*\]\(\.\./([^)]+)\)", r"`\1`", markdown)
