"""An event holds all of its mechanism that a price depends on, whichever way it was made."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import dataclass

import attr
import dp_accounting
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
    shuffle_epsilon,
    shuffle_epsilons,
    shuffled_event,
)
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.reports import (
    UNKNOWN_GROUPS,
    crowd_of,
    failure_of,
    hidden_users,
    honest_part,
    with_crowd,
    with_reports,
)
from beam_ldp.accounting.shuffle.one_release import crowd_by_rule
from beam_ldp.randomizers import frequency, mean, registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

pytestmark = pytest.mark.exact

PUBLIC = frequency.BinaryHadamard(1000, 4.0, row="public")
N, DELTA = 100_000, 1e-6
ANSWERS = (frequency.KRandomizedResponse(3, 1.0), frequency.KRandomizedResponse(5, 1.0))
SIZES = {"messages": (2,), "message_epsilons": (0.5,)}
MECHANISMS: list[LocalRandomizer] = [
    PUBLIC,
    frequency.BinaryHadamard(6, 2.0, row="public"),
    frequency.BinaryHadamard(6, 2.0),
    frequency.HadamardResponse(6, 2.0),
    frequency.KRandomizedResponse(6, 2.0),
    frequency.LimitedHadamard(6, 2.0, 0.2, "timeshare"),
    frequency.LimitedHadamard(6, 2.0, 0.2, "timeshare", row="public"),
    frequency.LocalHashing(6, 2.0),
    frequency.PairwiseIndependentRappor(6, 2.0),
    frequency.ProjectiveGeometryResponse(6, 2.0),
    frequency.RecoverableResponse(6, 2.0),
    frequency.RefinableResponse(6, 1.0, levels=(2.0, 1.0)),
    frequency.Rappor(6, 2.0),
    frequency.RecursiveHadamardResponse(6, 2.0),
    frequency.SubsetSelection(6, 2.0),
    frequency.UnaryEncoding(6, 2.0),
    mean.BinaryVectorMean(4, 1.0, **SIZES),
    mean.BinaryVectorMean(1, 1.0, messages=(1,), message_epsilons=(1.0,)),
    mean.KashinMean(4, 2.0),
    mean.L1Mean(4, 1.0, **SIZES),
    mean.L2Mean(4, 1.0, **SIZES),
    mean.LInfMean(4, 1.0, **SIZES),
    mean.MinimalRandomCoding(4, 2.0),
    mean.PrivUnit(4, 2.0),
    mean.PrivUnitGaussian(4, 2.0),
    mean.PrivUnitInf(4, 2.0),
    mean.ProjectedPrivUnit(8, 2.0, projected=4),
    mean.RandomCodebookMean(4, 2.0),
    mean.RotatedSimplexMean(4, 2.0, index_bits=2),
    mean.ScalarMean(1, 2.0),
    mean.SeedCompressedMean(4, 2.0),
    mean.SeparatedMean(4, 2.0),
    EveryQuestion(ANSWERS),
    OneQuestion(ANSWERS),
]


def test_the_table_holds_every_mechanism():
    named = {registry.find(name) for name in registry.OWN_MODULES}
    priced = {m for m in named if not inspect.isabstract(m) and m.protects_alone}
    assert {type(m) for m in MECHANISMS} >= priced
    assert len(named) > 20


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("reports", [1, 3000])
def test_an_event_by_hand_costs_what_the_mechanism_does_or_is_refused(mechanism, reports):
    if mechanism.messages_per_user != 1:
        with pytest.raises(ValueError, match=r"shuffled_event\(randomizer, num_reports\)"):
            ShuffledDpEvent(mechanism.dp_event(), reports)
        return
    by_hand, made = (
        ShuffledDpEvent(mechanism.dp_event(), reports),
        shuffled_event(mechanism, reports),
    )
    assert by_hand == made and by_hand.crowd == mechanism.crowd_size(reports)
    price = event_epsilon(by_hand, DELTA)
    assert price == shuffle_epsilon(mechanism, reports, DELTA) == event_epsilon(made, DELTA)
    assert price.method == event_epsilon(made, DELTA).method
    orders = [ShuffleAccountant(orders=[8.0]).compose(e).divergences() for e in (by_hand, made)]
    assert orders[0] == orders[1]


def local_event_of_one_group(mechanism):
    return attr.evolve(local_event(mechanism), public_groups=1, telling_groups=None)


def test_public_rows_hide_nobody():
    """Every way to a price says 4.0, where the whole crowd would give 0.085."""
    event = ShuffledDpEvent(PUBLIC.dp_event(), N)
    whole = ShuffledDpEvent(local_event_of_one_group(PUBLIC), N)
    assert event_epsilon(whole, DELTA) == pytest.approx(0.0847, abs=1e-4)
    assert event.crowd == PUBLIC.crowd_size(N) == 98
    prices = [
        event_epsilon(event, DELTA),
        ShuffleAccountant().compose(event).get_epsilon(DELTA),
        ShuffleAccountant(adaptive=True).compose(event).get_epsilon(DELTA),
        shuffle_epsilon(PUBLIC, N, DELTA),
        shuffle_epsilon(PUBLIC.dp_event(), N, DELTA),
        shuffle_epsilons([4.0], N, DELTA, randomizer=lambda _: PUBLIC)[0],
    ]
    assert all(price == pytest.approx(4.0, rel=1e-3) for price in prices)
    twice = ShuffleAccountant().compose(event, 2).get_epsilon(DELTA)
    assert twice > 4.0 > 2 * event_epsilon(whole, DELTA)


def test_the_rule_travels():
    event = ShuffledDpEvent(PUBLIC.dp_event(), N)
    again = event_from_json(json.loads(json.dumps(event_to_json(event))))
    assert again == event and again.crowd == 98 and event_epsilon(again, DELTA) > 3.9
    tuples = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    assert tuples == event and tuples.local_event.telling_groups == 512
    state = ShuffleAccountant().compose(event).state_dict()
    restored = ShuffleAccountant.from_state_dict(json.loads(json.dumps(state)))
    assert restored.get_epsilon(DELTA) > 3.9


def test_a_counted_group_is_not_split_again():
    event = ShuffledDpEvent(PUBLIC.dp_event(), N)
    counted = with_crowd(event, 90)
    assert crowd_of(counted) == 90 and failure_of(counted) == failure_of(event) == 0.0
    assert with_reports(event, 90).local_event == event.local_event != counted.local_event
    assert honest_part(ShuffledDpEvent(PUBLIC.dp_event(), N, N // 10), 0.5).num_honest == 45_000
    assert with_crowd(dp_accounting.ComposedDpEvent([event]), 90).events[0] == counted
    assert counted.local_event.pair == event.local_event.pair
    assert failure_of(dp_accounting.GaussianDpEvent(1.0)) == 0.0


def test_of_several_columns_the_fewest_hide_a_report():
    """Columns may have crowds of their own: one in which few hide each other is what counts."""
    local = local_event_of_one_group(PUBLIC)
    columns = [ShuffledDpEvent(local, n) for n in (70, 30, 50)]
    event = dp_accounting.ComposedDpEvent(columns)
    assert crowd_of(event) == 30
    assert [crowd_of(part) for part in with_crowd(event, 20).events] == [20, 20, 20]
    messages = ShuffledMessagesDpEvent(((3, 0.5),), 40, None, 1.5)
    assert crowd_of(dp_accounting.ComposedDpEvent([columns[0], messages])) == 40
    assert with_crowd(messages, 9) == attr.evolve(messages, num_reports=9)


def test_nobody_hides_among_more_than_came():
    """Whatever a mechanism's rule says, and at least in oneself."""

    class Generous:
        local_epsilon = 1.0
        dominating_pair = frequency.KRandomizedResponse(4, 1.0).dominating_pair

        def __init__(self, size):
            self.crowd_size = lambda num_reports: size

    assert [crowd_by_rule(Generous(size), 20) for size in (10**9, 21, 19, 1, 0, -5)] == [
        20,
        20,
        19,
        1,
        1,
        1,
    ]
    for size, hidden in ((10**9, 20), (7, 7), (0, 1)):
        assert shuffled_event(Generous(size), 20).crowd == hidden


