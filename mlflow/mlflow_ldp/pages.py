"""What a tracked run looks like: the curve of epsilon as a picture and a page, and a statement."""

from __future__ import annotations

import html
import io
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow_ldp.tracker import PrivacyTracker

Curve = Sequence[tuple[int, float, float]]  # step, cumulative epsilon, sum of local epsilons

MOST_POINTS = 2000  # of a picture or a page; a longer curve is thinned evenly
_INK, _GREY = "#1f5fa8", "#5f6b76"


def tracked_pages(tracker: PrivacyTracker, curve: Curve, statement: str) -> dict[str, str | bytes]:
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
    points = [[step, epsilon, local] for step, epsilon, local in thinned(curve)]
    # `<` is escaped so that no name can end the script.
    data = json.dumps([p for p in points if math.isfinite(p[1])]).replace("<", "\\u003c")
    return _PAGE.format(
        title=html.escape(title), delta=f"{delta:g}", data=data, ink=_INK, grey=_GREY
    )


def statement_of(tracker: PrivacyTracker) -> str:
    """What the run cost, in plain words (Markdown)."""
    spent = tracker.spent
    name = "".join(c if c.isprintable() and c != "`" else " " for c in tracker.dataset)
    fixed = tracker.accountant().get_epsilon(tracker.delta) if spent.num_charges else None
    lines = [
        f"# What this run cost the people in `{name}`",
        f"* releases charged: {spent.num_charges:,}",
        f"* against everybody who sees only what left the shuffler: epsilon = "
        f"{_number(spent.epsilon)} at delta = {tracker.delta:g}, proved, for one person's data "
        "replaced by any other (replace-one)",
        f"* against whoever sees every report of a person who took part in every step: local "
        f"epsilon = {_number(spent.local_epsilon)}",
    ]
    if fixed is not None and fixed.lower:
        lines.append(f"* no analysis can prove less than epsilon = {fixed.lower:.4g}")
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


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unbounded"


def statement_page(title: str, statement: str) -> str:
    """The statement as a page."""
    _, *rest = statement.splitlines()
    items = "".join(f"<li>{_inline(line[2:])}</li>" for line in rest if line.startswith("* "))
    return _STATEMENT.format(title=html.escape(title), items=items)


def _inline(text: str) -> str:
    return html.escape(text).replace("**no**", "<strong>no</strong>")


_STYLE = """body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:52rem;
padding:0 1rem;overflow-wrap:anywhere;color:#1b2733;background:#fff}}h1{{font-size:1.4rem}}"""

_STATEMENT = (
    """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>
<style>"""
    + _STYLE
    + """</style><h1>{title}: what this run cost</h1><ul>{items}</ul></html>
"""
)

_PAGE = (
    """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>
<style>"""
    + _STYLE
    + """svg{{width:100%;height:auto;display:block}}
@media(max-width:600px){{svg text{{font-size:24px}}}}
output{{display:block;min-height:1.5em}}</style>
<h1>{title}</h1><p>Cumulative epsilon at delta = {delta}. Move along the curve to read it.</p>
<svg viewBox="0 0 800 420" role="img" aria-label="cumulative epsilon by step"></svg>
<output></output>
<script>
const points = {data};
const svg = document.querySelector("svg"), said = document.querySelector("output");
const left = 95, right = 765, top_ = 15, bottom = 370, spaces = "http://www.w3.org/2000/svg";
const last = points.length ? points[points.length - 1] : [0, 0, 0];
const first = points.length ? points[0][0] : 0;
const steps = Math.max(1, last[0] - first), most = Math.max(1e-12, ...points.map(p => p[1]));
const x = s => left + (right - left) * (s - first) / steps;
const y = e => bottom - (bottom - top_) * e / most;
function add(kind, how, text) {{
  const made = document.createElementNS(spaces, kind);
  for (const name in how) made.setAttribute(name, how[name]);
  if (text !== undefined) made.textContent = text;
  svg.appendChild(made);
  return made;
}}
for (let i = 0; i <= 4; i++) {{
  const e = most * i / 4, s = first + steps * i / 4;
  add("line", {{x1: left, x2: right, y1: y(e), y2: y(e), stroke: "#d5dbe1"}});
  add("text", {{x: left - 8, y: y(e) + 4, "text-anchor": "end", fill: "{grey}", "font-size": 13}},
      e.toPrecision(3));
  add("text", {{x: x(s), y: bottom + 22, "text-anchor": "middle", fill: "{grey}",
      "font-size": 13}}, Math.round(s).toLocaleString());
}}
add("text", {{x: (left + right) / 2, y: bottom + 42, "text-anchor": "middle", fill: "{grey}",
    "font-size": 14}}, "step");
let path = "";
for (const [s, e] of points) path += path ? `H${{x(s)}}V${{y(e)}}` : `M${{x(s)}},${{y(e)}}`;
if (path) add("path", {{d: path, fill: "none", stroke: "{ink}", "stroke-width": 2}});
const dot = add("circle", {{r: 5, fill: "{ink}", visibility: "hidden"}});
function show(p) {{
  dot.setAttribute("cx", x(p[0]));
  dot.setAttribute("cy", y(p[1]));
  dot.setAttribute("visibility", "visible");
  said.textContent = `step ${{p[0].toLocaleString()}}: epsilon = ${{p[1].toPrecision(4)}}, ` +
    `sum of local epsilons = ${{p[2].toPrecision(4)}}`;
}}
svg.addEventListener("pointermove", event => {{
  if (!points.length) return;
  const box = svg.getBoundingClientRect();
  const s = first + ((event.clientX - box.left) / box.width * 800 - left) / (right - left) * steps;
  show(points.reduce((a, b) => Math.abs(b[0] - s) < Math.abs(a[0] - s) ? b : a));
}});
if (points.length) show(last);
</script></html>
"""
)
