"""What accuracy of an l2 mean costs in bits and in local epsilon: every mechanism, one target.

    python -m benchmarks.l2_frontier [--output benchmarks/results]

Every mechanism is tuned to the same central target by its own price, at several limits on its local
epsilon and lengths of its reports. Errors are those of its own law for the worst vectors (no
simulation), over the error of a curator's Gaussian noise at that target: a reference, not a bound.
For people who are protected alone, the error over that of PrivUnit at the same local epsilon stands
beside it, the optimum of unbiased mechanisms. Table 3.1 of the thesis is measured: the fewest
bits in which a mechanism is within a factor of the reference, beside the orders that it prints.
Writes l2_frontier.json, .md and .png; a few minutes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.planning import Plan, plan_means
from beam_ldp.questions.pictures import ABOVE, BELOW, GREY, GRID, bare, figure_with, png
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.mean import L2Mean, MeanRandomizer, PrivUnit, SplitAndMixMean
from beam_ldp.randomizers.mean.lower_bounds import gaussian_reference

EPSILON = 1.0
TARGETS = ((16, 20_000, 1e-6), (784, 100_000, 1e-8))  # coordinates, people, delta
ALONE = (1.0, 2.0, 4.0, 8.0)  # limits on the local epsilon of people who trust nobody
SHUFFLED = (30.0, 100.0, 300.0, 1000.0)  # of messages of several bits in all
PROTECTED = 8.0  # local epsilon up to which a person is said to be protected alone
TABLE = ((100_000, 256), (10_000, 1024), (1000, 4096), (1000, 16_384))  # people, coordinates
TABLE_DELTA = 1e-6
FACTORS = (40.0, 10.0, 2.0)
_STEP = math.sqrt(2)  # between the bits that are tried
_MOST = 64  # bits per coordinate that are tried
COLOURS = {
    "SplitAndMixMean": "#1f5fa8", "L2Mean": "#d1495b", "PrivUnit": "#e08e2b",
    "PrivUnitGaussian": "#c2649a", "ProjectedPrivUnit": "#1b998b", "SeedCompressedMean": "#7b4fa3",
    "RandomCodebookMean": "#3aa0c9", "MinimalRandomCoding": "#6f8f2f", "SeparatedMean": "#8c6d46",
    "KashinMean": "#a33b3b", "RotatedSimplexMean": "#4b5d67",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One mechanism, tuned to a target.

    Attributes:
        dimension, num_users: of the task.
        mechanism: name of the class.
        bits, messages: of everything that a person sends.
        local_epsilon: against whoever sees that; infinite where only the shuffler protects.
        epsilon: the price.
        times_curator: squared error, with the mechanism's own shift, over the curator's.
        times_optimum: the same over PrivUnit's at that local epsilon; NaN above `PROTECTED`.
    """

    dimension: int
    num_users: int
    mechanism: str
    bits: int
    messages: int
    local_epsilon: float
    epsilon: float
    times_curator: float
    times_optimum: float


def point(found: MeanRandomizer, num_users: int, delta: float, epsilon: float) -> Point:
    """A mechanism's place in the plot."""
    d, local = found.dimension, found.local_epsilon
    error = found.mean_squared_error(num_users) + found.shift_bound**2
    optimum = math.nan
    if local <= PROTECTED * (1 + 1e-9):
        optimum = error / PrivUnit(d, local).mean_squared_error(num_users)
    return Point(
        d, num_users, type(found).__name__, found.bits_per_report, found.messages_per_user, local,
        epsilon, error / curator(d, num_users, delta), optimum,
    )  # fmt: skip


def curator(dimension: int, num_users: int, delta: float) -> float:
    """Squared error of Gaussian noise at the target."""
    return gaussian_reference(dimension, gaussian_mu(EPSILON, delta), num_users)


def points(dimension: int, num_users: int, delta: float) -> list[Point]:
    """Every mechanism at every limit, each once."""
    found: dict[tuple[str, int, int, float], Point] = {}

    def add(plans: Sequence[Plan]) -> None:
        for plan in plans:
            if not plan.excluded and plan.randomizer is not None and plan.epsilon is not None:
                one = point(plan.randomizer, num_users, delta, float(plan.epsilon))
                found[one.mechanism, one.bits, one.messages, round(one.local_epsilon, 6)] = one

    target: dict[str, Any] = {"epsilon": EPSILON, "delta": delta, "several": True}
    for limit in ALONE:
        add(plan_means(num_users, dimension, max_local_epsilon=limit, **target))
    for limit in SHUFFLED:
        add(plan_means(num_users, dimension, max_local_epsilon=limit, only=["L2Mean"], **target))
    add(plan_means(num_users, dimension, **target))
    most = _MOST * dimension
    add(plan_means(num_users, dimension, max_bits=most, only=["L2Mean"], **target))
    shares = SplitAndMixMean.for_shuffle(dimension, EPSILON, delta, num_users, honest_fraction=1.0)
    return sorted([*found.values(), point(shares, num_users, delta, EPSILON)], key=lambda one: (
        one.times_curator, one.bits
    ))  # fmt: skip


