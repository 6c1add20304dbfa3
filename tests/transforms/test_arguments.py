"""Every argument of a composite is used or refused: another value changes the release, or raises.

Another value of an argument is tried alone beside a release that has all names. It must change the
graph, the identity or the budget that is charged; otherwise it would be dropped without a word.
"""

import dataclasses
import functools
import inspect
import itertools
import uuid
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.pipeline import PipelineVisitor

from beam_ldp.decisions import PrivateExperiment, design_experiment
from beam_ldp.protocols import Box, plan_user_mean
from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.questions import OneQuestion
from beam_ldp.settings import Noise, People, Privacy, Shuffling
from beam_ldp.transforms import (
    ChargeTo,
    Frequencies,
    ListQuestion,
    PrivateEstimate,
    PrivateFrequencies,
    PrivateHeavyHitters,
    PrivateMean,
    PrivateQuestions,
    PrivateUserMean,
    WindowRules,
)
from beam_ldp.transforms.composite import HowReleased

pytestmark = pytest.mark.exact

LISTED = Domain(("a", "b", "c"))
UNIT = CoordinateRanges((0,), (1,))
ORACLE = KRandomizedResponse(LISTED.size, 10.0)
ARMS = ("control", "variant")
ASKED = [ListQuestion("v", LISTED), ListQuestion("w", LISTED)]
PLAN = design_experiment(local_epsilon=10, null=0.2, effect=0.5, alpha=0.05, power=0.8, arms=ARMS)
WORDS = plan_heavy_hitters(3000, 10.0, max_bytes=8, num_bits=32)
MEANS = plan_user_mean(3000, 1, Box(CoordinateRanges(0, 100)), local_epsilon=10.0, sigma=5)
LOUD = Privacy(max_local_epsilon=10.5)
TARGET = Privacy(epsilon=1.0, delta=1e-6, expected_users=2000)

# Each composite, and what it is told beside its question.
COMPOSITES = {
    PrivateFrequencies: ((ORACLE,), {"domain": LISTED, "column": "v", "privacy": LOUD}),
    PrivateMean: ((LInfMean(1, 10.0),), {"columns": "v", "ranges": UNIT, "privacy": LOUD}),
    PrivateQuestions: ((OneQuestion((ORACLE,) * 2), ASKED), {"privacy": LOUD}),
    PrivateExperiment: (
        (PLAN,), {"column": "v", "privacy": LOUD, "people": People(id="uid", group_by="arm")}
    ),
    PrivateHeavyHitters: ((WORDS,), {"column": "v", "privacy": LOUD}),
    PrivateUserMean: ((MEANS,), {"columns": "v", "privacy": LOUD}),
    "planned": (("auto",), {"domain": LISTED, "column": "v", "privacy": TARGET}),
}  # fmt: skip
PLANNED = functools.cache(Frequencies.mechanism)
MADE = {"planned": PrivateFrequencies}
BASE = {
    "people": People(id="uid"),
    "noise": Noise(dataset="d", id="r"),
    "shuffle": Shuffling(min_reports=1000),
    "budget": ChargeTo("d", "sqlite:///ledger.db", "run"),
}

# Other values of every argument, and of every field of those that are sections.
OTHER = {
    "people": [
        {"id": "uid2"}, {"id": None, "one_row": True}, {"group_by": "c"}, {"groups": LISTED},
        {"group_by": "c", "groups": LISTED},
    ],
    "noise": [
        {"dataset": "e"}, {"id": "s"}, {"key_file": "key"}, {"seed": 3}, {"frozen_values": True},
        {"log": "logs", "log_key_file": "log.key"},
    ],
    "privacy": [
        {"epsilon": 0.5, "delta": 1e-5, "expected_users": 2001}, {"local_epsilon": 1.0},
        {"max_local_epsilon": 1.5}, {"trust_shuffler": True}, {"delta": 1e-7},
        {"allow_over_target": True}, {"honest_fraction": 0.5}, {"model": "local"},
    ],
    "shuffle": [{"min_reports": 500}, {"output": "reports"}, {"scope": "global"}],
    "budget": [
        {"dataset": "e"}, {"url": "sqlite:///other.db"}, {"run_id": "other"}, {"windows": 7},
        {"honest_fraction": 0.5}, {"privacy_unit": "example"}, {"untracked": "why"},
        {"quota": "q"}, {"trust_shuffler": True},
        {"people_store": "people", "people_key_file": "people.key"},
    ],
    "column": "z", "columns": "z", "domain": Domain(("a", "b", "d")), "ranges": None,
    "question": "q", "bad_rows": "other", "max_value_bytes": 99, "look": 2,
    "min_reports": 700, "expected_users": 700, "privacy_unit": "example",
    "windows": WindowRules(late="dead_letter"), "permanent": True, "one_row_each": True,
}  # fmt: skip
SECTIONS = {
    "people": People, "noise": Noise, "privacy": Privacy, "shuffle": Shuffling, "budget": ChargeTo,
}  # fmt: skip
OF_A_CHARGE = {field.name for field in dataclasses.fields(ChargeTo)} - {"dataset", "privacy_unit"}
# What rightly changes nothing here.
SAME = {
    "scope": "sums, which are what all these release, have no order",
    "windows": "these rows have no windows",
    "expected_users": "says min_reports, which is given",
}


