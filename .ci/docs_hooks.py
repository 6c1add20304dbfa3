"""What MkDocs does not do by itself: pages made from the repository's own files.

The gallery shows every plot under benchmarks/results/ and docs/images/ with a sentence on how to
read it; notebooks become pages, with what they gave where `make test-notebooks` has run them; links
that leave docs/ become plain text (the site has no repository to point to).
"""

# ruff: noqa: E501  (sentences of prose)

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PLOTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
NOTEBOOKS = ROOT / "docs" / "notebooks"
EXECUTED = ROOT / "build" / "notebooks"

# How each plot is to be read; tests/packaging/test_site.py wants one for every plot.
READ = {
    "demo.png": "`make demo`. Dots are estimates, bars hold the truth for all values of the list at once in 95 of 100 runs, "
    "and crosses are the truth, which only a demo has.",
    "plan.png": "`beam-ldp plan frequency --plot`. Follow your budget's dashed line down to the lowest curve: that "
    "mechanism, at the dot, is the plan; a curve that lies above another at your line is never the better choice there.",
    "plan_mean.png": "`beam-ldp plan mean --plot`. Curves that stay apart at all budgets differ in kind (many shuffled "
    "messages against one report); where two cross, the budget decides.",
    "price.png": "`beam-ldp privacy --plot`. The thick line is the price that is proved; the shaded area below the "
    "dashed one is out of reach for every analysis, so the gap between them is all that a better proof could gain.",
    "mean_accuracy.png": "Down is more accurate, left is fewer bits; the lower left of the dotted cross is what was "
    "aimed at. Points at `none` are within rounding of the least possible error.",
    "l2_frontier.png": "`python -m benchmarks.l2_frontier`. Down is more accurate; left is shorter on the left and better protected "
    "on the right. Full dots are as good as PrivUnit where they are lowest; what lies below them takes trust in the shuffler.",
    "paper_trainings.png": "`python -m benchmarks.paper_trainings plot`. Curves of one panel are one training, priced in three ways: "
    "left is better protected. Black squares are what the papers print. Bands are of one standard deviation over seeds; the thin "
    "line is the seed that has come furthest.",
    "recovery.png": "`python -m benchmarks.recovery`. A solid line is what a person has to keep so that a report can be "
    "turned back into the value; what lies between it and the dotted one of its colour is saved against keeping the value.",
    "levels.png": "`python -m benchmarks.levels`. The distance between the two curves is what readers save together by refining "
    "one public report: random bits here, and epsilons, which add up along the red curve only.",
    "gradient_inversion.png": "`python -m benchmarks.gradient_inversion`. Each row is what one message shows of the first row; "
    "without a mechanism that is everything, at a local epsilon of 4 nothing.",
    "attacks.png": "`python -m benchmarks.attacks`. Below each image what one message gave to somebody who knows other images: a digit that "
    "can still be read in a row is not protected at that epsilon, whatever a bound for unknown directions says.",
    "attacks_message.png": "The same messages without that knowledge: compare a row with the same row of the picture before.",
    "experiments.png": "`python -m benchmarks.experiments`. Read down at one epsilon: no locally private test lies below the blue "
    "line, and none of any kind below the dotted one; the distance to grey is what privacy costs, that to red what trusting nobody costs.",
    "interactivity.png": "`python -m benchmarks.interactivity`. Lower is better: read down at the epsilon that people are promised. "
    "The dashed and dotted lines turn up again, for the price of fresh people grows as e to the epsilon.",
    "bandits.png": "`python -m benchmarks.bandits`. Lower is better. Left, a curve that bends away from the red ones has found the best "
    "action; right, what a smaller epsilon costs: hardly anything where somebody is trusted, and its inverse where nobody is.",
    "bandits_core_set.png": "The same with a thousand actions. Left of the crossing few actions are better, right of it all; blue is "
    "flat, which is what they are for.",
    "bandits_data.png": "`python -m benchmarks.bandits_data`. Solid against dashed: what a short list of policies made elsewhere gains over "
    "policies made of contexts alone. Down to red: what it costs that nobody is trusted.",
    "few_random_bits.png": "`python -m benchmarks.few_random_bits`. Where a curve leaves the blue one, the bits no longer suffice; "
    "the green one of the left picture spends them on fewer people and stays close.",
    "federated_curves.png": "The same trainings three times: only the price on the horizontal axis differs. Read the "
    "distance between two curves at one height; the band is the spread over seeds, the dotted line no privacy at all.",
    "message_curves.png": "Left, how fast a mechanism learns for what it tells a server; right, for what it tells readers of "
    "models: between two curves at one height lies the price of one in units of the other. Bands are spreads over seeds.",
    "mean_figure_3.2a.png": "Lower is better; black is ours. Where a dotted curve runs below a black one, that peer is "
    "more accurate there.",
    "mean_figure_3.2b.png": "The distance of the black curve to the lowest dotted one is what not trusting a curator "
    "costs at the same central epsilon.",
    "mean_figure_3.2c.png": "The same for vectors. `printed` curves use the text's formulas as they stand; they lie "
    "above because a bound is used where the error itself can be computed.",
    "pipeline_throughput.png": "Flat to the left means that starting takes most of the time; the slope on the right is "
    "the cost per record. Memory that stays flat does not depend on the number of people.",
    "scale_growth.png": "Left: seconds against records, both logarithmic. Right: memory of the largest worker; only "
    "the order in which all reports are permuted together grows with the data.",
    "product.png": "The line at 1 is what the machine allows: drawing the words, counting with NumPy, copying the bytes. "
    "A bar is how many times as long a step takes; the black mark is the spread over rounds.",
    "reconstruction_regression.png": "Between the dotted line (learning nothing) and the dashed one (no privacy); bars "
    "are the spread over runs. Left of the red line the attack's theorem says that nothing can be reconstructed.",
    "reconstruction_mnist.png": "`python -m benchmarks.reconstruction_mnist run`, then `show`. Lower is better: at 0 nothing is lost. Left "
    "the paper's budgets, right budgets that give its noise, on models with far fewer weights than its own; bands are spreads over seeds.",
    "figure_5_2.png": "Blue is proved here, dashed blue is a randomizer that really costs as much: nothing can be "
    "proved below it. The vertical distance of another curve to blue is what its analysis gives away.",
    "figure_5_3.png": "As above, as an epsilon: at the top against the local epsilon, at the bottom against the number "
    "of people.",
    "figure_5_4.png": "Cost of many releases. Slopes matter more than heights: a steeper curve loses more with every "
    "further round.",
    "figure_5_5.png": "The same where a random part takes part in each round. The flat start of some curves is what "
    "their conversion costs before the first round.",
    "figure_5_6.png": "Left: rounds. Right: people; read where a curve crosses the epsilon that you can afford.",
    "figure_5_7.png": "Circles are the papers' own points, with the accuracy that they report there; go straight down to "
    "the blue line to see what the same training costs.",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the plots and the gallery that shows them, and a page for every notebook."""
    lines = ["# Gallery", "", "Every plot of this project, and how to read it.", ""]
    lines += _section(
        "Plots that the programs draw", sorted(IMAGES.glob("*.png")), "images", IMAGES
    )
    benchmarks = sorted(PLOTS.rglob("*.png"))
    for plot in benchmarks:
        place = f"gallery/{plot.relative_to(PLOTS).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(plot)))
    lines += _section("Plots that the benchmarks draw", benchmarks, "gallery", PLOTS)
    files.append(File.generated(config, "gallery.md", content="\n".join(lines)))
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        place = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, place, content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside docs/ as code; a notebook's page in the place of its file."""
    markdown = re.sub(r"\]\((notebooks/[\w-]+)\.ipynb\)", r"](\1.md)", markdown)
    return re.sub(r"\[[^\]]*\]\(\.\./([^)]+)\)", r"`\1`", markdown)


def _section(heading: str, plots: list[Path], place: str, folder: Path) -> list[str]:
    lines = [f"## {heading}", ""]
    for plot in plots:
        words = plot.stem.replace("_", " ").replace("-", " ").capitalize()
        title = re.sub(r"(\d) (\d)", r"\1.\2", words)  # figures have numbers such as 5.2
        below = plot.relative_to(folder).as_posix()
        image = f"{place}/{below}"  # which opens in full where it is tapped
        lines += [
            f"### {title}",
            "",
            READ.get(plot.name, ""),
            "",
            f"[![{title}]({image})]({image})",
            "",
        ]
    return lines


def notebook_page(notebook: Path) -> str:
    """A notebook as Markdown: as it ran, if it did."""
    executed = EXECUTED / notebook.name
    ran = executed.exists()
    cells = json.loads((executed if ran else notebook).read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    last = f"The notebook itself: [{notebook.name}]({notebook.name})."
    if not ran:
        last += " This site was built without running it (`make test-notebooks`)."
    return "\n\n".join([*filter(None, parts), f"---\n\n{last}"]) + "\n"


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}\n```" if output["name"] == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="What the cell above draws" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        html = "".join(data["text/html"])
        html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
        return f'<div class="output">{" ".join(html.split())}</div>'
    text = escape("".join(data.get("text/plain", "")), quote=False)
    return f"<pre>{text}</pre>" if text else ""
