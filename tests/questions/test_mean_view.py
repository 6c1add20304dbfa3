"""Means as people see them: tables in the data's unit, pictures that show something."""

from __future__ import annotations

import csv
import io
import struct
import warnings

import numpy as np
import pytest
from rich.console import Console

from beam_ldp.planning import Plan
from beam_ldp.questions.base import Choice
from beam_ldp.questions.mean_view import MeanView, ShownMean, picture_shape, plot_mean, shown_mean
from beam_ldp.questions.means import Means
from beam_ldp.questions.pictures import png
from beam_ldp.questions.tables import as_csv
from beam_ldp.randomizers.estimate import decimals
from beam_ldp.randomizers.mean import CoordinateRanges, MeanEstimate
from beam_ldp.transforms.elements.blocks import Release


def estimate(size: int, error: float = 0.01) -> MeanEstimate:
    value = np.linspace(-0.5, 1, size)
    return MeanEstimate(value, np.full(size, error), 1000, mean_squared_error=size * error**2)


def release(size: int) -> Release:
    return Release(estimate(size), 1000, None, question="q")


def names(size: int) -> list[str]:
    return [f"c{i}" for i in range(size)]


# Tables -----------------------------------------------------------------------------------------


@pytest.mark.exact
def test_columns_and_numbers_are_the_documented_ones() -> None:
    text = as_csv(MeanView(release(3), ("a", 'say "b"', "c"), 20).table()).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["question", "group", "window_start", "window_end", "coordinate",
                             "mean", "standard_error", "low", "high", "error_bars"]  # fmt: skip
    assert [row["coordinate"] for row in rows] == ["a", 'say "b"', "c"]
    assert float(rows[0]["mean"]) == -0.5 and float(rows[0]["standard_error"]) == 0.01
    assert float(rows[0]["low"]) == pytest.approx(-0.5 - 1.959964 * 0.01, abs=1e-8)
    assert rows[0]["question"] == "q" and rows[0]["group"] == ""


@pytest.mark.exact
def test_shown_intervals_hold_for_all_coordinates_at_once() -> None:
    view = shown_mean(estimate(10), names(10))
    low, high = estimate(10).confidence_interval(1 - 0.05 / 10)
    assert np.allclose(view.low, low) and np.allclose(view.high, high)


@pytest.mark.exact
def test_few_coordinates_are_all_listed_and_of_many_the_largest() -> None:
    assert shown_mean(estimate(4), names(4)).largest(20).tolist() == [0, 1, 2, 3]
    assert shown_mean(estimate(31), names(31)).largest(3).tolist() == [30, 29, 28]
    negative = ShownMean(("a", "b"), np.array([-2.0, 1.0]), *(np.ones(2),) * 3)
    assert negative.largest(1).tolist() == [0]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("labels", "shape"),
    [
        (names(64), (8, 8)), ([str(i) for i in range(784)], (28, 28)), (names(63), None),
        (names(36), None), (["age", *names(63)], None), ([f"x{i}y" for i in range(49)], (7, 7)),
        ([f"name {'abcdefgh'[i // 8]}{'abcdefgh'[i % 8]}" for i in range(64)], None),
    ],
)  # fmt: skip
def test_a_picture_is_a_square_of_numbered_coordinates(
    labels: list[str], shape: tuple[int, int] | None
) -> None:
    assert picture_shape(labels) == shape


@pytest.mark.exact
@pytest.mark.parametrize(
    ("error", "digits"),
    [(0.0123, 3), (1.0, 1), (9.99, 1), (10.0, 0), (1e6, 0), (np.inf, 3), (0, 3)],
)
def test_two_digits_of_the_error_are_shown(error: float, digits: int) -> None:
    assert decimals(error) == digits