class Charged(Exception):
    """What a composite wants to reserve."""


def released(kind, **how):
    """All that comes of these arguments: the graph and the identity, or the charge, or why not."""
    numbers = itertools.count()
    with (
        mock.patch.object(Frequencies, "mechanism", PLANNED),
        mock.patch("uuid.uuid4", lambda: uuid.UUID(int=next(numbers))),
        mock.patch.object(ChargeTo, "reserve", autospec=True, side_effect=_charge),
    ):
        pipeline = beam.Pipeline(runner="DirectRunner")
        try:
            composite = MADE.get(kind, kind)(*COMPOSITES[kind][0], **how)
            pipeline | beam.Create([{"uid": 1, "v": "a"}]) | composite
        except (ValueError, Charged) as error:
            return str(error)
    stages = _Stages()
    pipeline.visit(stages)
    return stages.seen, composite.identity


class _Stages(PipelineVisitor):
    """What each worker is given."""

    def __init__(self):
        self.seen = []

    def visit_transform(self, node):
        self.seen.append((node.full_label, cloudpickle.dumps(getattr(node.transform, "fn", None))))


def _charge(budget, event, **about):
    raise Charged(budget, event, about["identity"])


def others(kind):
    """Each argument or field, with another value of all that is told."""
    base = BASE | COMPOSITES[kind][1]
    for name in _arguments(MADE.get(kind, kind)):
        if name not in SECTIONS:
            yield (
                name,
                base
                | {name: OTHER[name]}
                | ({"shuffle": Shuffling()} if name == "min_reports" else {}),
            )
            continue
        for fields in OTHER[name]:
            yield ", ".join(fields), base | {name: dataclasses.replace(base[name], **fields)}


def _arguments(kind):
    own = [
        one.name
        for one in inspect.signature(kind.__init__).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    ]
    shared = HowReleased.__annotations__ if issubclass(kind, PrivateEstimate) else ()
    return [*own, *shared]


@pytest.mark.parametrize("kind", COMPOSITES)
def test_every_argument_is_used_or_refused(kind):
    """`groups` of a search for words once came to nothing, and all people to one release."""
    base = BASE | COMPOSITES[kind][1]
    free = {"budget": None}
    graph, charge = released(kind, **base | free), released(kind, **base)
    dropped = [
        name
        for name, how in others(kind)
        if released(kind, **how) == charge
        and (name in OF_A_CHARGE or released(kind, **how | free) == graph)
        and name not in SAME
    ]
    assert not dropped


def test_every_field_has_another_value():
    for name, section in SECTIONS.items():
        tried = {field for fields in OTHER[name] for field in fields}
        assert tried == {field.name for field in dataclasses.fields(section)}


def test_groups_are_refused_by_name_where_a_plan_lists_them():
    groups = People(id="uid", group_by="country", groups=Domain(("de", "fr")))
    with pytest.raises(ValueError, match="the plan lists the arms"):
        PrivateExperiment(PLAN, column="v", people=groups, privacy=LOUD)


def test_a_declared_share_of_fakes_reaches_the_charge():
    """It was once declared to the plan alone, and the charge counted every report as honest."""
    privacy = dataclasses.replace(TARGET, honest_fraction=0.5)
    told = BASE | COMPOSITES["planned"][1] | {"privacy": privacy}
    assert "honest_fraction=0.5" in released("planned", **told)