# Table 3.1: bits within a factor of the reference -------------------------------------------------


def fewest_bits(num_users: int, dimension: int, factor: float) -> tuple[int, float] | None:
    """Of `L2Mean`, to within the square root of two, and the ratio there; None if it never is."""
    limit = factor * curator(dimension, num_users, TABLE_DELTA)

    def tried(bits: int) -> L2Mean:
        return L2Mean.for_shuffle(dimension, EPSILON, TABLE_DELTA, num_users, max_bits=bits)

    def error(found: L2Mean) -> float:
        return found.mean_squared_error(num_users) + found.shift_bound**2

    low, high = 4, 2 * math.ceil(math.log(_MOST * dimension, _STEP))
    best = tried(round(_STEP**high))
    if error(best) > limit:
        return None
    while low < high:
        middle = (low + high) // 2
        now = tried(round(_STEP**middle))
        if error(now) <= limit:
            best, high = now, middle
        else:
            low = middle + 1
    return best.bits_per_report, error(best) / (limit / factor)


def printed_orders(num_users: int, dimension: int) -> dict[str, float]:
    """The table's orders with every hidden constant one, in bits."""
    n, d = float(num_users), float(dimension)
    scale = n * EPSILON**2
    return {
        "this work": d * math.log2(scale / d) if d < scale else scale * math.log2(d / scale),
        "CJM22": d * math.sqrt(n),
        "CGK21": d * math.log2(n),
        "SecAgg": d * math.log2(n) if d < n * scale else n * scale * math.log2(d),
    }


def table() -> list[dict[str, Any]]:
    """Table 3.1, measured."""
    rows = []
    for n, d in TABLE:
        shares = SplitAndMixMean.for_shuffle(d, EPSILON, TABLE_DELTA, n, honest_fraction=1.0)
        (alone,) = plan_means(
            n, d, epsilon=EPSILON, delta=TABLE_DELTA, max_local_epsilon=PROTECTED, only=["PrivUnit"]
        )
        ours = {str(int(f)): fewest_bits(n, d, f) for f in FACTORS}
        rows.append({
            "num_users": n, "dimension": d, "orders": printed_orders(n, d), "L2Mean": ours,
            "SplitAndMixMean": shares.bits_per_report,
            "split_times": shares.mean_squared_error(n) / curator(d, n, TABLE_DELTA),
            "PrivUnit": alone.rms_error**2 / curator(d, n, TABLE_DELTA),
        })  # fmt: skip
    return rows


# The page and the picture ------------------------------------------------------------------------


def frontier(found: Sequence[Point]) -> list[Point]:
    """Points than which no other is as good in error (to 1 %), bits and local epsilon."""
    kept: list[Point] = []
    for one in sorted(found, key=lambda one: (round(math.log(one.times_curator, 1.01)), one.bits)):
        if not any(_as_good(other, one) for other in kept):
            kept.append(one)
    return kept


def _as_good(one: Point, other: Point) -> bool:
    return (
        one.times_curator <= 1.01 * other.times_curator
        and one.bits <= other.bits
        and one.local_epsilon <= 1.01 * other.local_epsilon
    )


def trust(one: Point) -> str:
    """In whom people must trust, lest their vectors be all but read."""
    if one.local_epsilon == math.inf:
        return "shuffler, wholly"
    return "device" if one.local_epsilon <= PROTECTED * (1 + 1e-9) else "shuffler"


def page(found: dict[str, Any]) -> str:
    """The page, as Markdown."""
    return "\n".join([*_frontier_page(found["points"]), *_table_page(found["table"])]) + "\n"


_FRONTIER = """# What the accuracy of an l2 mean costs

`python -m benchmarks.l2_frontier`. Every mechanism meets the same central target by its own price.
*Times curator*: squared error for the worst vectors over that of a trusted curator's Gaussian
noise, a reference and no bound. *Times optimum*: over PrivUnit's at the same local epsilon, which
on vectors as long as the radius no unbiased mechanism beats, whatever its bits (Asi, Feldman and
Talwar 2022; one radius squared over the people is what shorter vectors may cost beyond that); only
where people are protected alone, by a local epsilon of at most 8. Everybody is honest and arrives.
Rows than which no other is as good in error (to 1 %), bits and local epsilon."""
_TABLE = """
## Table 3.1 of the thesis, measured

Epsilon 1 at delta 1e-06. Orders are as printed, with every hidden constant one. Of `L2Mean` the
fewest bits, to within a factor of 1.4, whose squared error is at most so many times the curator's
(in brackets: how many times it is there); the thesis' order hides a logarithm of people times
coordinates in that factor. `SplitAndMixMean` is ours in the place of the schemes by secure sums.
*Alone*: how far PrivUnit of a local epsilon of at most 8 is from the curator, whatever its bits.
Coordinates as many as the square of people, the last row of the printed table, are left out: there
a curator's noise is longer than any vector, and zero is a better answer."""


_HEADINGS = ("mechanism", "trusted", "local epsilon", "bits", "messages", "times curator",
             "times optimum")  # fmt: skip


