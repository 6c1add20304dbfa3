"""Simulations: the truth is the truth, the estimate is the mechanism's own, and it says so."""

from __future__ import annotations

import html.parser
import math

import numpy as np
import pyarrow as pa
import pytest

from beam_ldp import simulate
from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.estimate import MOST_ROWS, Estimate, table
from beam_ldp.randomizers.frequency import KRandomizedResponse

ANSWERS = ["a"] * 600 + ["b"] * 300 + ["c"] * 100


class Page(html.parser.HTMLParser):
    """Which tags a page opens and closes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("line", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.exact
def test_truth_of_frequencies():
    seen = simulate.frequencies(ANSWERS, local_epsilon=2.0, seed=1)
    assert seen.labels == ("a", "b", "c", "other")
    assert seen.truth.tolist() == [0.6, 0.3, 0.1, 0.0]
    assert seen.estimate.num_users == 1000


@pytest.mark.exact
def test_a_public_domain_sends_the_rest_to_other():
    for domain in (["a", "z"], Domain(("a", "z"))):
        seen = simulate.frequencies(ANSWERS, local_epsilon=2.0, domain=domain, seed=1)
        assert seen.labels == ("a", "z", "other")
        assert seen.truth.tolist() == [0.6, 0.0, 0.4]


@pytest.mark.exact
def test_numbers_are_in_the_order_of_numbers():
    seen = simulate.frequencies([10, 9, 9, 100], local_epsilon=1.0, seed=1)
    assert seen.labels == ("9", "10", "100", "other")
    assert seen.truth.tolist() == [0.5, 0.25, 0.25, 0.0]
    mixed = simulate.frequencies([1, "b", 1.5], local_epsilon=1.0, seed=1)
    assert mixed.labels == ("1", "1.5", "b", "other")


@pytest.mark.exact
def test_the_estimate_is_the_mechanisms_own():
    seen = simulate.frequencies(ANSWERS, local_epsilon=2.0, mechanism="KRandomizedResponse", seed=5)
    oracle = KRandomizedResponse(4, 2.0)
    indices = Domain(("a", "b", "c")).encode(ANSWERS)
    reports = oracle.randomize(indices, np.random.default_rng(5))
    again = oracle.estimate(oracle.accumulate(reports), 1000)
    np.testing.assert_array_equal(seen.estimate.value, again.value)
    assert seen.epsilon == shuffle_epsilon(oracle, 1000, 1e-8)


@pytest.mark.exact
def test_without_a_seed_noise_is_fresh():
    one, two = (simulate.frequencies(ANSWERS, local_epsilon=1.0) for _ in range(2))
    assert (one.estimate.value != two.estimate.value).any()


@pytest.mark.exact
def test_a_central_target_is_met():
    seen = simulate.frequencies(ANSWERS * 10, epsilon=0.5, delta=1e-6, seed=1)
    assert 0.499 <= seen.epsilon <= 0.5
    assert simulate.frequencies(ANSWERS, local_epsilon=1.0, delta=None, seed=1).epsilon is None


@pytest.mark.statistical
def test_intervals_hold_as_often_as_they_say():
    """400 runs of 4 intervals; 4.5 standard deviations, false alarm below 1e-5."""
    held = [
        simulate.frequencies(ANSWERS, local_epsilon=1.0, seed=seed).inside for seed in range(400)
    ]
    spread = math.sqrt(len(held) * 0.95 * 0.05)
    for count in np.sum(held, axis=0):
        assert abs(count - 0.95 * len(held)) < 4.5 * spread


@pytest.mark.statistical
def test_means_are_in_the_unit_of_the_data():
    """4.5 standard errors per column; false alarm below 1e-4."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(18, 99, 20_000), "name": "x", "w": rng.random(20_000)}
    )
    seen = simulate.means(frame, ranges={"w": (0, 1), "age": (18, 100)}, local_epsilon=2.0, seed=2)
    assert seen.labels == ("w", "age")
    np.testing.assert_allclose(seen.truth, [frame["w"].mean(), frame["age"].mean()])
    score = (seen.estimate.value - seen.truth) / seen.estimate.standard_error
    assert (abs(score) < 4.5).all()
    listed = seen.to_pandas()
    assert list(listed) == ["truth", "estimate", "standard_error", "low", "high", "inside"]
    assert list(listed.index) == ["w", "age"]


@pytest.mark.statistical
def test_clipping_shows():
    """Half of the people are far outside the range: 40 standard errors of bias."""
    numbers = np.repeat([0.5, 5.0], 10_000)
    seen = simulate.means(numbers, ranges=(0, 1), local_epsilon=4.0, seed=1)
    assert seen.truth == pytest.approx([2.75])
    assert seen.estimate.value == pytest.approx([0.75], abs=0.05) and not seen.inside.any()


