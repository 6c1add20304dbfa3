"""Sums, chances, laws and normal numbers are rounded outward, and hardly further."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import dp_accounting
import mpmath
import pytest

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.reports import LocalReports, SampledReports
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import Part, Table

pytestmark = pytest.mark.exact


def _exact(table: Table, crowd: int, odds: Fraction) -> Fraction:
    """E[max(X_1 + ... + X_crowd, 0)] / crowd, by every sequence of reports."""
    law = [((f - odds * s) / b, b) for f, s, b in table]
    law.append((Fraction(0), 1 - sum(p for _, p in law)))
    total = Fraction(0)
    for seen in product(law, repeat=crowd):
        value = sum((x for x, _ in seen), Fraction(0))
        if value > 0:
            total += value * math.prod(p for _, p in seen)
    return total / crowd


SMALL = [tuple(Fraction(x, 10) for x in kind) for kind in ((6, 1, 1), (1, 5, 1), (3, 4, 3))]


@pytest.mark.parametrize("crowd", [1, 2, 5])
@pytest.mark.parametrize("smoothing", ["0.5", "0.02"])
def test_every_sum_is_above_the_enumerated_one_and_close(crowd: int, smoothing: str) -> None:
    """By Jensen's inequality, at any smoothing; as it narrows, no more than it adds."""
    epsilon = Fraction(1, 2)
    with localcontext(program.CONTEXT):
        odds = program._exp(epsilon, up=False)
        exact = max(_exact(side, crowd, odds) for side in program.sides(SMALL))
        found = Part(1, SMALL, crowd).delta(epsilon, ["0.7", "0.7"], smoothing)
    assert exact <= found <= exact * (1 + 4 * Fraction(smoothing))


def test_who_may_be_absent() -> None:
    """A sample of two of three, and three who come by coins: by every sample and every report."""
    law = {"x": (6, 1, 3), "y": (1, 5, 4), "z": (4, 2, 4)}  # of ten; all contain (1, 1, 3)
    table, join = SMALL, Fraction(1, 3)
    thinned = [*(tuple(join * x for x in kind) for kind in table), (1 - join,) * 3]
    epsilon = Fraction(1, 5)
    with localcontext(program.CONTEXT):
        odds = program._exp(epsilon, up=False)
        for chances, part in (
            ({2: Fraction(1, 3)}, Part(1, table, 2, Fraction(2, 3))),
            (
                {k: Fraction(2 ** (3 - k), 27) for k in range(4)},
                Part(1, thinned, 3),
            ),
        ):
            seen = [_shown(law, [victim, "z", "z"], chances) for victim in "xy"]
            for one, other in (seen, seen[::-1]):
                least = sum(max(p - odds * other.get(batch, 0), 0) for batch, p in one.items())
                found = part.delta(epsilon, ["0.4", "0.4"], "0.02")
                assert 0 < least <= found <= 2 * least


def _shown(
    law: dict[str, tuple[int, ...]], people: list[str], chances: dict[int, Fraction]
) -> dict[tuple[int, ...], Fraction]:
    """Of each batch how likely it is, where each set of so many people comes with that chance."""
    found: dict[tuple[int, ...], Fraction] = {}
    for present in product((0, 1), repeat=len(people)):
        came = [law[value] for value, here in zip(people, present, strict=True) if here]
        for reports in product(range(3), repeat=len(came)):
            chance = chances.get(len(came), Fraction(0))
            for each, report in zip(came, reports, strict=True):
                chance *= Fraction(each[report], 10)
            batch = tuple(sorted(reports))
            found[batch] = found.get(batch, Fraction(0)) + chance
    return found


