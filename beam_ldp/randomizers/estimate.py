"""Estimates with their error bars, and the explicit steps that may follow them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np

from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.intervals import NORMAL, IntervalRule

if TYPE_CHECKING:
    import pandas as pd

Postprocess = Literal["none", "clip", "norm-sub"]

_PLAIN = (1e-6, 1e15)  # what is written without an exponent

POSTPROCESS: tuple[Postprocess, ...] = ("none", "clip", "norm-sub")


@dataclass(frozen=True)
class Estimate:
    """An estimate and its standard error, on one scale.

    Frequencies are fractions of the users who reported; means are in the unit of the data.
    A freshly estimated value is unbiased and may be negative or above one: that is what keeps
    sums and averages of estimates right. `clip`, `clip_and_renormalize` and `project_to_simplex`
    trade that for plausibility; each returns a new estimate, records its name in `steps`, and
    keeps the unbiased value and its error within reach as `raw`.

    Attributes:
        value: float64 array, one entry per component.
        standard_error: float64 array of the same shape; it belongs to the unbiased value.
        num_users: users whose reports were received.
        steps: names of the post-processing steps applied, oldest first.
        raw: the unbiased estimate that the steps started from (itself where there were none).
        rule: how intervals follow, where its maker knows more than the standard error.
    """

    value: np.ndarray
    standard_error: np.ndarray
    num_users: int
    steps: tuple[str, ...] = ()
    _raw: Estimate | None = field(default=None, repr=False, compare=False)
    rule: IntervalRule = field(default=NORMAL, repr=False, compare=False)

    @property
    def raw(self) -> Estimate:
        return self if self._raw is None else self._raw

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Interval of the unbiased value, `(low, high)`.

        That of the `rule`: of frequencies a rule that holds for few people and rare values too, and
        stays within what is possible; else the normal approximation (see `intervals`).

        Args:
            level: probability of covering the truth, in (0, 1).
            simultaneous: cover *all* components at once (Bonferroni over their number). Use it
                for every list that was chosen by looking at the estimates, such as a top 20:
                pointwise intervals of selected components cover less than they say.
        """
        check_fraction("level", level)
        miss = (1 - level) / (max(1, self.value.size) if simultaneous else 1)
        raw = self.raw
        return raw.rule.interval(raw.value, raw.standard_error, miss)

    def to_counts(self) -> Estimate:
        """The same estimate in numbers of users instead of fractions of them."""
        scale = float(self.num_users)
        raw = None if self._raw is None else self._raw.to_counts()
        return replace(
            self,
            value=self.value * scale,
            standard_error=self.standard_error * scale if scale else self.standard_error,
            _raw=raw,
            rule=self.rule.scaled(scale) if scale else self.rule,
        )

    def to_pandas(self, labels: object = None, level: float = 0.95) -> pd.DataFrame:
        """One row per component: value, standard error, pointwise interval (needs pandas)."""
        import pandas as pd

        low, high = self.confidence_interval(level)
        columns = {
            "estimate": self.value.ravel(),
            "standard_error": self.standard_error.ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
        }
        return pd.DataFrame(columns, index=None if labels is None else pd.Index(labels))

    def _repr_html_(self) -> str:
        """For notebooks: the components with their 95 % error bars."""
        low, high = (bound.ravel() for bound in self.confidence_interval())
        steps = f"; steps: {', '.join(self.steps)}" if self.steps else ""
        told = f"{self.num_users:,} users, pointwise 95 % intervals of the unbiased value{steps}"
        return table(range(low.size), self.value.ravel(), (low, high), caption=told)

    def postprocess(self, method: Postprocess) -> Estimate:
        """These frequencies made plausible, by name; intervals stay those of the unbiased value.

        Args:
            method: "none"; "clip", as `clip`; or "norm-sub" (Wang et al. 2020), as
                `project_to_simplex`: all that stay positive are shifted by one number, and the
                others are zero, so that frequencies sum to one. Only for frequencies of one list,
                of which every person has one value; groups each by themselves.
        """
        if method not in POSTPROCESS:
            raise ValueError(f"method must be one of {', '.join(POSTPROCESS)}, got {method!r}")
        if method == "none":
            return self
        found = self.clip() if method == "clip" else self.project_to_simplex()
        return replace(found, steps=(*self.steps, method))

    @property
    def postprocessed(self) -> str:
        """The name of the post-processing; "" where there was none, whatever other steps were."""
        last = self.steps[-1] if self.steps else ""
        return last if last in POSTPROCESS else ""

    def clip(self) -> Estimate:
        """Fractions forced into [0, 1], one by one. Biased upwards for rare values."""
        return self._after("clip", np.clip(self.value, 0.0, 1.0))

    def clip_and_renormalize(self) -> Estimate:
        """Negative fractions set to zero, the rest scaled to sum one (uniform if none is left)."""
        positive = np.maximum(self.value, 0.0)
        total = positive.sum()
        if total > 0:
            return self._after("clip_and_renormalize", positive / total)
        return self._after("clip_and_renormalize", np.full_like(positive, 1 / positive.size))

    def project_to_simplex(self) -> Estimate:
        """Nearest probability vector in Euclidean distance (also known as norm-sub). O(k log k)."""
        descending = np.sort(self.value)[::-1]
        excess = np.cumsum(descending) - 1.0
        shift = excess / np.arange(1, descending.size + 1)
        support = int(np.count_nonzero(descending > shift))
        projected = np.maximum(self.value - shift[max(support, 1) - 1], 0.0)
        return self._after("project_to_simplex", projected)

    def _after(self, step: str, value: np.ndarray) -> Estimate:
        return replace(self, value=value, steps=(*self.steps, step), _raw=self.raw)