def _frontier_page(all_points: Sequence[Point]) -> Iterator[str]:
    yield _FRONTIER
    for d, n, delta in TARGETS:
        here = frontier([one for one in all_points if (one.dimension, one.num_users) == (d, n)])
        yield ""
        yield f"## {d} coordinates, {n:,} people, epsilon {EPSILON:g} at delta {delta:g}"
        yield ""
        yield f"| {' | '.join(_HEADINGS)} |"
        yield "|---" * len(_HEADINGS) + "|"
        for one in here:
            local = f"{one.local_epsilon:.4g}" if one.local_epsilon < math.inf else "infinite"
            optimum = readable(one.times_optimum) if one.times_optimum > 0 else ""
            yield (
                f"| {one.mechanism} | {trust(one)} | {local} | {one.bits:,} | {one.messages:,} | "
                f"{readable(one.times_curator)} | {optimum} |"
            )
    yield ""
    yield "![Squared error against bits and against local epsilon](l2_frontier.png)"


def _table_page(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield _TABLE
    yield ""
    yield (
        "| people | coordinates | this work | CJM22 | CGK21 | SecAgg | "
        + " | ".join(f"`L2Mean`, {factor:g} times" for factor in FACTORS)
        + " | `SplitAndMixMean` | alone |"
    )
    yield "|---" * (8 + len(FACTORS)) + "|"
    for row in rows:
        orders = " | ".join(f"{row['orders'][name]:,.0f}" for name in row["orders"])
        ours = []
        for factor in FACTORS:
            found = row["L2Mean"][str(int(factor))]
            ours.append("never" if found is None else f"{found[0]:,} ({readable(found[1])})")
        shares = f"{row['SplitAndMixMean']:,} ({readable(row['split_times'])})"
        yield (
            f"| {row['num_users']:,} | {row['dimension']:,} | {orders} | {' | '.join(ours)} | "
            f"{shares} | {readable(row['PrivUnit'])} times |"
        )


def picture(all_points: Sequence[Point]) -> bytes:
    """Above few coordinates, below many; left against bits, right against local epsilon."""
    inside, rows = 3.3, len(TARGETS)
    height = ABOVE - 0.2 + rows * (inside + BELOW)
    figure = figure_with(
        f"Squared error over a curator's Gaussian noise, epsilon {EPSILON:g}",
        "full: people are protected alone (local epsilon at most 8); hollow: the shuffler must be "
        "trusted", height,
    )  # fmt: skip
    for i, (d, n, delta) in enumerate(TARGETS):
        here = [one for one in all_points if (one.dimension, one.num_users) == (d, n)]
        bottom = (rows - 1 - i) * (inside + BELOW) + BELOW
        finite = max(one.local_epsilon for one in here if one.local_epsilon < math.inf)
        for j, across in enumerate(("bits of one person's reports", "local epsilon")):
            axes = figure.add_axes(
                (0.08 + 0.38 * j, bottom / height, 0.31, (inside - 0.5) / height)
            )
            for one in here:
                local = min(one.local_epsilon, 30 * finite)
                x = one.bits if j == 0 else local
                colour = COLOURS[one.mechanism]
                full = one.local_epsilon <= PROTECTED * (1 + 1e-9)
                axes.plot(
                    [x], [one.times_curator], "o", markersize=6, color=colour, zorder=3,
                    markerfacecolor=colour if full else "white",
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.axhline(1, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
            axes.grid(color=GRID, linewidth=0.8, zorder=0)
            axes.set_axisbelow(True)
            bare(axes, "top", "right")
            axes.set_xlabel(across, color=GREY)
            if j == 0:
                axes.set_ylabel("times the curator's", color=GREY)
                axes.set_title(f"{d} coordinates, {n:,} people, delta {delta:g}", fontsize=10,
                               color=GREY, loc="left")  # fmt: skip
            else:
                axes.annotate("∞", (30 * finite, 1), xytext=(0, 7), textcoords="offset points",
                              ha="center", color=COLOURS["SplitAndMixMean"])  # fmt: skip
        if i == 0:
            names = sorted({one.mechanism for one in all_points}, key=list(COLOURS).index)
            for k, name in enumerate(names):
                figure.text(0.81, (bottom + inside - 0.5 - 0.22 * k) / height, f"● {name}",
                            fontsize=9, color=COLOURS[name])  # fmt: skip
    return png(figure)


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Computes everything; writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    folder = parser.parse_args(argv).output
    found: dict[str, Any] = {
        "points": [one for d, n, delta in TARGETS for one in points(d, n, delta)],
        "table": table(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "l2_frontier.md").write_text(page(found), encoding="utf-8")
    (folder / "l2_frontier.png").write_bytes(picture(found["points"]))
    kept = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value
         for name, value in asdict(one).items()}
        for one in found["points"]
    ]  # fmt: skip
    content = {"schema_version": 1, "points": kept, "table": found["table"]}
    (folder / "l2_frontier.json").write_text(json.dumps(content, indent=1) + "\n")
    return found


if __name__ == "__main__":
    main()
