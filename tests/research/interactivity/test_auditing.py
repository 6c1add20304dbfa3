"""The audit of records: every figure against a plain reading of its definition, and known cases."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.research.interactivity import tallies
from beam_ldp.research.interactivity.auditing import (
    InteractivityReport,
    audit_records,
    claim_of,
    minimal_epsilons,
)
from beam_ldp.research.interactivity.kernels import kernel_delta
from beam_ldp.research.interactivity.records import records_of
from beam_ldp.research.interactivity.replaying import contract
from beam_ldp.research.interactivity.tallies import Provenance, Tally, merged, tally

pytestmark = pytest.mark.exact

FIELDS = ("seq", "user", "randomizer", "round", "epsilon", "delta", "output", "assign_seq")
Row = tuple[Any, ...]


def table(rows: list[Row], fields: tuple[str, ...] = FIELDS) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(fields)})


def audited(rows: list[Row], epsilon: float = 1.0, **told: Any) -> InteractivityReport:
    return audit_records(records_of(table(rows)), epsilon, **told)


# One record after the other, as the definitions say -----------------------------------------------


def plainly(rows: list[Row], epsilon: float) -> dict[str, Any]:
    """The same figures by dictionaries, from section 3 of the specification."""
    asked: dict[Any, dict[Any, list[Row]]] = defaultdict(dict)
    queries: dict[Any, list[tuple[int, int, int, int]]] = defaultdict(list)
    rerandomized = 0
    for row in sorted(rows, key=lambda row: row[0]):
        seq, user, randomizer, number, eps, delta, output, assigned = row
        answers = asked[user].setdefault((randomizer, number), {})  # type: ignore[arg-type]
        cost = (math.ceil(eps * 10**9), math.ceil(delta * 10**15))
        if output in answers:  # a retry
            place = answers[output]  # type: ignore[call-overload]
            nano, femto, first, fixed = queries[user][place]
            queries[user][place] = (max(nano, cost[0]), max(femto, cost[1]), first, fixed)
            continue
        rerandomized += bool(answers)
        answers[output] = len(queries[user])  # type: ignore[call-overload]
        queries[user].append((*cost, seq, assigned))
    sums = {user: sum(q[0] for q in own) for user, own in queries.items()}
    several = [own for own in queries.values() if len(own) > 1]
    waves: dict[int, int] = {}
    for seq, assigned in sorted((q[2], q[3]) for own in queries.values() for q in own):
        before = [wave for other, wave in waves.items() if other < assigned]
        waves[seq] = max(waves.get(seq, 0), 1 + max(before, default=0))
    return {
        "people": len(queries),
        "queries": sum(map(len, queries.values())),
        "rerandomized": rerandomized,
        "by_queries": Counter(map(len, queries.values())),
        "nano": sum(sums.values()),
        "most_nano": max(sums.values(), default=0),
        "most_femto": max((sum(q[1] for q in own) for own in queries.values()), default=0),
        "over": sum(
            sums[user] >= math.ceil(epsilon * 10**9) + len(own) or any(q[1] for q in own)
            for user, own in queries.items()
        ),
        "mergeable": sum(max(q[3] for q in own) <= min(q[2] for q in own) for own in several),
        "depth": max(waves.values(), default=0),
    }


def logs(users: int = 4) -> st.SearchStrategy[list[Row]]:
    record = st.tuples(
        st.integers(0, 12),
        st.integers(0, users - 1),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.sampled_from([0.1, 0.25, 1 / 3, 0.5]),
        st.sampled_from([0.0, 0.0, 0.0, 1e-9]),
        st.integers(0, 1),
        st.integers(0, 12),
    ).map(lambda row: (*row[:7], min(row[0], row[7])))
    return st.lists(record, max_size=14, unique_by=lambda row: row[0])


@given(logs())
def test_every_figure_is_what_its_definition_says(rows: list[Row]) -> None:
    if not rows:
        return
    report = audited(rows)
    expected = plainly(rows, 1.0)
    assert report.depth == expected.pop("depth")
    assert {name: getattr(report.people, name) for name in expected} == expected
    assert report.people.records == len(rows)
    assert report.people.retries == len(rows) - expected["queries"]
    assert report.clean == (not expected["over"] and not expected["rerandomized"])


@given(logs(), st.integers(1, 4))
def test_tallies_of_different_people_add(rows: list[Row], parts: int) -> None:
    if not rows:
        return
    block, claim = records_of(table(rows)).rows, claim_of(1.0)
    whole = tally(block, claim)
    split = [tally(block[block["person"] % parts == part], claim) for part in range(parts)]
    for order in (split, split[::-1]):
        together = merged(order)
        for name, value in vars(whole).items():
            if name != "provenance":
                assert getattr(together, name) == value
        assert together.provenance.depth == whole.provenance.depth


# Protocols of a known class -----------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_waves_of_a_protocol_in_rounds(sizes: list[int], data: st.DataObject) -> None:
    """Rounds of fresh people, each asked by all answers before: depth is the number of rounds."""
    rows: list[Row] = []
    for number, size in enumerate(sizes):
        before = len(rows)
        rows += [
            (before + i, before + i, f"r{number}", number, 1.0, 0.0, 0, before) for i in range(size)
        ]
    data.draw(st.randoms(use_true_random=False)).shuffle(rows)
    report = audited(rows)
    assert report.depth == len(sizes) and report.noninteractive == (len(sizes) == 1)
    assert report.interactivity == "sequentially interactive" and report.clean
    assert report.k_hat == report.k_mean == 1.0


@given(st.integers(2, 6), st.integers(1, 5))
def test_the_same_people_in_every_round(rounds: int, people: int) -> None:
    """Committed up front they merge and are noninteractive; round by round they are neither."""
    for adaptive in (False, True):
        rows = [
            (r * people + i, i, f"r{r}", r, 1 / 8, 0.0, i % 2, r * people * adaptive)
            for r in range(rounds)
            for i in range(people)
        ]
        report = audited(rows)
        assert report.interactivity == "fully interactive" and report.clean
        assert report.max_queries == report.mean_queries == rounds
        assert report.k_hat == pytest.approx(rounds / 8)
        assert report.noninteractive is (not adaptive)
        assert report.depth == (rounds if adaptive else 1)
        assert report.mergeable == (0 if adaptive else people)


def test_answers_published_at_once_share_a_place() -> None:
    """A run in rounds need not number its answers: the number of the round orders them."""
    rows = [(r, i, f"r{r}", r, 0.5, 0.0, 0, r) for r in range(2) for i in range(3)]
    report = audited(rows)
    assert report.depth == 2 and report.mergeable == 0


# T16 ----------------------------------------------------------------------------------------------


def test_a_transcript_alone_never_earns_noninteractive() -> None:
    once = [(0, "ada", "a", 0, 1.0, 0.0, 1, None), (1, "bob", "a", 0, 1.0, 0.0, 1, 0)]
    report = audited(once)
    assert report.noninteractive is None and report.depth is None
    assert report.unknown == "unknown (no provenance)"
    assert report.to_json()["noninteractive"] == "unknown (no provenance)"
    assert report.clean and report.interactivity == "sequentially interactive"
    assert audited([(*row[:7], 0) for row in once]).noninteractive is True
    several = table(once).append_column("run", pa.array(["monday", "tuesday"]))
    of_two = audit_records(records_of(several), 1.0)
    assert of_two.unknown == "unknown (several runs)" and of_two.mergeable is None


def test_a_retry_counts_once_and_another_answer_twice() -> None:
    first = (0, "ada", "a", 0, 0.6, 0.0, "0", 0)
    retry, other = (1, *first[1:]), (1, *first[1:6], "1", 0)
    report = audited([first, retry])
    assert report.clean and report.people.retries == 1 and report.max_epsilon == 0.6
    report = audited([first, other], epsilon=2)
    (found,) = report.findings
    assert (found.name, found.count, found.fault) == ("re-randomized on retry", 1, True)
    assert report.max_epsilon == 1.2 and not report.clean
    report = audited([first, other, (2, *other[1:]), (3, *first[1:6], "2", 0)], epsilon=2)
    assert (report.people.rerandomized, report.people.retries) == (2, 1)
    for same in ((1, "ada", "a", 1, 0.6, 0.0, "0", 0), (1, "ada", "b", 0, 0.6, 0.0, "0", 0)):
        assert audited([first, same], epsilon=2).clean  # another round or randomizer: a question
    of_two = table([first, other]).append_column("run", pa.array(["monday", "tuesday"]))
    assert audit_records(records_of(of_two), 2.0).clean


def test_without_outputs_nobody_can_tell_a_retry() -> None:
    report = audited([(i, "ada", "a", 0, 0.6, 0.0, None, 0) for i in range(2)])
    assert {found.name for found in report.findings} == {"over budget", "repeated without output"}
    assert report.people.unlogged == 1 and report.people.queries == 2
    lone = audited([(0, "ada", "a", 0, 0.5, 0.0, None, 0), (1, "ada", "a", 0, 0.5, 0.0, 1, 0)])
    assert lone.clean and lone.people.unlogged == 1


def test_ping_pong_is_a_cycle_and_a_chain_of_one_person_is_none() -> None:
    ping_pong = contract(range(3), "aba", [[], [0], [1]])
    assert not ping_pong.acyclic and ping_pong.in_cycles == 2 and ping_pong.arrows == 2
    assert contract(range(3), "aaa", [[], [0], [0, 1]]).acyclic
    ring = contract(range(6), "abcabc", [[], [0], [1], [2], [], []])
    assert ring.in_cycles == 3
    line = contract(range(4), "abbc", [[], [0], [0, 1], [2]])
    assert line.acyclic and line.arrows == 2
    with pytest.raises(ValueError, match="smaller seq"):
        contract([0, 1], "ab", [[], [1]])


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8), st.data())
def test_cycles_are_those_of_a_search_through_the_graph(
    users: list[tuple[int, bool]], data: st.DataObject
) -> None:
    names = [user for user, _ in users]
    reads = [
        data.draw(st.lists(st.integers(0, i - 1), max_size=2)) if i and some else []
        for i, (_, some) in enumerate(users)
    ]
    after: dict[int, set[int]] = defaultdict(set)
    for user, own in zip(names, reads):
        for one in own:
            if names[one] != user:
                after[names[one]].add(user)

    def reached(start: int) -> set[int]:
        seen: set[int] = set()
        todo = list(after[start])
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += after[one]
        return seen

    in_cycles = sum(user in reached(user) for user in set(names))
    assert contract(range(len(names)), names, reads).in_cycles == in_cycles


# What else is promised ----------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 2, allow_subnormal=False), min_size=1, max_size=6),
    st.floats(0.1, 4),
    st.booleans(),
)
def test_over_budget_is_right_but_for_rounding(
    costs: list[float], epsilon: float, exactly: bool
) -> None:
    """Who is within the promise is never flagged; who exceeds it by 1e-9 a query always is."""
    total = sum(map(Fraction, costs))
    epsilon = max(float(total), 1e-3) if exactly else epsilon
    report = audited([(i, 1, "a", i, cost, 0.0, 0, 0) for i, cost in enumerate(costs)], epsilon)
    excess = total - Fraction(epsilon)
    if excess <= 0:
        assert report.clean
    if excess > Fraction(len(costs), 10**9):
        assert not report.clean
    assert report.people.nano >= total * 10**9 - Fraction(1, 10**3)


def test_costs_are_rounded_up_and_the_promise_with_them() -> None:
    third = (0, "ada", "a", 0, 1 / 3, 0.0, 0, 0)
    rows = [(i, "ada", "a", i, 1 / 3, 0.0, 0, 0) for i in range(3)]
    assert audited([third]).max_epsilon == 0.333333334
    assert audited(rows).clean and audited(rows).max_epsilon == 1.000000002
    assert not audited(rows, epsilon=0.999999999).clean
    assert audited([(0, "ada", "a", 0, 0.1, 1e-16, 0, 0)], delta=1e-15).people.most_femto == 1
    assert not audited([(0, "ada", "a", 0, 0.1, 1e-16, 0, 0)]).clean


def test_ids_that_are_one_person_are_one() -> None:
    rows = [(i, user, "a", i, 0.5, 0.0, 0, 0) for i, user in enumerate(["7", "7.0", "07"])]
    assert audited(rows).people.people == 2
    numbers = records_of(table([(0, 7, "a", 0, 0.5, 0.0, 0, 0)])).rows["person"]
    assert numbers[0] == records_of(table(rows)).rows["person"][0]


def test_equal_answers_of_any_type_are_equal() -> None:
    def answer(value: Any) -> int:
        return int(records_of(table([(0, 1, "a", 0, 0.5, 0.0, value, 0)])).rows["answer"][0])

    assert answer(1) == answer(1.0) == answer(True) != answer("1")
    assert answer("x") == answer(b"x") and answer(None) == 0
    assert answer([1, 0]) == answer([1, 0]) != answer([0, 1])
    assert answer(0) not in (0, answer(1)) and answer(0.5) != answer(0.25)


def test_a_committed_plan_gives_the_exact_k() -> None:
    """Example 2.2's kernels for d = 4: each declares ln((1 + e) / 2), and k is 2.4805."""
    epsilon = math.log((1 + math.e) / 2)
    planned = [(0, user, f"e{i}", i, epsilon) for user in range(3) for i in range(4)]
    plan = records_of(
        table(planned, ("seq", "user", "randomizer", "round", "epsilon")), planned=True
    )
    answered = [(i, *row[1:], 0.0, i % 2, None) for i, row in enumerate(planned)]
    report = audited(answered, 2.4805, plan=plan)
    assert report.noninteractive is True and report.depth == 1 and report.planned
    assert report.mergeable == 3 and report.clean
    report = audited(answered[:5], plan=plan)
    assert report.k_plan == pytest.approx(2.4805, abs=5e-5)
    beyond = audited([*answered, (12, 3, "e0", 0, epsilon, 0.0, 0, None)], 3, plan=plan)
    assert [found.name for found in beyond.findings] == ["not in the plan"]
    assert beyond.unknown == "unknown (no provenance)" and not beyond.clean


