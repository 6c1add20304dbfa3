"""What must hold before anything is written: every gate at its edge, without a job."""

from __future__ import annotations

import io
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from beam_ldp.accounting import PrivacyBound, shuffled_event
from beam_ldp.accounting.prices import Price, price_as_json, price_of
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.gates import (
    BadRows,
    NothingReleasedError,
    gate_bad_rows,
    gate_estimates,
    gate_price,
    gate_reports,
    say_left_out,
    weak_warnings,
)
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.parts import Parts, gate_parts
from beam_ldp.release.worker_results import bad_row_lines
from beam_ldp.settings import Noise, Output, People, Privacy, Shuffling, Source
from beam_ldp.settings.job import Job
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, WithheldRelease

pytestmark = pytest.mark.exact


def asked(**more: Any) -> Job:
    """Job, as far as gates look at them."""
    told: dict[str, Any] = {
        "delta": 1e-8, "user_id": "uid", "max_bad_rows": None, "seed": None, **more
    }  # fmt: skip
    source, noise = Source(max_bad_rows=told.pop("max_bad_rows")), Noise(seed=told.pop("seed"))
    return Job(
        source=source, noise=noise, people=People(id=told.pop("user_id")),
        privacy=Privacy(**told), shuffle=Shuffling(min_reports=90), output=Output(folder="out"),
        question=None,
    )  # fmt: skip


def release(num: int = 100, local_epsilon: float = 2.0, **more: Any) -> Release:
    oracle = KRandomizedResponse(3, local_epsilon)
    found = {
        "ran": shuffled_event(oracle, num), "mechanism": oracle.to_config(),
        "smallest_batch": num,
    }  # fmt: skip
    return Release(Estimate(np.zeros(3), np.ones(3), num), num, **{**found, **more})


def price(epsilon: float = 0.5) -> Price:
    return Price(PrivacyBound(epsilon), 100)


# Rows and reports -------------------------------------------------------------------------------


def listed(**reasons: int) -> bytes:
    """Lines of bad_rows.jsonl, of rows without a value (`null`) and of others."""
    rows = [(i, name.replace("_", " ")) for name, n in reasons.items() for i in range(3, n + 3)]
    return "".join(f"{line}\n" for line in bad_row_lines(BadRowBlock.of("a.csv", rows))).encode()


