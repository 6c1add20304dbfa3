"""What the composites of Beam and their names in Beam YAML gave before, they give now.

They are asked what the programs of `cases.py` are asked, with the same key and the same names.
Where a program gives the same release, the identity and the estimates are those of the program.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.decisions import PrivateExperiment, design_experiment
from beam_ldp.protocols import Box, plan_heavy_hitters, plan_user_mean
from beam_ldp.protocols.found_words import FoundWords
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import CoordinateRanges, L2Mean, LInfMean
from beam_ldp.randomizers.questions import OneQuestion
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import (
    ChargeTo,
    ListQuestion,
    PrivateFrequencies,
    PrivateHeavyHitters,
    PrivateMean,
    PrivateQuestions,
    PrivateUserMean,
    TableBlock,
)
from beam_ldp.transforms import yaml as in_yaml
from tests.golden import cases, frozen
from tests.golden.frozen import NUMBERS, TEXT, Golden, Plain
from tests.golden.test_golden import squeezed

GOLDEN = Golden("transforms")
PROGRAMS = Golden("programs")
HAIR, EYES = Domain(("red", "fair")), Domain(("a", "b"))
ORACLE = KRandomizedResponse(HAIR.size, 2.0)
AGES = CoordinateRanges((0.0,), (100.0,))
WORDS = plan_heavy_hitters(cases.PEOPLE, 6.0, max_bytes=4, num_bits=22)
LOCALLY = {"local_epsilon": 2, "delta": 1e-6, "expected_users": cases.PEOPLE}
NAMED = {"dataset": "them", "id": "week"}
KEY = {"key_file": "key"}
PAID = {"ledger": "sqlite:///privacy.db", "run_id": "nightly"}
SIZE = 4_000_000


def told(**more: Any) -> dict[str, Any]:
    """What all composites are told: whose rows, which release, whose budget."""
    how = {
        "people": People(id="uid"), "noise": Noise(**NAMED, **KEY),
        "budget": ChargeTo("them", PAID["ledger"], run_id="nightly"),
    }  # fmt: skip
    return {**how, **more}


LEAST = {"shuffle": Shuffling(min_reports=100)}
TOWNS = People(id="uid", group_by="town", groups=Domain(("north", "south", "nowhere")))

# Each door, and the program's case that gives the same release.
RELEASES: dict[str, tuple[Callable[[], beam.PTransform], str]] = {
    "frequencies": (
        lambda: PrivateFrequencies(ORACLE, domain=HAIR, column="hair", **told(**LEAST)), "one list"
    ),
    "frequencies in groups": (
        lambda: PrivateFrequencies(
            ORACLE, domain=HAIR, column="hair", **told(**LEAST, people=TOWNS)
        ), "groups",
    ),
    "mean": (
        lambda: PrivateMean(LInfMean(1, 2.0), columns="age", ranges=AGES, **told(**LEAST)), ""
    ),
    "mean in groups": (
        lambda: PrivateMean(
            LInfMean(1, 2.0), columns="age", ranges=AGES, **told(**LEAST, people=TOWNS)
        ), "",
    ),
    "questions": (
        lambda: PrivateQuestions(
            OneQuestion((ORACLE, KRandomizedResponse(EYES.size, 2.0))),
            [ListQuestion("hair", HAIR), ListQuestion("eyes", EYES)], **told(**LEAST),
        ), "survey, one answered",
    ),
    "heavy hitters": (
        lambda: PrivateHeavyHitters(WORDS, column="hair", **told()), "",
    ),
    "user mean": (
        lambda: PrivateUserMean(
            plan_user_mean(cases.PEOPLE, 1, Box(AGES), local_epsilon=4.0, sigma=30),
            columns="age", **told(),
        ), "",
    ),
}  # fmt: skip
ASKED = {"column": "hair", "domain": list(HAIR.values), "mechanism": "KRandomizedResponse"}
SHARED: dict[str, Any] = {
    "people": {"id": "uid"}, "privacy": LOCALLY, "shuffle": {"min_reports": 100},
    "release": {**NAMED, **PAID},
}  # fmt: skip
YAML: dict[str, tuple[str, dict[str, Any]]] = {
    "YAML frequencies": ("PrivateFrequencies", ASKED),
    "YAML bins": ("PrivateFrequencies", {"column": "age", "bins": "0:100:10"}),
    "YAML groups": (
        "PrivateFrequencies",
        {**ASKED, "people": {"id": "uid", "group_by": "town", "groups": ["north", "south"]}},
    ),
    "YAML mean": ("PrivateMean", {"column": "age", "ranges": [0, 100]}),
    "YAML questions": (
        "PrivateQuestions",
        {"questions": [{"column": "hair", "domain": ["red", "fair"]},
                       {"column": "eyes", "domain": ["a", "b"]}]},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What a door releases: estimates, events, identities, memoized reports, rows of the ledger."""

    def run(name: str) -> Any:
        folder = tmp_path_factory.mktemp("door")
        with frozen.world(folder) as patch:
            cases.furnish(folder)
            reports = frozen.memoized_reports(patch)
            stage = _stage(name)
            left: list[Any] = []
            patch.setattr("tests.golden.test_transforms._LEFT", left)
            pipeline = beam.Pipeline(FnApiRunner(), options=PipelineOptions([]))
            rows = pipeline | beam.Create(["people.csv"]) | _AS_ROWS[name in YAML]
            _ = rows | "Door" >> stage | beam.Map(_keep)
            pipeline.run().wait_until_finish()
            found = {
                "released": sorted(left, key=lambda one: json.dumps(one, sort_keys=True)),
                "reports": reports(),
                "ledger": [squeezed(row) for row in frozen.ledger_rows("privacy.db")[3:]],
            }
            identity = getattr(stage, "identity", None)
            if identity is not None:
                found["identity"] = identity.digest.hex()
            return Plain(folder)(found)

    return run