def test_small_numbers_of_people_and_rounds_are_told_apart() -> None:
    """Both are mixed alike; combined carelessly, person i in round i was person 0 in round 0."""
    rows = [(0, user, "a", number, 0.5, 0.0, 0, 0) for user in range(40) for number in range(40)]
    block = records_of(table(rows)).rows
    assert len(np.unique(tallies._pairs(block))) == len(rows)
    plan = records_of(table([rows[0][:5]], FIELDS[:5]), planned=True)
    assert audited(rows, 20, plan=plan).people.unplanned == len(rows) - 1


def test_kernels_tell_what_a_randomizer_really_costs() -> None:
    p = math.e / (1 + math.e)
    kernels = {"rr": [[p, 1 - p], [1 - p, p]], "safe": [[0.5, 0.5], [0.5, 0.5]]}
    minimal = minimal_epsilons(kernels)
    assert minimal["rr"] == pytest.approx(1, abs=1e-15) and minimal["safe"] == 0
    assert minimal_epsilons({"x": [[1, 0], [0.5, 0.5]]})["x"] == math.inf
    assert minimal_epsilons({"x": [[0.5, 0.5, 0], [0.5, 0.5, 0]]})["x"] == 0
    row = (0, "ada", "rr", 0, 1.0, 0.0, 1, 0)
    assert audited([row], kernels=kernels).findings == ()
    (low,) = audited([(*row[:4], 0.9, *row[5:])], kernels=kernels).findings
    assert (low.name, low.fault) == ("declared below minimal", True) and "rr" in low.text
    (high,) = audited([(*row[:2], "safe", *row[3:])], kernels=kernels).findings
    assert (high.name, high.fault) == ("declared above minimal", False)
    for wrong in ([[0.5, 0.6]], [[1.5, -0.5]], [], [["a"]], 3):
        with pytest.raises(ValueError, match="kernel 'x' must"):
            minimal_epsilons({"x": wrong})