@pytest.mark.parametrize(
    ("bad", "most", "refused"),
    [
        ({"wrong_type": 10}, None, ""),
        ({"wrong_type": 11}, None, "11 of 1,000 rows that hold a value cannot be read"),
        ({"wrong_type": 10, "null": 10}, None, "10 of 990 rows that hold a value .*rows is 0.01"),
        ({"null": 900, "NaN": 50, "no_user_id": 50}, None, ""),
        ({"null": 900, "not_a_number": 100}, 0.99, "100 of 100 .*not a number: 100"),
        ({"undecodable_text": 1}, None, "^nothing was released: line 3 of a.csv is not UTF-8: 1 of"
         ".*text must be UTF-8: convert it.*iconv.*only where --max-bad-rows is given"),
        ({"undecodable_text": 10}, 0.01, ""),
        ({"wrong_type": 5}, 5, ""),
        ({"wrong_type": 6}, 5, "--max-bad-rows is 5"),
        ({"wrong_type": 1}, 0, "--max-bad-rows is 0"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_and_how_many_may(
    bad: dict[str, int], most: float | None, refused: str
) -> None:
    """Missing values never refuse; a share is of the rows that hold a value."""
    settings = asked(max_bad_rows=most)
    if not refused:
        assert gate_bad_rows(listed(**bad), 1000, settings).reasons.total() == sum(bad.values())
        return
    with pytest.raises(NothingReleasedError, match=refused):
        gate_bad_rows(listed(**bad), 1000, settings)


def test_estimates_that_no_noise_explains_are_told() -> None:
    """Intervals end at what is possible; what was forged lies beyond it all the same."""
    oracle = KRandomizedResponse(3, 1.0)
    for counts, told in (([500, 300, 200], 0), ([1000, 0, 0], 3)):
        estimate = oracle.estimate(np.array(counts), 1000)
        part = Release(estimate, 1000, None, mechanism=oracle.to_config())
        said = gate_estimates(part, 0.0, 1.0)
        assert len(said) == bool(told)
        assert all(f"{told} of 3 estimates lie outside" in line for line in said)


def test_forged_envelopes_stop_nobody_unless_a_limit_is_given() -> None:
    refused = listed(not_an_envelope=999)
    assert gate_bad_rows(refused, 1000, asked(), of_people=False).unreadable.total() == 999
    with pytest.raises(NothingReleasedError, match="--max-bad-rows is 0.5"):
        gate_bad_rows(refused, 1000, asked(max_bad_rows=0.5), of_people=False)


def test_what_is_left_out_stands_on_screen() -> None:
    console = Console(file=io.StringIO(), width=200)
    say_left_out(BadRows.of(listed(null=30, wrong_type=2)), console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "30 rows hold no value (null: 30)" in said and "2 rows cannot be read" in said
    assert "is biased, and no error bar shows it" in said and "person" not in said
    say_left_out(BadRows.of(listed(wrong_type=2)), console, 198)
    assert "person" not in console.file.getvalue()  # type: ignore[attr-defined]
    say_left_out(BadRows.of(listed(wrong_type=2)), console, 197)
    assert "All rows of up to 2 persons may be among them (197 count)" in (
        console.file.getvalue()  # type: ignore[attr-defined]
    )
    say_left_out(BadRows.of(b""), quiet := Console(file=io.StringIO()))
    assert quiet.file.getvalue() == ""  # type: ignore[attr-defined]


def test_one_release_passes_and_no_other_number_of_them() -> None:
    one = release()
    assert gate_reports([one], [], asked()) is one
    with pytest.raises(JobError, match="2 releases came back where one was expected"):
        gate_reports([one, one], [], asked())
    with pytest.raises(JobError, match="workers must be able to write next to --output"):
        gate_reports([], [], asked())


def test_what_was_withheld_is_said_of_the_largest_with_what_it_lacked() -> None:
    notices = [
        WithheldRelease(3, 90, "few"),
        WithheldRelease(1, 90, "few"),
        WithheldRelease(2, 90, "few"),
    ]
    with pytest.raises(NothingReleasedError, match=": 3 reports received, --min-reports is 90$"):
        gate_reports([], notices, asked())
    with pytest.raises(NothingReleasedError, match="1 report received, 45 of the people"):
        gate_reports([], [WithheldRelease(1, 45, "few")], asked())
    lines = [{"reason": "null"}, {"reason": "not a number"}, {"reason": "null"}]
    bad_rows = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with pytest.raises(NothingReleasedError, match="; 3 rows could not be used, most often: null$"):
        gate_reports([], notices, asked(), bad_rows)


# The price --------------------------------------------------------------------------------------


def warned(found: Price, of: Release, settings: Any) -> str:
    return "\n".join(gate_price(found, of, settings))


def test_a_release_that_keeps_its_promises_is_no_reason_to_warn() -> None:
    assert warned(price(), release(), asked(epsilon=0.5)) == ""
    assert warned(price(), release(), asked()) == ""
    assert warned(price(0.5 * (1 + 1e-13)), release(), asked(epsilon=0.5)) == ""


@pytest.mark.parametrize("factor", [1 + 1e-9, 1.2, math.inf])
def test_a_price_above_its_target_is_the_end_unless_it_is_allowed(factor: float) -> None:
    dear, settings = price(0.5 * factor), {"epsilon": 0.5, "expected_users": 1000}
    said = warned(dear, release(), asked(allow_over_target=True, **settings))
    assert "100 reports were received and 1,000 expected" in said and "above the target 0.5" in said
    with pytest.raises(NothingReleasedError, match=r"released: 100 reports .* --allow-over-target"):
        gate_price(dear, release(), asked(**settings))
    with pytest.raises(NothingReleasedError, match=r"batch has 40 \(--scope global makes one"):
        gate_price(dear, release(smallest_batch=40), asked(**settings))


def test_a_simulation_says_so_and_has_no_price_to_exceed() -> None:
    simulated = release(local_epsilon=12.0, simulated=True)
    said = warned(Price(None, 100), simulated, asked(seed=1, epsilon=0.5))
    assert said == "simulated with a seed: no privacy guarantee"
    assert "simulated" in warned(Price(None, 100), simulated, asked(seed=0))


def test_a_weak_local_promise_is_said_from_above_8() -> None:
    def weak(local_epsilon: float, messages: int = 1, **more: Any) -> str:
        mechanism = SimpleNamespace(local_epsilon=local_epsilon, messages_per_user=messages)
        return "\n".join(weak_warnings(mechanism, asked(**more)))

    assert weak(8.0) == weak(12.0, seed=1) == ""
    said = weak(8.001)
    assert "sees a report can tell two values apart at odds of 2,984 to 1" in said
    assert said.endswith("on the shuffler")
    said = weak(8.001, 3, model="local")
    assert "all 3 messages of a person" in said and said.endswith("seen by nobody")


def test_a_delta_of_one_in_the_people_is_said() -> None:
    assert warned(price(), release(100), asked(delta=0.00999)) == ""
    assert "one in 100 reports or more" in warned(price(), release(100), asked(delta=0.01))
    assert warned(price(), release(100), asked(delta=0.5, model="local")) == ""


def test_rows_that_are_taken_for_persons_are_said() -> None:
    assert warned(price(), release(), asked(user_id=None)) == (
        "no --user-id: every row was counted as a person"
    )


def test_what_was_simulated_has_no_price_whatever_event_it_carries() -> None:
    found = price_of(release(100, simulated=True, smallest_batch=40), 1e-6, 0.5)
    assert (found.bound, found.event, found.honest_reports) == (None, None, 20)


def test_prices_in_json_are_numbers_or_null() -> None:
    told = price_as_json(Price(PrivacyBound(0.5, lower=0.25), 7))
    assert told == {"epsilon": 0.5, "epsilon_lower": 0.25, "honest_reports": 7}
    told = price_as_json(Price(PrivacyBound(math.inf), 1))
    assert told == {"epsilon": None, "epsilon_lower": None, "honest_reports": 1}
    assert price_as_json(Price(None, 1))["epsilon"] is None


# Several releases -------------------------------------------------------------------------------


def test_parts_cost_what_the_dearest_costs_and_count_everybody_once() -> None:
    parts = [
        release(500, group="a", question="q"), release(500, group="a", question="r"),
        release(120, group="b", question="q"), release(120, group="b", question="r"),
    ]  # fmt: skip
    whole = Parts.of(parts, [], "q, r")
    assert (whole.num_reports, whole.smallest_batch) == (620, 120)
    assert whole.event == parts[2].event and whole.group is None and whole.question == "q, r"
    assert not whole.simulated
    mixed = Parts.of([parts[0], release(500, group="c", simulated=True)], [], "q")
    assert mixed.simulated and mixed.num_reports == 1000


def test_parts_come_in_the_order_of_groups_windows_and_questions() -> None:
    names = [("b", "q"), ("a", "r"), ("a", "q"), ("b", "r")]
    parts = [release(group=group, question=question) for group, question in names]
    found = gate_parts(parts, [], asked(), "q, r", order=("r", "q"))
    assert [(part.group, part.question) for part in found.releases] == [
        ("a", "r"), ("a", "q"), ("b", "r"), ("b", "q"),
    ]  # fmt: skip


def test_no_group_that_is_large_enough_is_said_with_the_largest() -> None:
    notices = [
        WithheldRelease(n, 90, "few", group=name) for n, name in ((3, "a"), (80, "b"), (7, "c"))
    ]
    with pytest.raises(NothingReleasedError, match="none of 3 groups .* largest, 'b', has 80"):
        gate_parts([], notices, asked(), "q", b'{"reason": "null"}\n')
    with pytest.raises(NothingReleasedError, match="3 reports received"):
        gate_parts([], notices[:1], asked(), "q")
    with pytest.raises(JobError, match="no result came back"):
        gate_parts([], [], asked(), "q")
    assert gate_parts([release(group="d")], notices, asked(), "q").withheld == tuple(notices)
