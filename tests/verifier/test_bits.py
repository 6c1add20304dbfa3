"""Prices of what is one bit, over all data sets: proved again by the verifier."""

from __future__ import annotations

import json
import math
import random
from decimal import localcontext
from fractions import Fraction
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.divergences.bit_counts import Bit, block_ends
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.reports import SampledReports
from beam_ldp.accounting.shuffle.one_release import local_reports
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import CONFIRMED, REFUTED, Part, Refuted, verify
from tests.verifier.statements import statement

pytestmark = pytest.mark.exact

HIGH, LOW = Fraction(7, 10), Fraction(2, 10)
TABLE = [(HIGH, LOW, LOW), (1 - HIGH, 1 - LOW, 1 - HIGH)]  # no mirror image of itself


def _law(chances: list[Fraction]) -> list[Fraction]:
    found = [Fraction(1)]
    for p in chances:
        found = [
            (1 - p) * here + p * before
            for here, before in zip([*found, Fraction(0)], [Fraction(0), *found], strict=True)
        ]
    return found


def _exact(people: int, odds: Fraction) -> Fraction:
    """The largest hockey stick, of every number of ones and both directions, in fractions."""
    worst = Fraction(0)
    for ones in range(people):
        others = [HIGH] * ones + [LOW] * (people - 1 - ones)
        first, second = _law([*others, HIGH]), _law([*others, LOW])
        for one, other in ((first, second), (second, first)):
            gains = (max(p - odds * q, Fraction(0)) for p, q in zip(one, other, strict=True))
            worst = max(worst, sum(gains, Fraction(0)))
    return worst


def _told(people: int, epsilon: float) -> list[Any]:
    bit = Bit(float(HIGH), float(LOW))
    return [block_ends(side, people, epsilon) for side in bit.directions]


@pytest.mark.parametrize("people", [1, 2, 5, 30])
@pytest.mark.parametrize("epsilon", ["0", "0.1", "0.7"])
def test_every_delta_is_above_the_enumerated_one_and_close(people: int, epsilon: str) -> None:
    part = Part(1, TABLE, people, bit=True)
    with localcontext(program.CONTEXT):
        loss = Fraction(epsilon)
        found = part.delta(loss, _told(people, float(epsilon)), "0.01")
        exact = _exact(people, program._exp(loss, up=False))
    assert exact <= found <= exact * Fraction(1002, 1000)


def test_any_choice_is_an_upper_bound() -> None:
    """Whatever the numbers of nodes and places and the blocks: too few are refused, or prove
    less."""
    part, draw = Part(1, TABLE, 12, bit=True), random.Random(1)
    with localcontext(program.CONTEXT):
        exact = _exact(12, program._exp(Fraction(1, 2), up=False))
        for _ in range(40):
            nodes = draw.randrange(2, 40)
            ends = sorted({0, 11, *draw.sample(range(12), draw.randrange(11))})
            told = [[nodes, draw.randrange(1, nodes + 1), draw.randrange(2, 12), ends]] * 2
            try:
                assert part.delta(Fraction(1, 2), told, "0.01") >= exact
            except Refuted as error:
                assert "nodes are too few" in str(error)


def test_a_block_is_higher_in_its_middle_than_at_its_ends() -> None:
    with localcontext(program.CONTEXT):
        table = program.two_kinds(Fraction("6.78"), bit=True)
        part = Part(1, table, 1210, bit=True)
        one = block_ends(Bit(float(table[0][0]), float(table[0][1])), 1210, 0.2916)
        assert one is not None
        found = part.delta(Fraction("0.2916"), [[*one[:3], [0, 300, 1209]]], "0.01")
    assert found > Fraction("0.3223")  # what the middle alone needs: e^-1.1324


def test_one_number_of_ones_between_two_ends_counts() -> None:
    """Of nine others eight are the worst (golden): 1.5 % above seven and nine."""
    with localcontext(program.CONTEXT):
        part = Part(1, program.two_kinds(Fraction("0.5"), bit=True), 10, bit=True)
        loss, told = Fraction("0.206592"), [20, 20, 40]
        whole = part.delta(loss, [[*told, [*range(10)]]], "")
        assert whole == pytest.approx(0.01, rel=1e-5)
        assert part.delta(loss, [[*told, [*range(8), 9]]], "") >= whole