def test_kernels_tell_whether_a_declared_delta_is_enough() -> None:
    """An answer that some datum excludes has no epsilon, and a delta of its probability."""
    kernels = {"a": [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1]], "b": [[0.5, 0.5], [0.5, 0.5]]}
    needed = kernel_delta(np.array(kernels["a"]), 2.1)
    assert needed == pytest.approx(0.1)  # the first row's most likely answer exceeds by less
    for delta, faults in ((needed, []), (0.2, []), (0.09, ["declared below minimal"])):
        rows = [(0, "ada", "a", 0, 2.1, delta, 1, 0), (1, "bob", "b", 0, 1.0, 0.2, 1, 0)]
        report = audited(rows, 3, kernels=kernels, delta=0.3)
        assert [one.name for one in report.findings] == faults
    (found,) = audited([(0, "ada", "a", 0, 2.1, 0.0, 1, 0)], 3, kernels=kernels).findings
    assert found.name == "declared below minimal"


def test_totals_of_millions_do_not_overflow() -> None:
    row = records_of(table([(0, 1, "a", 0, 1.0, 0.0, 0, 0)])).rows[0]
    rows = np.full(3, row)
    rows["person"], rows["nano"], rows["question"] = [1, 2, 3], 2**62 + 1, [0, 1, 2]
    assert merged([tally(rows, claim_of(1))] * 2).nano == 6 * (2**62 + 1)
    rows["person"] = 1
    with pytest.raises(OverflowError):
        tally(rows, claim_of(1))