def test_the_chords_between_losses_are_what_is_composed() -> None:
    """Three rounds by every sequence of losses, of a law that has the hockey stick of its knots."""
    knots = [["0", "0.2"], ["0.3", "0.1"], ["0.9", "0.01"], ["1.5", "0.001"]]
    with localcontext(program.CONTEXT):
        atoms, beyond = program.law_of(knots)
        ratios = [(program._exp(abs(loss), up=True) ** (1 if loss >= 0 else -1), q)
                  for loss, q in atoms]  # fmt: skip
        for loss, height in knots:
            odds = program._exp(Fraction(loss), up=True)
            stick = beyond + sum(max(ratio - odds, Fraction(0)) * q for ratio, q in ratios)
            assert abs(stick - Fraction(height)) < Fraction(1, 10**40)
        mass = sum(q for _, q in ratios), sum(ratio * q for ratio, q in ratios)
        assert all(abs(total - (1 - beyond)) < Fraction(1, 10**40) for total in mass)
        epsilon = Fraction(1, 2)
        odds = program._exp(epsilon, up=False)
        exact = sum(
            max(math.prod(ratio for ratio, _ in seen) - odds, Fraction(0))
            * math.prod(q for _, q in seen)
            for seen in product(ratios, repeat=3)
        )
        tilt, smoothing = Fraction(3), Fraction(1, 50)
        found = odds * program.positive_part([(3, atoms)], 1, tilt, smoothing, -epsilon)
    assert exact <= found <= exact * Fraction(101, 100)


@pytest.mark.parametrize(
    ("knots", "why"),
    [
        ([["0", "0.2"], ["0.3", "0.19"], ["0.9", "0.01"]], "its deltas are not convex"),
        ([["0", "0.2"], ["0.3", "0.1"], ["0.9", "0.11"]], "its deltas are not convex"),
        ([["0.1", "0.2"], ["0.3", "0.1"]], "its losses do not ascend from zero"),
        ([["0", "0.2"], ["0.3", "0.1"], ["0.3", "0.1"]], "its losses do not ascend from zero"),
    ],
)
def test_what_is_no_law_of_losses(knots: list[list[str]], why: str) -> None:
    with localcontext(program.CONTEXT), pytest.raises(program.Refuted, match=why):
        program.law_of(knots)


@pytest.mark.parametrize(("noise", "delta"), [(20.0, 1e-6), (2.0, 1e-9), (100.0, 1e-4)])
def test_a_servers_noise_is_gaussian(noise: float, delta: float) -> None:
    """No less than the closed form of Balle and Wang (2018), and close to it."""
    mu, epsilon = (
        mpmath.mpf(2 / noise),
        Fraction(event_epsilon(dp_accounting.GaussianDpEvent(noise), delta)),
    )
    cut = mpmath.mpf(float(epsilon)) / mu
    exact = mpmath.ncdf(mu / 2 - cut) - mpmath.exp(float(epsilon)) * mpmath.ncdf(-mu / 2 - cut)
    with localcontext(program.CONTEXT):
        variance = Fraction(4 / noise**2)
        tilt = 1 + Fraction(float(cut / mu))
        args = (tilt, Fraction(0), -epsilon - variance / 2, variance)
        found = program.positive_part([], 1, *args) * program._exp(epsilon, up=True)
    assert 1 - 1e-9 <= float(found) / float(exact) < 1 + 1e-3


def test_a_sum_agrees_with_sixty_digits() -> None:
    """The same series by mpmath, of which the program's is no less, and within 1e-30."""
    mpmath.mp.dps = 60
    atoms = [(Fraction(-1, 7), Fraction(1, 2)), (Fraction(2, 9), Fraction(1, 3)),
             (Fraction(5, 3), Fraction(1, 6))]  # fmt: skip
    w, v, decay = Decimal("0.21"), Decimal("0.42"), Decimal("0.0013")
    spacing, phase = Fraction(1, 5), Fraction(17, 10)
    with localcontext(program.CONTEXT):
        for times in (1, 3, 1000):
            law = times, atoms, [int(p * program.ONE) for _, p in atoms]
            mine = program._nodes([law] * 2, 60, spacing, decay, w, v, program._unit(phase))
            exact = _series(law, 60, spacing, phase, *map(str, (decay, w, v)))
            assert 0 <= mpmath.mpf(str(mine)) - exact < mpmath.mpf("1e-28")
    mpmath.mp.dps = 15