@pytest.mark.exact
@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: simulate.frequencies([], local_epsilon=1.0), "values"),
        (lambda: simulate.frequencies(ANSWERS), "epsilon"),
        (lambda: simulate.frequencies(ANSWERS, local_epsilon=1, mechanism="X"), "mechanism"),
        (lambda: simulate.frequencies(ANSWERS, local_epsilon=1, max_bits=0), "max_bits"),
        (lambda: simulate.means(np.ones(3), ranges={"a": (0, 1)}, local_epsilon=1), "ranges"),
        (lambda: simulate.means(np.ones((0, 2)), ranges=(0, 1), local_epsilon=1), "values"),
        (lambda: simulate.means([1.0, math.nan], ranges=(0, 1), local_epsilon=1), "finite"),
        (lambda: simulate.means([0.5], ranges=(1, 0), local_epsilon=1), "low"),
    ],
)
def test_bad_input_is_named(run, words):
    with pytest.raises(ValueError, match=words):
        run()


@pytest.mark.exact
def test_missing_columns_are_named():
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="'b'"):
        simulate.means(pd.DataFrame({"a": [1.0]}), ranges={"b": (0, 1)}, local_epsilon=1)


@pytest.mark.exact
def test_it_says_that_nobody_is_protected():
    seen = simulate.frequencies(ANSWERS, local_epsilon=1.0, seed=1)
    assert "protects nobody" in str(seen) and "local epsilon 1" in str(seen)
    page = Page(seen._repr_html_())
    assert not page.open and "protects nobody" in page.text
    # One bar per component: the interval and the truth as lines, the estimate as a dot.
    assert page.tags.count("svg") == page.tags.count("circle") == 4
    assert page.tags.count("line") == 8


@pytest.mark.exact
def test_html_of_an_estimate_keeps_its_steps_and_its_length():
    size = MOST_ROWS + 5
    estimate = Estimate(np.linspace(-0.1, 0.2, size), np.full(size, 0.01), 1234).clip()
    page = Page(estimate._repr_html_())
    assert page.tags.count("svg") == MOST_ROWS and not page.open
    assert "1,234 users" in page.text and "steps: clip" in page.text
    assert f"first {MOST_ROWS} of {size}" in page.text


@pytest.mark.exact
def test_html_escapes_labels_and_survives_zero_users():
    nothing = np.array([np.nan])
    drawn = table(["<script>"], nothing, (nothing, nothing), caption="<b>")
    page = Page(drawn)
    assert "script" not in page.tags and "b" not in page.tags
    assert "<script>" in page.text and "no reports" in page.text


@pytest.mark.exact
def test_nulls_are_nobodys_answer():
    """They are neither in the list nor in the truth, and how many there were is said."""
    pd = pytest.importorskip("pandas")
    answers = ["yes"] * 60 + ["no"] * 40
    nulls = [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT, pa.scalar(None, pa.string())]
    seen = simulate.frequencies([*answers, *nulls], local_epsilon=2.0, seed=1)
    assert seen.labels == ("no", "yes", "other")
    assert seen.truth.tolist() == [0.4, 0.6, 0.0]
    assert seen.estimate.num_users == 100 and seen.left_out == len(nulls)
    assert str(seen).endswith("6 nulls left out")
    alone = simulate.frequencies(answers, local_epsilon=2.0, seed=1)
    assert alone.left_out == 0 and "left out" not in str(alone)
    np.testing.assert_array_equal(alone.estimate.value, seen.estimate.value)
    column = pd.Series(["a", None, "b"]).astype("category")
    assert simulate.frequencies(column, local_epsilon=2.0, seed=1).labels == ("a", "b", "other")
    with pytest.raises(ValueError, match="at least one value that is not null"):
        simulate.frequencies(nulls, local_epsilon=2.0)


@pytest.mark.exact
def test_ranges_may_be_listed():
    rows = np.random.default_rng(2).random((200, 2)) * [10, 100]
    forms = ([(0, 10), (0, 100)], ((0, 10), (0, 100)), np.array([[0, 10], [0, 100]]))
    found = [simulate.means(rows, ranges=one, local_epsilon=4.0, seed=3) for one in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other.estimate.value, found[0].estimate.value)
    errors = found[0].estimate.standard_error  # measured, of each coordinate by itself
    assert errors[1] == pytest.approx(10 * errors[0], rel=0.05)
    pd = pytest.importorskip("pandas")
    named = simulate.means(
        pd.DataFrame(rows, columns=["a", "b"]), ranges=forms[0], local_epsilon=4.0, seed=3
    )
    np.testing.assert_array_equal(named.estimate.value, found[0].estimate.value)
    both = simulate.means(rows, ranges=[0, 100], local_epsilon=4.0, seed=3)
    assert both.estimate.standard_error[0] < both.estimate.standard_error[1]  # it varies less
    for wrong in ([(0, 1)], [(0, 1)] * 3, [(0, 1), 2], [0, 1, 2], []):
        with pytest.raises(ValueError, match="a list of 2 of them, one for each column"):
            simulate.means(rows, ranges=wrong, local_epsilon=4.0)
