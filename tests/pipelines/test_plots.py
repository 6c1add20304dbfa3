"""The list of the most frequent values and its picture."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.questions.pictures import fallback_fonts, plot_top, png, shortened, top_list
from beam_ldp.randomizers.estimate import Estimate

ESTIMATE = Estimate(np.array([0.1, 0.5, 0.3, 0.9]), np.full(4, 0.01), 1000)
LABELS = ("a", "b", "c", "other")


def test_the_list_is_ranked_in_counts_without_other() -> None:
    top = top_list(ESTIMATE, LABELS, 2, leave_out=[3])
    assert top.labels == ("b", "c") and top.estimate.tolist() == [500, 300]
    assert top.truth is None


@pytest.mark.exact
def test_intervals_hold_for_all_values_at_once() -> None:
    top = top_list(ESTIMATE, LABELS, 1)
    low, high = ESTIMATE.to_counts().confidence_interval(1 - 0.05 / 4)
    assert top.low[0] == pytest.approx(low[3]) and top.high[0] == pytest.approx(high[3])
    wide = top.high[0] - top.low[0]
    low, high = ESTIMATE.to_counts().confidence_interval(0.95)
    assert wide > 1.2 * (high[3] - low[3])


def test_truth_follows_the_ranking() -> None:
    truth = np.array([110, 480, 290, 880])
    assert top_list(ESTIMATE, LABELS, 3, truth, [3]).truth.tolist() == [480, 290, 110]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_plot_is_a_png_that_grows_with_the_list(count: int) -> None:
    k = 60
    estimate = Estimate(np.linspace(0.5, 0, k), np.full(k, 0.01), 1000)
    top = top_list(estimate, [f"v{i}" for i in range(k)], count, np.zeros(k))
    image = png(plot_top(top, "title", "subtitle"))
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    assert width == 1350 and height == pytest.approx(150 * (1.9 + 0.3 * count), abs=2)


def test_hostile_labels_do_not_fail_and_only_boxes_are_warned_of() -> None:
    """Dollar signs are not mathematics, and glyphs that the font lacks are boxes."""
    labels = ["$x^", "東京", "a\nb\x00", "_" * 200]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "pictures: no installed font")
        image = png(plot_top(top_list(ESTIMATE, labels, 4), "$title^ 東", "100 % $"))
    assert image.startswith(b"\x89PNG")


@pytest.fixture
def font(tmp_path: Path) -> Iterator[str]:
    """A font of two squares, for the characters of a city; installed for one test."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    from matplotlib import font_manager

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 1000), (1000, 1000), (1000, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", "east", "capital"]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord("東"): "east", ord("京"): "capital"})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": "Two Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "squares.ttf")
    font_manager.fontManager.addfont(tmp_path / "squares.ttf")
    yield "Two Squares"
    listed = font_manager.fontManager.ttflist
    listed[:] = [entry for entry in listed if entry.name != "Two Squares"]
    font_manager.fontManager._findfont_cached.cache_clear()


def test_labels_in_other_scripts_are_drawn_with_fonts_that_have_them(
    font: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No warning of a missing glyph is let pass, and none is given; the picture differs."""
    assert fallback_fonts("東京 ab") == ((font,), False)
    assert fallback_fonts("plain é") == ((), False)
    assert fallback_fonts("東\u0b95") == ((font,), True), "Tamil is nowhere"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = ["東京", "b", "c", "d"]
        image = png(plot_top(top_list(ESTIMATE, labels, 4), "東", "京"))
        plain = png(plot_top(top_list(ESTIMATE, ["ab", "b", "c", "d"], 4), "x", "y"))
    assert image != plain and not caplog.records


def test_boxes_are_said() -> None:
    with pytest.warns(UserWarning, match="Noto Sans CJK") as said:
        png(plot_top(top_list(ESTIMATE, ["\u0b95", "b", "c", "d"], 4), "x", "y"))
    assert len(said) == 1 and "\u0b95" not in str(said[0].message)


def test_shortened() -> None:
    assert shortened("word") == "word"
    assert len(shortened("x" * 100)) == 24 and shortened("x" * 100).endswith("…")
    assert "\n" not in shortened("a\nb")