def _series(law: Any, nodes: int, spacing: Fraction, phase: Fraction, *grid: str) -> mpmath.mpf:
    """1 + 2 Re sum over m, as `docs/certificates.md` has it, of two equal laws."""
    decay, w, v = map(mpmath.mpf, grid)
    times, atoms, weights = law
    pairs = [(mpmath.mpf(x.numerator) / x.denominator, mpmath.mpf(p) / program.ONE)
             for (x, _), p in zip(atoms, weights, strict=True)]  # fmt: skip
    step, turn = (mpmath.mpf(x.numerator) / x.denominator for x in (spacing, phase))
    total = mpmath.mpf(1)
    for m in range(1, nodes + 1):
        phi = mpmath.fsum(p * mpmath.expj(m * step * x) for x, p in pairs) ** (2 * times)
        term = phi * mpmath.expj(m * turn) * mpmath.exp(-decay * m * m)
        total += 2 * mpmath.re(term / mpmath.mpc(1, m * w) / mpmath.mpc(1, m * v))
    return total


def test_nodes_that_are_left_out_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large crowds hardly any node is looked at; eight times as many change nothing."""
    asked, nodes = [], program._nodes

    def more(laws: list[Any], count: int, *grid: Any) -> Decimal:
        few, many = nodes(laws, count, *grid), nodes(laws, 8 * count, *grid)
        asked.append((count, float(abs(many - few))))
        return few

    monkeypatch.setattr(program, "_nodes", more)
    part = Part(1, program.two_kinds(Fraction(2)), 10**6)
    with localcontext(program.CONTEXT):
        part.delta(Fraction(1, 100), ["0.0006"], "0.01")
    ((count, change),) = asked
    assert count < 60 and change < 1e-20


def test_turns_and_exponentials_round_as_they_say() -> None:
    mpmath.mp.dps = 80
    with localcontext(program.CONTEXT):
        for angle in (Fraction(1, 3), Fraction(-22, 7), Fraction(10**6, 7), Fraction(1, 10**30)):
            cosine, sine = program._unit(angle)
            exact = mpmath.mpf(angle.numerator) / angle.denominator
            assert abs(mpmath.mpf(cosine) / program.ONE - mpmath.cos(exact)) < mpmath.mpf("1e-37")
            assert abs(mpmath.mpf(sine) / program.ONE - mpmath.sin(exact)) < mpmath.mpf("1e-37")
        for value in (Fraction(0), Fraction(1, 3), Fraction(20), Fraction(1, 10**12)):
            low, high = (program._exp(value, up=side) for side in (False, True))
            exact = mpmath.exp(mpmath.mpf(value.numerator) / value.denominator)
            assert mpmath.mpf(low.numerator) / low.denominator < exact
            assert mpmath.mpf(high.numerator) / high.denominator > exact
            assert high - low < high / 10**55
    mpmath.mp.dps = 15


@pytest.mark.parametrize(("people", "groups", "crowd"), [(20, 4, 2), (900, 5, 110)])
def test_the_chance_of_a_smaller_group_is_a_binomials(people: int, groups: int, crowd: int) -> None:
    """Its lower tail, never less, and thirty times that at most."""
    exact = Fraction(0)
    for size in range(crowd):
        exact += math.comb(people, size) * Fraction(groups - 1) ** (people - size)
    exact *= groups / Fraction(groups) ** people
    event = event_to_json(LocalReports(1.0, public_groups=groups).shuffled(people))["event"]
    with localcontext(program.CONTEXT):
        (part,) = program.parts_of([(event, 1)], [{"any_randomizer": True, "crowd": crowd}])
    assert exact <= part.chance <= 30 * exact


@pytest.mark.parametrize(("users", "drawn", "fakes", "gone"), [(60, 20, 9, 5), (900, 90, 90, 30)])
def test_the_chance_of_more_fakes_is_a_hypergeometric_one(
    users: int, drawn: int, fakes: int, gone: int
) -> None:
    """Its upper tail, never less, and a thousand times that at most."""
    ways = sum(
        math.comb(fakes, more) * math.comb(users - fakes, drawn - more)
        for more in range(gone + 1, min(fakes, drawn) + 1)
    )
    exact = Fraction(ways, math.comb(users, drawn))
    event = event_to_json(SampledReports(LocalReports(1.0), users, drawn, num_fakes=fakes))["event"]
    choice = {"any_randomizer": True, "crowd": drawn - gone}
    with localcontext(program.CONTEXT):
        (part,) = program.parts_of([(event, 1)], [choice])
    assert exact <= part.chance <= 1000 * exact


def test_who_is_in_a_sample_is_what_the_accountant_says() -> None:
    """Rates and crowds of a hundred samples, by either's own arithmetic."""
    draw, seen = random.Random(1), set()
    for _ in range(100):
        drawn, came = draw.randint(50, 99), draw.choice([None, draw.randint(40, 50)])
        sampling = draw.choice(["without_replacement", "shuffled_epochs"])
        rounds = draw.choice([None, 3]) if sampling == "shuffled_epochs" else None
        event = SampledReports(LocalReports(1.0),
            draw.randint(300, 999), drawn, num_received=came, num_fakes=draw.choice([0, 7]),
            sampling=sampling, rounds=rounds, points_per_client=draw.randint(1, 3),
        )  # fmt: skip
        told = event_to_json(event)["event"]
        choice = {"any_randomizer": True, "crowd": int(event.num_hiding)}
        with localcontext(program.CONTEXT):
            (part,) = program.parts_of([(told, 1)], [choice])
        assert part.rate * part.share == pytest.approx(event.rate, rel=1e-12)
        assert part.rate == pytest.approx(event.drawn_rate, rel=1e-12)
        assert float(part.chance) <= 1e3 * event.failure_probability
        seen.add((sampling, came is None, rounds is None, event.num_fakes > 0))
    assert len(seen) == 12


