"""What must hold before anything is written: every gate at its edge, without a job."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from beam_ldp.accounting import PrivacyBound, shuffled_event
from beam_ldp.pipelines.frequencies.parts import Parts, gate_parts
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.records.gates import (
    NothingReleasedError,
    Price,
    gate_bad_rows,
    gate_price,
    gate_reports,
    price_as_json,
    price_of,
    weak_warnings,
)
from beam_ldp.pipelines.settings import Settings
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.settings import Noise, Output, People, Privacy, Shuffling, Source
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease

pytestmark = pytest.mark.exact


def asked(**more: Any) -> Settings[Any]:
    """Settings, as far as gates look at them."""
    told: dict[str, Any] = {
        "delta": 1e-8, "user_id": "uid", "max_bad_rows": None, "seed": None, **more
    }  # fmt: skip
    source, noise = Source(max_bad_rows=told.pop("max_bad_rows")), Noise(seed=told.pop("seed"))
    return Settings(
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


def test_as_many_bad_rows_as_allowed_are_allowed() -> None:
    gate_bad_rows(5, asked(max_bad_rows=5))
    gate_bad_rows(10**9, asked())
    for most, found in ((5, 6), (0, 1)):
        with pytest.raises(
            NothingReleasedError, match=f"{found} bad rows, --max-bad-rows is {most}"
        ):
            gate_bad_rows(found, asked(max_bad_rows=most))


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