@pytest.mark.parametrize("share", [0.0, -0.1, 1.0000001, float("nan")])
def test_a_share_of_honest_people_is_a_share(share):
    with pytest.raises(ValueError, match="honest_fraction must lie in"):
        hidden_users(100, share)


def test_a_share_is_meant_as_it_is_written():
    assert [hidden_users(n, f) for n, f in ((10, 0.1), (100, 0.29), (7, 1.0), (3, 0.1))] == [
        1, 29, 7, 1,
    ]  # fmt: skip


@dataclass(frozen=True)
class OwnRule:
    """A rule that no number of groups describes."""

    local_epsilon: float = 2.0

    def dominating_pair(self) -> ShufflePair:
        return ShufflePair.clones(2.0)

    def crowd_size(self, num_reports: int) -> int:
        return math.isqrt(num_reports)


def test_a_rule_of_its_own_has_a_price_only_where_it_is_counted():
    with pytest.raises(ValueError, match="local_event must not split the crowd by a rule"):
        ShuffledDpEvent(local_event(OwnRule()), 10_000)
    event = shuffled_event(OwnRule(), 10_000)
    assert event.crowd == 100 and event_epsilon(event, 1e-3) == shuffle_epsilon(2.0, 100, 1e-3)
    with pytest.raises(ValueError, match="rule of its own"):
        shuffle_epsilon(local_event(OwnRule()), 10_000, 1e-3)