def shown(view: MeanView, width: int = 150) -> str:
    console = Console(file=io.StringIO(), width=width)
    view.show(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table_says_all_that_counts() -> None:
    ranges = CoordinateRanges((0.0, 18.0), (1440.0, 98.0))
    found = MeanEstimate(np.array([700.123, 44.4]), np.array([3.21, 0.05]), 9, mean_squared_error=4)
    of_two = Release(found, 9, None, "q")
    truth = np.array([702.0, 50.0])
    text = shown(
        MeanView(of_two, ["minutes", "[age]"], 20, truth, ranges, compared="Twice the best.")
    )
    for expected in (
        "All 2 coordinates", "minutes", "[age]", "700.1", "3.2", "44.400", "0.050", "0 … 1440",
        "18 … 98", "702.0", "yes", "no", "Twice the best.",
    ):  # fmt: skip
        assert expected in text, expected
    assert "whole vector" not in text, "units differ"
    alike = MeanView(release(3), names(3), 20, compared="Twice the best.")
    assert "whole vector 0.0173 (" in shown(alike) and "Twice the best." in shown(alike)


def test_one_number_is_not_called_coordinates() -> None:
    assert "The mean" in shown(MeanView(release(1), ["minutes"], 20))


def test_json_holds_the_listed_coordinates() -> None:
    view = MeanView(release(30), names(30), 2, compared="x")
    found = view.as_json()
    assert [row["coordinate"] for row in found["coordinates"]] == ["c29", "c28"]
    assert found["coordinates"][0]["low_simultaneous"] == view.shown.low[29]
    assert found["mean_squared_error"] == pytest.approx(30 * 1e-4)


@pytest.mark.exact
def test_errors_against_a_known_truth() -> None:
    assert MeanView(release(2), names(2), 9).errors() == {}
    truth = np.array([-0.5, 1.05])
    found = MeanView(release(2), names(2), 9, truth).errors()
    assert found["error.largest"] == pytest.approx(0.05)
    assert found["error.intervals_that_hold"] == 0.5


@pytest.mark.exact
@pytest.mark.parametrize(
    ("times", "name", "said"),
    [
        (1.04, "proved bound", "Squared error as planned: 1.04 times proved bound."),
        (2316.7, "x", "Squared error as planned: 2,320 times x."),
        (np.inf, "proved bound", ""),
        (2.0, "", ""),
    ],
)
def test_what_it_is_compared_with_is_named(times: float, name: str, said: str) -> None:
    plan = Plan("M", None, times_lower_bound=times, lower_bound_name=name)
    assert Means().compared(Choice(None, 9, None, 1.0, plan)) == said


# Pictures ---------------------------------------------------------------------------------------


def pixels(image: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(image))[..., :3]


def inked(picture: np.ndarray) -> float:
    """Share of the pixels that are not white."""
    return float((picture < 0.98).any(axis=2).mean())


FORMS = {
    "one": dict(size=1), "few": dict(size=12), "many": dict(size=784),
    "picture": dict(size=64, shape=(8, 8)), "wide": dict(size=64, shape=(2, 32)),
    "tall": dict(size=64, shape=(32, 2)), "units": dict(size=3, ranges=True),
}  # fmt: skip


def view_of(size: int, truth: bool, shape=None, ranges: bool = False) -> ShownMean:
    own = CoordinateRanges((-1.0, -5.0, 0.0), (1.0, 5.0, 9.0)) if ranges else None
    known = np.linspace(-0.5, 1, size) + 0.004 if truth else None
    return shown_mean(estimate(size), names(size), known, own, shape)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("truth", [False, True])
def test_every_form_of_picture_shows_something(form: str, truth: bool) -> None:
    image = png(plot_mean(view_of(truth=truth, **FORMS[form]), "title", "subtitle"))
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    assert width == 1350 and 250 < height < 1500
    drawn = pixels(image)
    below = drawn[int(0.35 * height) :]  # below titles and legend
    assert inked(below) > 0.005
    other = pixels(png(plot_mean(view_of(truth=not truth, **FORMS[form]), "title", "subtitle")))
    assert other.shape != drawn.shape or (other != drawn).any(), "the truth can be seen"


def test_a_picture_has_the_pixels_of_the_estimate() -> None:
    """Dark where the estimate is large: the largest is black and the least is white."""
    value = np.zeros(64)
    value[27] = 1.0
    found = MeanEstimate(value, np.full(64, 0.1), 100)
    drawn = pixels(png(plot_mean(shown_mean(found, names(64), None, None, (8, 8)), "", "")))
    black = np.argwhere((drawn < 0.05).all(axis=2)[:, :600])
    assert len(black) > 1000
    row, column = np.median(black, axis=0)
    assert 0.35 < column / 600 < 0.55 and row < 0.62 * drawn.shape[0]


def test_hostile_labels_neither_fail_nor_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "pictures: no installed font")  # as on this machine
        for labels in (["$x^", "東京", "_" * 300], [f"$_{i}^東" for i in range(60)]):
            view = shown_mean(estimate(len(labels)), labels)
            assert png(plot_mean(view, "$t^ 東", "100 % $")).startswith(b"\x89PNG")
