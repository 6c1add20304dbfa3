"""What MLflow shows of a tracked run: its curve as a picture and a page, a statement, its tags."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow_ldp.charges import Tracked


Curve = Sequence[tuple[int, float, float]]  # step, cumulative epsilon, sum of local epsilons

MOST_POINTS = 2000  # of a picture or a page; a longer curve is thinned evenly
_INK, _GREY = "#1f5fa8", "#5f6b76"


def tracked_pages(tracker: Tracked, curve: Curve, statement: str) -> dict[str, str | bytes]:
    """Files of a run by name: epsilon.png, epsilon.html, statement.md, statement.html."""
    title = f"Privacy of {tracker.dataset}"
    return {
        "epsilon.png": curve_png(curve, tracker.dataset, tracker.delta),
        "epsilon.html": curve_page(curve, title, tracker.delta),
        "statement.md": statement,
        "statement.html": statement_page(title, statement),
    }


def thinned(curve: Curve) -> list[tuple[int, float, float]]:
    """At most `MOST_POINTS` points of the curve, the last one among them."""
    every = max(1, math.ceil(len(curve) / MOST_POINTS))
    kept = list(curve[::every])
    if curve and kept[-1] != curve[-1]:
        kept.append(curve[-1])
    return kept


def curve_png(curve: Curve, dataset: str, delta: float) -> bytes:
    """Cumulative epsilon against steps, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), dpi=130, layout="constrained")
    axes = figure.subplots()
    points = [p for p in thinned(curve) if math.isfinite(p[1])]
    axes.step([p[0] for p in points], [p[1] for p in points], where="post", color=_INK)
    axes.set_xlabel("step")
    axes.set_ylabel(f"epsilon at delta = {delta:g}")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Cumulative privacy of {_shortened(dataset)}", parse_math=False)
    axes.grid(alpha=0.25)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _shortened(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def curve_page(curve: Curve, title: str, delta: float) -> str:
    """The curve as a page of its own: hover to read values; nothing is fetched from anywhere."""
    points = [list(point) for point in thinned(curve) if math.isfinite(point[1])]
    return _page(title=title, delta=f"{delta:g}", points=points, ink=_INK, grey=_GREY)


def statement_of(tracker: Tracked) -> str:
    """What the run cost, in plain words (Markdown)."""
    from beam_ldp.wording import number, rounded_down  # MLflow loads this module for every run

    spent = tracker.spent
    name = "".join(c if c.isprintable() and c != "`" else " " for c in tracker.dataset)
    fixed = tracker.accountant().get_epsilon(tracker.delta) if spent.num_charges else None
    lines = [
        f"# What this run cost the people in `{name}`",
        f"* releases charged: {spent.num_charges:,}",
        f"* against everybody who sees only what left the shuffler: epsilon = "
        f"{number(spent.epsilon)} at delta = {tracker.delta:g}, proved, for one person's data "
        "replaced by any other (replace-one)",
        f"* against whoever sees every report of a person who took part in every step: local "
        f"epsilon = {number(spent.local_epsilon)}",
    ]
    if fixed is not None and fixed.lower:
        lines.append(f"* no analysis can prove less than epsilon = {rounded_down(fixed.lower)}")
    lines += [
        "* that a person took part is not protected",
        "* charged to the budget ledger: "
        + (
            "yes; together with all other runs about the same people"
            if tracker.charged
            else "**no**. No ledger was named: other runs about the same people add to this"
        ),
        f"* steps were {'chosen as results came in' if tracker.adaptive else 'fixed beforehand'}; "
        "the method of composition is valid for that",
    ]
    return "\n\n".join([lines[0], "\n".join(lines[1:])]) + "\n"


def statement_page(title: str, statement: str) -> str:
    """The statement as a page."""
    lines = [line[2:] for line in statement.splitlines()[1:] if line.startswith("* ")]
    return _page(title=title, lines=lines)


def _page(**told: Any) -> str:
    """`tracked_page.html`, which escapes what it is told."""
    from jinja2 import Environment, StrictUndefined

    text = resources.files(__package__).joinpath("tracked_page.html").read_text("utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(text).render(told)


# What MLflow asks when it starts a run: the tags of the tracker that is open, if any --------


class PrivacyContext:
    """Tags runs that are started while a `PrivacyTracker` is open.

    A `RunContextProvider` of MLflow, which finds it by its entry point, and asks it at every start
    of a run: it looks at what is in memory, and does nothing.
    """

    def in_context(self) -> bool:
        return bool(self.tags())

    def tags(self) -> dict[str, str]:
        module = sys.modules.get("mlflow_ldp.tracker")  # not loaded: no tracker is open
        tracker = None if module is None else module.active_tracker()
        return {} if tracker is None else tracker.tags