@dataclass(frozen=True)
class SplitsBetween(OwnRule):
    """Agrees with one crowd wherever somebody might look, and splits at one size."""

    size: int = 25_000

    def crowd_size(self, num_reports: int) -> int:
        return 5 if num_reports == self.size else num_reports


@pytest.mark.parametrize("size", [11, 25_000, 9_999_999])
def test_a_rule_is_not_told_from_a_few_numbers(size):
    """It was looked at for three numbers of reports, and priced as unsplit at all others."""
    rule = SplitsBetween(size=size)
    assert local_event(rule).public_groups == UNKNOWN_GROUPS
    event = shuffled_event(rule, size)
    assert event.crowd == 5 and event_epsilon(event, 1e-3) == shuffle_epsilon(rule, size, 1e-3)
    assert shuffled_event(rule, size + 1).crowd == size + 1
    for make in (
        lambda local: ShuffledDpEvent(local, size),
        lambda local: SubsampledShuffledDpEvent(local, 2 * size, size),
    ):
        with pytest.raises(ValueError, match="split the crowd by"):
            make(local_event(rule))


class GroupsOnly(OwnRule):
    """Says how many groups there are, and leaves the rest to us."""

    crowd_size = None  # type: ignore[assignment]
    public_groups = 1023


def test_groups_without_a_rule_split_as_groups_do():
    """They were priced as one crowd."""
    event = shuffled_event(GroupsOnly(), N)
    assert event.crowd == 98 and failure_of(event) == 0.0
    assert shuffle_epsilon(GroupsOnly(), N, DELTA) == event_epsilon(event, DELTA)


def test_groups_beside_a_rule_are_refused():
    """The rule may hold but for a chance, of which the event of a counted crowd says nothing."""

    class Both(OwnRule):
        public_groups = 64

    class Messages(mean.LInfMean):
        public_groups = 64  # type: ignore[assignment]

    for make in (local_event, lambda m: shuffled_event(m, 1000)):
        with pytest.raises(ValueError, match="public_groups 1 where crowd_size is its own"):
            make(Both())
    with pytest.raises(ValueError, match="public_groups 1 where each user sends several"):
        shuffled_event(Messages(4, 1.0, **SIZES), 1000)


@pytest.mark.parametrize("local", [PUBLIC.dp_event(), local_event(OwnRule())])
def test_no_sample_of_a_crowd_that_splits(local):
    with pytest.raises(ValueError, match=r"price ShuffledDpEvent\(local_event, num_drawn\)"):
        SubsampledShuffledDpEvent(local, 10_000, 100)