def decimals(error: float) -> int:
    """Digits after the point with which a figure of that error is written: two of the error's.

    >>> decimals(0.0123), decimals(3.4), decimals(250.0)
    (3, 1, 0)
    """
    if not (math.isfinite(error) and error > 0):
        return 3
    return max(0, min(12, 1 - math.floor(math.log10(error))))


def readable(value: float, error: float | None = None) -> str:
    """A figure as people read it: as exact as its error, to two digits of that; without an error,
    three significant digits. No exponent where a plain number does.

    >>> readable(-8.65298, 2.5), readable(1234.5678, 0.0213), readable(12345.6, 250.0)
    ('-8.7', '1,234.568', '12,346')
    >>> readable(1774.6), readable(0.0123456), readable(2.5), readable(2.19e16)
    ('1,770', '0.0123', '2.5', '2.19e+16')
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if error is not None:
        digits = decimals(error)
        return f"{round(value, digits) + 0.0:,.{digits}f}"  # + 0.0: no minus before a zero
    if not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        return f"{value:.3g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# Estimates as HTML for notebooks: a table with its error bars drawn, no script, no resource.


MOST_ROWS = 30
_WIDTH, _HEIGHT = 240, 16


def table(
    labels: Sequence[object],
    value: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray],
    *,
    truth: np.ndarray | None = None,
    caption: str = "",
) -> str:
    """A table of estimates: name, value, interval, and the interval as a bar on a common scale.

    Args:
        labels: a name for each component; escaped.
        value: estimates, flat.
        interval: `(low, high)`, flat.
        truth: what they should be, where it is known; drawn as a tick.
        caption: plain text under the table; escaped.

    Only the first 30 rows are shown, and the caption says so.
    """
    low, high = interval
    shown = min(value.size, MOST_ROWS)
    parts = [low[:shown], high[:shown], value[:shown]] + ([] if truth is None else [truth[:shown]])
    numbers = np.concatenate(parts)
    finite = numbers[np.isfinite(numbers)]
    left, right = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    heads = ["", *(["truth"] if truth is not None else []), "estimate", "interval", ""]
    rows = []
    for i in range(shown):
        cells = [escape(str(labels[i]))]
        half = (high[i] - low[i]) / 2
        cells += [] if truth is None else [readable(truth[i], half)]
        interval_said = f"{readable(low[i], half)} … {readable(high[i], half)}"
        cells += [readable(value[i], half), interval_said]
        tick = None if truth is None else float(truth[i])
        cells.append(_bar(float(low[i]), float(value[i]), float(high[i]), tick, left, right))
        rows.append("".join(f"<td style='text-align:right'>{cell}</td>" for cell in cells))
    if shown < value.size:
        caption = f"The first {shown} of {value.size:,}. {caption}".strip()
    head = "".join(f"<th style='text-align:right'>{name}</th>" for name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p style='font-size:smaller'>{escape(caption)}</p>"
    )


def _bar(
    low: float, value: float, high: float, truth: float | None, left: float, right: float
) -> str:
    if not np.isfinite([low, value, high]).all():
        return "no reports"

    def at(number: float) -> float:
        share = (number - left) / (right - left) if right > left else 0.5
        return 4 + share * (_WIDTH - 8)

    middle = _HEIGHT / 2
    drawn = [
        f"<line x1='{at(low):.1f}' x2='{at(high):.1f}' y1='{middle}' y2='{middle}' "
        "stroke='#4c78a8' stroke-width='3'/>",
        f"<circle cx='{at(value):.1f}' cy='{middle}' r='3.5' fill='#4c78a8'/>",
    ]
    if truth is not None:
        drawn.append(
            f"<line x1='{at(truth):.1f}' x2='{at(truth):.1f}' y1='1' y2='{_HEIGHT - 1}' "
            "stroke='#e45756' stroke-width='2'/>"
        )
    return f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>{''.join(drawn)}</svg>"