def test_a_depth_that_was_cut_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = np.arange(64)
    assert Provenance.of(chain, chain).depth == 64
    monkeypatch.setattr(tallies, "MOST_PROVENANCE", 8)
    cut = Provenance.of(chain[::2], chain[::2]) + Provenance.of(chain[1::2], chain[1::2])
    assert cut.cut and 8 < cut.depth < 64
    assert Provenance().depth == 0 and Tally().provenance.depth == 0


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"epsilon": -1.0}, r"row 1: epsilon must be in \[0, 10000\]"),
        ({"epsilon": math.nan}, "row 1: epsilon must"),
        ({"epsilon": math.inf}, "row 1: epsilon must"),
        ({"delta": 1.5}, r"row 1: delta must be in \[0, 1\]"),
        ({"seq": -1}, "row 1: seq must be >= 0"),
        ({"assign_seq": 2}, "row 1: assign_seq must be at most seq"),
        ({"assign_seq": -2}, "row 1: assign_seq must be >= 0"),
        ({"user": None}, "row 1: user is missing"),
        ({"randomizer": None}, "row 1: randomizer is missing"),
        ({"round": None}, "row 1: round is missing"),
        ({"epsilon": None}, "row 1: epsilon is missing"),
    ],
)
def test_a_row_that_is_no_record_is_named(changed: dict[str, Any], reason: str) -> None:
    good = dict(zip(FIELDS, (0, "ada", "a", 0, 1.0, 0.0, 1, 0)))
    bad = {**good, "seq": 1, **changed}
    with pytest.raises(ValueError, match=reason):
        records_of(pa.table({name: [good[name], bad[name]] for name in FIELDS}))