def test_a_point_of_two_that_somebody_holds() -> None:
    """Everybody reports one of two points: by every report, against the bound of a share."""
    first, second, other = (6, 1, 3), (1, 5, 4), (4, 2, 4)  # of ten; all contain (1, 1, 3)
    table = SMALL
    mixed = [[Fraction(a + b, 20) for a, b in zip(x, other)] for x in (first, second)]
    seen: list[dict[tuple[int, ...], Fraction]] = [{}, {}]
    for world, law in zip(seen, mixed, strict=True):
        for reports in product(range(3), repeat=3):
            chance = law[reports[0]] * Fraction(math.prod(other[r] for r in reports[1:]), 100)
            batch = tuple(sorted(reports))
            world[batch] = world.get(batch, Fraction(0)) + chance
    part = Part(1, table, 3, share=Fraction(1, 2))
    with localcontext(program.CONTEXT):
        for epsilon in (Fraction(1, 20), Fraction(1, 10)):
            odds = program._exp(epsilon, up=False)
            least = max(
                sum(max(p - odds * another[batch], Fraction(0)) for batch, p in one.items())
                for one, another in (seen, seen[::-1])
            )
            found = part.delta(epsilon, ["0.4", "0.4"], "0.02")
            assert 0 < least <= found <= 2 * least


@pytest.mark.parametrize("rate", ["1", "0.3", "0.002"])
@pytest.mark.parametrize("shift", ["0.4", "2", "5"])
@pytest.mark.parametrize("loss", ["0", "0.3", "2"])
def test_noise_agrees_with_sixty_digits(rate: str, shift: str, loss: str) -> None:
    """By integrating the positive part of the difference of both densities, to 25 places."""
    mpmath.mp.dps = 40
    q, m, t = mpmath.mpf(rate), mpmath.mpf(shift) / 2, mpmath.exp(mpmath.mpf(loss))

    def excess(x: Any) -> Any:
        here, there = (mpmath.npdf(x, side * m, 1) for side in (1, -1))
        return mpmath.re(q * (here - t * there) - (1 - q) * (t - 1) * mpmath.npdf(x))

    at = mpmath.findroot(lambda x: excess(x) / mpmath.npdf(x), (mpmath.mpf(-1), m + 30), "anderson",
                         tol=1e-35, maxsteps=200, verify=False)  # fmt: skip
    exact = mpmath.quad(excess, [at + k for k in range(0, 16, 2)])
    part = Part(1, [], rate=Fraction(rate), shift=Fraction(shift))
    with localcontext(program.CONTEXT):
        found = part.delta(Fraction(loss), [], "")
    assert -1e-25 < mpmath.mpf(found.numerator) / found.denominator - exact < 1e-25
    mpmath.mp.dps = 15