def test_several_messages_in_a_sample_are_columns_of_it():
    """Less than one report of their sum, which all that do not describe their messages cost."""
    mechanism = mean.LInfMean(4, 1.0, **SIZES)
    event = SubsampledShuffledDpEvent(mechanism.dp_event(), 10_000, 500)
    known = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10_000, 500)
    assert event_epsilon(event, DELTA) < 0.6 * event_epsilon(known, DELTA)
    undescribed = attr.evolve(mechanism.dp_event(), columns=())
    event = SubsampledShuffledDpEvent(undescribed, 10_000, 500)
    assert event_epsilon(event, DELTA) == event_epsilon(known, DELTA)
    with pytest.raises(ValueError, match="local must be of one message"):
        shuffle_epsilon(mechanism.dp_event(), 500, DELTA)


def test_fakes_hide_nobody():
    local = frequency.KRandomizedResponse(50, 3.0).dp_event()
    some, fewer = ShuffledDpEvent(local, 10_000, 2_500), ShuffledDpEvent(local, 7_500)
    assert some.num_honest == some.crowd == 7_500
    assert event_epsilon(some, DELTA) == event_epsilon(fewer, DELTA)
    both = [ShuffleAccountant().compose(e, 3).get_epsilon(DELTA) for e in (some, fewer)]
    assert both[0] == both[1] > 0
    again = event_from_json(json.loads(json.dumps(event_to_json(some))))
    assert again == some and again != fewer


@pytest.mark.parametrize("fakes", [-1, 10, 11, 2.5, True])
def test_impossible_fakes_are_refused(fakes):
    with pytest.raises(ValueError, match="num_fakes must be"):
        ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10, fakes)


# A pair that contradicts its own local epsilon.


@pytest.mark.parametrize(
    ("local_epsilon", "pair"),
    [
        (1.0, ShufflePair.clones(1.01)),
        (4.0, ShufflePair.two_level(math.exp(4.1), 1 / 50, 0.0, "k-RR")),
    ],
)
def test_a_pair_beyond_its_local_epsilon_is_refused(local_epsilon, pair):
    with pytest.raises(
        ValueError, match="local_epsilon must be at least .*, what one report tells by its pair"
    ):
        LocalRandomizerDpEvent(local_epsilon, pair)


def test_a_report_that_only_one_value_sends_is_refused():
    witness = ShufflePair(1.0, ((2.0, 0.0), (0.0, 2.0)), (0.5, 0.5))
    with pytest.raises(ValueError, match="must be at least inf"):
        LocalRandomizerDpEvent(5.0, None, (witness,))


def test_a_witness_that_tells_more_is_refused():
    (_, third) = two_level_witnesses(math.exp(2.0), 1 / 3, 0.0, (0.0,))
    assert LocalRandomizerDpEvent(2.0, None, (third,)).witnesses
    with pytest.raises(ValueError, match="local_epsilon must be at least 2"):
        LocalRandomizerDpEvent(1.9, None, (third,))


def test_a_refused_pair_does_not_come_back_from_json():
    event = LocalRandomizerDpEvent(4.0, ShufflePair.clones(4.0))
    data = event_to_json(event)
    data["event"]["local_epsilon"] = 0.5
    with pytest.raises(ValueError, match="local_epsilon must be at least"):
        event_from_json(data)


def test_a_mechanism_that_lies_about_itself_has_no_event():
    class Liar(OwnRule):
        local_epsilon = 0.5

        def crowd_size(self, num_reports: int) -> int:
            return num_reports

    with pytest.raises(ValueError, match="local_epsilon must be at least"):
        local_event(Liar(0.5))


@pytest.mark.parametrize(
    "fields",
    [
        {"public_groups": -1},
        {"public_groups": 1.5},
        {"messages": 0},
        {"messages": True},
        {"public_groups": 2, "telling_groups": 0},
    ],
)
def test_impossible_facts_are_refused(fields):
    with pytest.raises(ValueError, match="must be an integer >="):
        LocalRandomizerDpEvent(1.0, **fields)


def test_no_more_groups_tell_than_there_are():
    with pytest.raises(ValueError, match=r"telling_groups must be at most public_groups \(1\)"):
        attr.evolve(local_event(PUBLIC), public_groups=1)