def _stage(name: str) -> beam.PTransform:
    if name in RELEASES:
        return RELEASES[name][0]()
    kind, config = YAML[name]
    return getattr(in_yaml, kind)(**{**SHARED, **config})


_LEFT: list[Any] = []


def _table(path: str) -> TableBlock:
    """The rows of a file, which say where they stand: memoized draws of a row need that."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {"uid": int, "hair": str, "eyes": str, "town": str, "age": float}
    columns = {name: [kind(row[name]) for row in rows] for name, kind in kinds.items()}
    return TableBlock(path, 0, pa.RecordBatch.from_pydict(columns))


def _rows(path: str) -> list[beam.Row]:
    return [beam.Row(**row) for row in _table(path).batch.to_pylist()]


_AS_ROWS = (beam.Map(_table).with_output_types(TableBlock), beam.FlatMap(_rows))


def _keep(element: Any) -> None:
    _LEFT.append(plainly(element))


# What depends on noise that is drawn anew: transforms of Beam YAML cannot memoize.
_DRAWN = ("count", "frequency", "mean", "standard_error", "low", "high")


def plainly(element: Any) -> Any:
    """A release by its public names, or a row of Beam YAML without what noise makes of it."""
    if hasattr(element, "_asdict"):
        row = element._asdict()
        return {name: row[name] for name in row if not name.startswith(_DRAWN)}
    group, release = element if isinstance(element, tuple) else (None, element)
    found = release.estimate
    return {
        "group": release.group if group is None else group,
        "question": release.question,
        **_estimated(found),
        "reports": release.num_reports,
        "event": squeezed(event_to_json(release.event)),
    }


def _estimated(found: Any) -> dict[str, Any]:
    if isinstance(found, FoundWords):
        numbers = ("frequency", "standard_error", "low", "high")
        return {
            "words": [text.decode() for text in found.texts],
            **{name: squeezed(getattr(found, name).tolist()) for name in numbers},
            "tested": found.tested,
            "people": found.num_users,
            "coverage": found.coverage,
            "threshold": found.threshold,
        }
    return {
        "value": squeezed(found.value.tolist()),
        "standard_error": squeezed(np.asarray(found.standard_error).tolist()),
        "people": found.num_users,
    }


@pytest.mark.e2e
@pytest.mark.parametrize("name", [*RELEASES, *YAML])
def test_doors_of_beam(name: str, given: Callable[[str], Any]) -> None:
    found = given(name)
    GOLDEN.check(NUMBERS, name, found)
    same = RELEASES.get(name, ("", ""))[1]
    if same:
        kept = PROGRAMS.kept(NUMBERS, same)
        assert found["reports"] == kept["reports"], "people send what they send a program"


# What is refused -----------------------------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "both epsilons": {"privacy": {**LOCALLY, "epsilon": 1}},
    "no epsilon": {"privacy": {"delta": 1e-6, "expected_users": 600}},
    "delta of two": {"privacy": {**LOCALLY, "delta": 2}},
    "a large local epsilon": {"privacy": {**LOCALLY, "local_epsilon": 9}},
    "a share of liars": {"privacy": {**LOCALLY, "honest_fraction": 0}},
    "an unknown setting": {"privacy": {**LOCALLY, "epsilom": 1}},
    "nobody's rows": {"people": {}},
    "key and seed": {"release": {**NAMED, **KEY, "seed": 1}},
    "a key": {"release": {**NAMED, **KEY}},
    "a ledger without a name": {"release": PAID},
    "an unknown mechanism": {"mechanism": "None"},
    "bins and a list": {"bins": "0:100:10"},
    "no list": {"domain": None},
    "groups without a column": {"people": {"id": "uid", "groups": ["north"]}},
    "least reports": {"shuffle": {"min_reports": 0}},
    "an unknown scope": {"shuffle": {"scope": "none"}},
    "bad rows": {"bad_rows": "zero"},
    "a stranger's budget": {"release": {**NAMED, **PAID, "dataset": "strangers"}},
    "no ledger there": {"release": {**NAMED, **PAID, "ledger": "sqlite:///none.db"}},
}


@pytest.mark.exact
@pytest.mark.parametrize("part", [NUMBERS, TEXT])
def test_refusals_of_yaml(part: str, tmp_path: Path) -> None:
    """By the type of the error, and apart from it its words; nothing is charged."""
    with frozen.world(tmp_path):
        cases.furnish(tmp_path)
        said = {}
        for rule, change in REFUSED.items():
            before = frozen.ledger_rows("privacy.db")
            said[rule] = _refusal({**SHARED, **ASKED, **change})
            assert said[rule][0] and frozen.ledger_rows("privacy.db") == before, rule
    given = {rule: one[part == TEXT] for rule, one in said.items()}
    GOLDEN.check(part, "refused by YAML", Plain(tmp_path)(given))


def _refusal(config: dict[str, Any]) -> tuple[str, str]:
    try:
        stage = in_yaml.PrivateFrequencies(**config)
        pipeline = beam.Pipeline(FnApiRunner(), options=PipelineOptions([]))
        _ = pipeline | beam.Create([beam.Row(uid=1, hair="red")]) | stage
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


# How large graphs are ------------------------------------------------------------------------

# Stages and bytes of a graph at four million values, and of the largest pickled stage, at most.
GRAPHS: dict[str, tuple[Callable[[str], beam.PTransform], tuple[int, int, int]]] = {
    "frequencies": (
        lambda path: PrivateFrequencies(
            KRandomizedResponse(SIZE + 1, 2.0), domain=path, column="hair", **LEAST
        ), (58, 65_000, 1_500),
    ),
    "frequencies, permuted reports": (
        lambda path: PrivateFrequencies(
            KRandomizedResponse(SIZE + 1, 2.0), domain=path, column="hair",
            shuffle=Shuffling(min_reports=100, output="reports", scope="global"),
        ), (62, 75_000, 2_400),
    ),
    "frequencies in groups": (
        lambda path: PrivateFrequencies(
            KRandomizedResponse(SIZE + 1, 2.0), domain=path, column="hair", people=TOWNS, **LEAST
        ), (63, 72_000, 1_700),
    ),
    "questions": (
        lambda path: PrivateQuestions(
            OneQuestion((KRandomizedResponse(SIZE + 1, 2.0),) * 2),
            [ListQuestion("hair", path), ListQuestion("eyes", path)], **LEAST,
        ), (60, 67_000, 1_600),
    ),
    "mean": (
        lambda _: PrivateMean(L2Mean(SIZE, 2.0), columns="pixels", **LEAST), (58, 66_000, 1_600)
    ),
    "heavy hitters": (lambda _: PrivateHeavyHitters(WORDS, column="hair"), (107, 134_000, 1_800)),
    "user mean": (
        lambda _: PrivateUserMean(
            plan_user_mean(cases.PEOPLE, 1, Box(AGES), local_epsilon=4.0, sigma=30), columns="age",
            people=People(id="uid"),
        ), (51, 57_000, 1_600),
    ),
    "experiment": (
        lambda _: PrivateExperiment(
            design_experiment(
                local_epsilon=2, null=0.2, effect=0.5, arms=("a", "b"), alpha=0.05, power=0.8
            ),
            column="hair", people=People(id="uid", group_by="arm"),
        ), (49, 54_000, 1_600),
    ),
}  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_do_not_grow(name: str, tmp_path: Path) -> None:
    """Beam's own part depends on its version, so these are limits, about a tenth above
    what there was."""
    make, most = GRAPHS[name]
    pipeline = beam.Pipeline("FnApiRunner")
    _ = pipeline | beam.Create([beam.Row(uid=1, hair="red")]) | make(str(tmp_path / "list.txt"))
    graph = pipeline.to_runner_api()
    found = graph.components.transforms.values()
    payloads = [len(one.spec.payload) for one in found]
    given = len(payloads), len(graph.SerializeToString()), max(payloads)
    assert all(size <= limit for size, limit in zip(given, most)), f"{given} above {most}"