def test_normal_numbers_are_right_to_forty_places() -> None:
    mpmath.mp.dps = 60
    with localcontext(program.CONTEXT):
        for x in ("0", "1e-20", "0.3", "-0.3", "5", "-5", "13.9", "-13.9", "14.1", "-14.1", "60"):
            found = mpmath.mpf(str(program._normal(Decimal(x))))
            assert abs(found - mpmath.ncdf(mpmath.mpf(x))) < mpmath.mpf("1e-40")
    mpmath.mp.dps = 15


def test_who_is_alone_is_hidden_by_nobody() -> None:
    """Then the hockey stick of the table is the sum, exactly."""
    with localcontext(program.CONTEXT):
        odds = program._exp(Fraction(1, 2), up=False)
        found = Part(1, SMALL).delta(Fraction(1, 2), ["1", "1"], "")
    assert found == max(Fraction(6) - odds, 5 - odds) / 10


def test_two_kinds_of_reports_are_rounded_outward() -> None:
    """The odds are no smaller, and the blanket no larger, than those of the proofs."""
    mpmath.mp.dps = 60
    with localcontext(program.CONTEXT):
        for budget in (Fraction(1, 1000), Fraction(1), Fraction(20)):
            ratio = mpmath.exp(mpmath.mpf(budget.numerator) / budget.denominator)
            for bit, mass in ((True, 2 / (ratio + 1)), (False, 1 / ratio)):
                (often, seldom, part), _ = program.two_kinds(budget, bit=bit)
                assert often + seldom == 1 and part <= seldom
                odds, common = often / seldom, 2 * part
                assert mpmath.mpf(odds.numerator) / odds.denominator >= ratio
                rest = mass - mpmath.mpf(common.numerator) / common.denominator
                assert 0 <= rest < mpmath.mpf("1e-35")
    mpmath.mp.dps = 15


@pytest.mark.parametrize(("people", "groups", "telling"), [(1, 3, None), (20, 4, 3), (300, 5, 3)])
def test_sizes_of_the_own_group_are_a_binomials(people: int, groups: int, telling: int) -> None:
    """Every block, never less; and delta is their sum, of which a wrong order is refused."""
    local = LocalReports(1.0, public_groups=groups, telling_groups=telling)
    event = event_to_json(local.shuffled(people))["event"]
    sizes = sorted({1, *range(2, people, 7), people})
    choice = {"any_randomizer": True, "crowds": sizes}
    with localcontext(program.CONTEXT):
        (part,) = program.parts_of([(event, 1)], [choice])
        share = Fraction(telling or groups, groups)
        for (size, found), end in zip(part.sizes, [*sizes[1:], people + 1], strict=True):
            exact = sum(
                math.comb(people - 1, j) * Fraction(groups - 1) ** (people - 1 - j)
                for j in range(int(size) - 1, end - 1)
            )
            exact *= share / Fraction(groups) ** (people - 1)
            assert exact <= found <= exact * (1 + Fraction(1, 10**20)) + Fraction(1, 10**45)
        tilts, each = ["0.5"], Fraction(0)
        for size, chance in part.sizes:
            each += chance * Part(1, part.table, int(size)).delta(Fraction(1, 2), tilts, "0.01")
        assert part.delta(Fraction(1, 2), tilts, "0.01") == each
        for wrong in (sizes[::-1] if people > 1 else [2], sizes[1:], [*sizes, people + 1], [1, 1]):
            with pytest.raises((program.Refuted, LookupError)):
                program.parts_of([(event, 1)], [{**choice, "crowds": wrong}])