def test_sizes_by_chance_are_each_proved_alone() -> None:
    sizes = [(Fraction(2), Fraction(1, 3)), (Fraction(5), Fraction(1, 4))]
    part, told = Part(1, TABLE, 4, bit=True, sizes=sizes), [_told(n, 0.5) for n in (2, 5)]
    with localcontext(program.CONTEXT):
        odds = program._exp(Fraction(1, 2), up=False)
        exact = _exact(2, odds) / 3 + _exact(5, odds) / 4
        assert exact <= part.delta(Fraction(1, 2), told, "0.01") <= exact * Fraction(1002, 1000)
        for wrong in (told[:1], [*told, told[0]]):
            with pytest.raises(ValueError, match="zip"):
                part.delta(Fraction(1, 2), wrong, "0.01")
        with pytest.raises(Refuted, match="all numbers of ones"):
            part.delta(Fraction(1, 2), told[::-1], "0.01")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda told: told[:1], "a direction is not proved"),
        (lambda told: [told[0], [*told[1][:3], told[1][3][:-1]]], "do not hold all numbers"),
        (lambda told: [told[0], [*told[1][:3], told[1][3][1:]]], "do not hold all numbers"),
        (lambda told: [told[0], [*told[1][:3], told[1][3][::-1]]], "do not hold all numbers"),
        (lambda told: [told[0], [*told[1][:3], [0.0, *told[1][3][1:]]]], "do not hold all numbers"),
        (lambda told: [told[0], [2, 1, *told[1][2:]]], "nodes are too few"),
        (lambda told: [told[0], [told[1][0], 0, *told[1][2:]]], "an integer is not in"),
    ],
)
def test_what_is_left_out_is_refused(change: Any, why: str) -> None:
    part = Part(1, TABLE, 30, bit=True)
    with localcontext(program.CONTEXT), pytest.raises(Refuted, match=why):
        part.delta(Fraction(1, 2), change(_told(30, 0.5)), "0.01")


def test_no_other_table_is_proved_so() -> None:
    """Not what is not said to be a bit, nor what has a third kind of reports."""
    told = _told(30, 0.5)
    third = [*TABLE[:1], *(tuple(x / 2 for x in TABLE[1]) for _ in range(2))]
    for part in (Part(1, TABLE, 30), Part(1, third, 30, bit=True)):
        with localcontext(program.CONTEXT), pytest.raises(Refuted, match="what is one bit"):
            part.delta(Fraction(1, 2), told, "0.01")


def test_it_confirms_what_the_accountant_states() -> None:
    """Of random bits: in four digits, with proofs of blocks of ones."""
    draw = random.Random(7)
    for _ in range(10):
        people, budget = int(10 ** draw.uniform(0.5, 12)), round(draw.uniform(0.3, 5.0), 3)
        event, delta = shuffled_event(KRandomizedResponse(2, budget), people), 1e-7
        told = statement(event, delta)
        price = float(event_epsilon(event, delta))
        assert price <= told["epsilon"] <= price * 1.002
        assert verify(json.loads(json.dumps(told))).code == CONFIRMED, told
        if told["certificate"]["kind"] == "shuffle":
            assert isinstance(told["certificate"]["tilts"][0], list) or people < 50
        below = {"epsilon": told["epsilon"] * 0.99}
        false = {**told, **below, "certificate": told["certificate"] | below}
        assert verify(false).code == REFUTED


_ROUNDS = dp_accounting.SelfComposedDpEvent(shuffled_event(KRandomizedResponse(2, 2.0), 20_000), 5)
_GROUPS = shuffled_event(BinaryHadamard(30, 2.0, row="public"), 300_000)
_SAMPLE = SampledReports(local_reports(KRandomizedResponse(2, 2.0)), 100_000, 2_000, num_fakes=50)
_COLUMNS = BinaryVectorMean(5, 2.0, messages=(5,), message_epsilons=(0.4,))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (_GROUPS, "shuffle"),
        (_ROUNDS, "composed"),
        pytest.param(shuffled_event(_COLUMNS, 100_000), "composed", marks=pytest.mark.slow),
        pytest.param(_SAMPLE, "composed", marks=pytest.mark.slow),
    ],
)
def test_it_confirms_groups_samples_columns_and_rounds(event: Any, kind: str) -> None:
    told = statement(event, 1e-7)
    assert told["certificate"]["kind"] == kind, told["certificate"]
    chosen = told["certificate"].get("tilts") or told["certificate"]["parts"][0]["knots"][3][2:]
    assert isinstance(chosen[0], list)
    assert verify(told).code == CONFIRMED


def test_the_price_of_the_blanket_is_still_confirmed_without_the_field() -> None:
    """Of an event of before: dearer, by its own table."""
    event = event_to_json(shuffled_event(KRandomizedResponse(2, 2.0), 10_000))
    del event["event"]["local_event"]["outputs"]
    stated = {"epsilon": 0.1205, "delta": 1e-6, "event": event, "proof_status": "proved"}
    told = certified(stated)
    assert told["certificate"]["kind"] == "shuffle" and verify(told).code == CONFIRMED
    assert all(isinstance(tilt, str) for tilt in told["certificate"]["tilts"])
    assert math.isclose(told["epsilon"], 0.1205)