def test_what_is_asked_for_must_make_sense() -> None:
    with pytest.raises(ValueError, match="columns are missing: user, epsilon"):
        records_of(pa.table({"seq": [0], "randomizer": ["a"], "round": [0]}))
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="epsilon must"):
            claim_of(epsilon)
    with pytest.raises(ValueError, match="delta must"):
        claim_of(1.0, 1.0)
    nobody = records_of(table([(0, 1, "a", 0, 1.0, 0.0, 0, 0)]).slice(0, 0))
    report = audit_records(nobody, 1.0)
    assert report.clean and report.unknown and report.quantiles() == {}
    assert report.to_json()["queries_per_person"]["mean"] is None


def test_price_of_asking_everybody_once() -> None:
    """Two questions to each of four people, the second after all first answers."""
    rows = [(4 * r + i, i, f"r{r}", r, 0.5, 0.0, 0, 4 * r) for r in range(2) for i in range(4)]
    price = audited(rows).price_of_asking_once
    assert price is not None and (price.people, price.rounds, price.k) == (4, 8, 1.0)
    asked_once = audited(rows).to_json()["asked_once"]
    assert asked_once["plain"] == {"epsilon": 1.0, "expected_people": 4 + (1 + math.e) * 4}
    assert set(asked_once) == {"paper", "tight", "plain"}
    # nobody was asked again; a delta; too large an epsilon
    assert audited(rows[:4]).price_of_asking_once is None
    assert audited(rows[:4]).to_json()["asked_once"] is None
    approximate = audit_records(records_of(table(rows)), 1.0, delta=1e-6)
    assert approximate.price_of_asking_once is None
    assert audit_records(records_of(table(rows)), 1000.0).price_of_asking_once is None
