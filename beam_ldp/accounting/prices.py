"""What an event costs, whatever its kind, and memoized reports that are published again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.reports import (
    ShuffledMessages,
    ShuffledReports,
    crowd_of,
    hidden_users,
    honest_part,
)
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.accounting.shuffle.mean_price import messages_epsilon
from beam_ldp.accounting.shuffle.one_release import (
    Randomizer,
    local_event,
    shuffle_epsilon,
    shuffled_event,
    shuffled_reports,
)
from beam_ldp.accounting.shuffle.split_and_mix import shares_epsilon
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.checks import check_integer

if TYPE_CHECKING:
    import dp_accounting


def event_epsilon(event: Any, delta: float, count: int = 1) -> PrivacyBound:
    """The central epsilon at `delta` of an event: the smallest value that is proved for it.

    Protects one person's value (replace-one) against the reader that the event's class names.

    Args:
        event: Any event that `ShuffleAccountant` takes, or what such events are made of
            (`beam_ldp.accounting.reports`).
        delta: In [0, 1).
        count: How often it happens, by a schedule that was fixed beforehand.

    Raises:
        dp_accounting.UnsupportedEventError: For an event that has no finite privacy cost under
        replace-one.

    >>> from beam_ldp.accounting import shuffled_event
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> event = shuffled_event(KRandomizedResponse(1000, 4.0), 100_000)
    >>> round(event_epsilon(event, 1e-6), 4)
    0.0243
    """
    if count == 1:
        if isinstance(event, ShuffledReports):
            return shuffle_epsilon(event.local_event, event.num_honest, delta)
        if isinstance(event, ShuffledMessages):
            return messages_epsilon(event, delta)
        if isinstance(event, ShuffledShares):
            return shares_epsilon(event, delta)
    from beam_ldp.accounting.composition.accountant import ShuffleAccountant  # loads dp_accounting
    from beam_ldp.accounting.events import as_event

    return ShuffleAccountant().compose(as_event(event), count).get_epsilon(delta)


# Several publications of the same memoized reports: what all of them together cost --------
#
# Memoized reports are drawn once. Published again about other people, they are not fresh noise:
# whoever compares two publications learns the reports of those who came and went. Partition the
# people by the set of publications that they are in. Each publication is a function of the
# multisets of reports of these *cells*, so all publications together are, and a person hides
# among the honest reports of their own cell: by the cell's shuffle, no more and no less often
# than once. A person is in one cell, so everything costs the *maximum* over the cells, in place
# of the price of the first publication; locally it stays one report, and so one local epsilon.
# The same rule prices totals beside groups, filters, and sums of sliding windows whose panes are
# published (cells: panes).
#
# A person who sends several messages, each to a shuffler of its own (all of several questions),
# is in one cell with all of them: given the others, the view is a product over the messages, so
# the cell costs their composition, each at the size of the cell. Where people are parted into
# public groups, each with a release of its own, cells are counted within each group: a person is
# in one group, so the maximum is over the cells of all of them. A group that a publication
# withheld is not in it (`shown_cells`).
#
# It holds where every publication shows one multiset of each group (or a function of it): reports
# that leave in batches are a publication per batch. It holds where who is in which publication
# was decided without looking at values, and where an unchanged person's value stays: a changed
# one sends another report, which an unchanged one never does, and no finite epsilon bounds that.


_NO_PRICE = "none: the value of somebody may have changed between two publications"
_PURE = "local epsilon (cells are unknown, or too small)"

Cell = tuple[int, ...]  # the publications that a person is in, by their index
Cells = Mapping[Cell, int] | Iterable[int | None]


def second_publication(
    randomizer: Randomizer,
    cells: Cells,
    delta: float,
    num_fakes: int = 0,
    *,
    same_values: bool = True,
) -> PrivacyBound:
    """Central epsilon at `delta` of all publications together, the first one included.

    Protects one person's value (replace-one; who is in which publication is not hidden) against a
    reader of all publications who knows everybody else's value.

    Args:
        randomizer: The mechanism of the reports.
        cells: Reports received from the people of each cell, as `cells_of` counts them; None where
            that is not known.
        delta: In [0, 1).
        num_fakes: The most reports, of all cells together, that may be fake. They may all be in the
            smallest cell.
        same_values: Whether nobody's value changed between two publications.

    Returns:
        The price of the smallest cell's shuffle; the local epsilon where a cell is unknown or may
        hold no honest report; infinity where a value may have changed.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent
    >>> any_randomizer = LocalRandomizerDpEvent(4.0)
    >>> round(second_publication(any_randomizer, [2_000, 98_000, 2_000], 1e-8), 2)
    2.78
    >>> round(second_publication(any_randomizer, [100_000], 1e-8), 3)  # the same people again
    0.215
    """
    smallest = _smallest_crowd(cells, num_fakes)
    if not same_values:
        return PrivacyBound(math.inf, method=_NO_PRICE)
    if smallest < 1:
        return PrivacyBound(randomizer.local_epsilon, method=_PURE)
    return event_epsilon(shuffled_event(randomizer, smallest), delta)


def publications_event(
    randomizer: Randomizer, cells: Cells, num_fakes: int = 0, *, same_values: bool = True
) -> dp_accounting.DpEvent:
    """The event of all publications together, for ledgers: in place of the first one's.

    A shuffle of more reports is a function of a shuffle of fewer, so at every Rényi order, and in
    every composition, no cell costs more than the smallest one, whose shuffle this is.

    Args:
        randomizer, cells, num_fakes, same_values: as for `second_publication`.

    Raises:
        ValueError: if values may have changed, which no event bounds.
    """
    smallest = _smallest_crowd(cells, num_fakes)
    if not same_values:
        raise ValueError(
            "same_values must be True: a changed value has no finite epsilon. Freeze the first "
            "value, or publish under a release id of its own, with fresh noise and a charge"
        )
    if smallest < 1:
        return local_event(randomizer)
    return shuffled_event(randomizer, smallest)


def cells_of(tag_sets: Sequence[NDArray[np.uint64]]) -> Counter[Cell]:
    """How many people are in exactly these publications, for each set of them that occurs.

    Counts of disjoint shards of the people may be added. Two people who share a tag count once,
    which makes a cell smaller, never larger. Reports of people without a tag are in no cell: where
    there are any, give None to `second_publication`. About a microsecond a tag and publication.

    Args:
        tag_sets: For each publication the tags of its people, sorted and distinct.

    >>> import numpy as np
    >>> first, second = np.array([[1, 2, 3], [2, 3, 4]], dtype=np.uint64)
    >>> sorted(cells_of([first, second]).items())
    [((0,), 1), ((0, 1), 2), ((1,), 1)]
    """
    for tags in tag_sets:
        if tags.dtype != np.uint64 or tags.ndim != 1 or np.any(tags[1:] <= tags[:-1]):
            raise ValueError("tag_sets must be sorted arrays of distinct uint64")
    if not tag_sets:
        return Counter()
    everybody = np.unique(np.concatenate(tag_sets))
    cell_of = np.zeros(len(everybody), dtype=np.int64)
    cells: list[Cell] = [()]
    for i, tags in enumerate(tag_sets):  # each publication splits every cell in two
        split = 2 * cell_of
        split[np.searchsorted(everybody, tags)] += 1
        found, cell_of = np.unique(split, return_inverse=True)
        cells = [(*cells[each // 2], i) if each % 2 else cells[each // 2] for each in found]
    counts = np.bincount(cell_of, minlength=len(cells))
    return Counter(dict(zip(cells, counts.tolist(), strict=True)))


def shown_cells(cells: Mapping[Cell, int], least: Sequence[int]) -> Counter[Cell]:
    """The cells of a group, of the publications that showed it alone.

    A group of fewer people than a publication asked for is no part of it; people who differ in such
    publications only are of one cell, and those whom nothing showed are in none.

    Args:
        cells: of one group, as `cells_of` counts them.
        least: of each publication, how many reports of a group it showed at least.

    >>> shown_cells({(0, 1): 5, (0,): 1, (1,): 2}, [7, 1])  # six people are too few for the first
    Counter({(1,): 7})
    """
    counts = _reports_in(cells)
    found: Counter[Cell] = Counter()
    for cell, count in cells.items():
        if shown := tuple(p for p in cell if counts[p] >= least[p]):
            found[shown] += count
    return found


def honest_cells(cells: Mapping[Cell, int], honest_fraction: float) -> dict[Cell, int]:
    """Of each cell, how many reports are honest at least; zero where there may be none.

    All fakes of a publication may be in one cell, but only fakes of *every* publication of a cell:
    those of the one with the fewest.

    Args:
        cells: of one group, as `cells_of` counts them.
        honest_fraction: share of the reports of each publication that are not fake.

    >>> honest_cells({(0,): 9_600, (0, 1): 90_400}, 0.9)  # all of those who left may be fake
    {(0,): 0, (0, 1): 81360}
    """
    counts = _reports_in(cells)
    fakes = {p: count - hidden_users(count, honest_fraction) for p, count in counts.items()}
    return {
        cell: max(0, count - min((fakes[p] for p in cell), default=0))
        for cell, count in cells.items()
    }


def _reports_in(cells: Mapping[Cell, int]) -> Counter[int]:
    """How many reports each publication has."""
    counts: Counter[int] = Counter()
    for cell, count in cells.items():
        counts.update(dict.fromkeys(cell, count))
    return counts


def _smallest_crowd(cells: Cells, num_fakes: int) -> int:
    """Honest reports of the smallest cell; below one where that is not known."""
    check_integer("num_fakes", num_fakes, 0)
    counts: list[Any] = list(cells.values() if isinstance(cells, Mapping) else cells)
    for count in counts:
        whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
        if count is not None and not (whole and count >= 0):
            raise ValueError("cells must hold counts of reports >= 0, or None where not known")
    known = [int(count) for count in counts if count is not None]
    if not known or len(known) < len(counts):
        return 0
    return min(known) - num_fakes


# The price of a release --------------------------------------------------------------------


class Priced(Protocol):
    """What a release says of what ran: a `beam_ldp.transforms.Release` does."""

    @property
    def ran(self) -> Any: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def smallest_batch(self) -> int: ...


@dataclass(frozen=True)
class Price:
    """The central price of one release.

    Attributes:
        bound: proven upper value, with lower values and method; None in a simulation.
        honest_reports: honest reports of the smallest crowd: those that the price counts.
        ran: what was priced: a record of `beam_ldp.accounting.reports`, or a privacy event; None in
            a simulation.
    """

    bound: PrivacyBound | None
    honest_reports: int
    ran: Any = None

    @property
    def event(self) -> Any:
        """What was priced, as a `dp_accounting.DpEvent`, for ledgers."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting, a second

        return as_event(self.ran)


def price_of(release: Priced, delta: float, honest_fraction: float) -> Price:
    """The price of what was received, not of what was expected."""
    if release.simulated or release.ran is None:
        return Price(None, hidden_users(release.smallest_batch, honest_fraction))
    return _price(release.ran, delta, honest_fraction)


def expected_price(
    randomizer: LocalRandomizer, num_reports: int, delta: float, honest_fraction: float
) -> Price:
    """The price if `num_reports` arrive."""
    return _price(shuffled_reports(randomizer, num_reports), delta, honest_fraction)


def _price(ran: Any, delta: float, honest_fraction: float) -> Price:
    priced = honest_part(ran, honest_fraction)
    return Price(event_epsilon(priced, delta), crowd_of(priced), priced)


def price_as_json(price: Price) -> dict[str, Any]:
    """The price of one of several releases, for the record; null in a simulation."""
    bound = price.bound
    known = None if bound is None or not math.isfinite(bound) else float(bound)
    lower = None if bound is None or not bound.lower > 0 else float(bound.lower)
    return {"epsilon": known, "epsilon_lower": lower, "honest_reports": price.honest_reports}
