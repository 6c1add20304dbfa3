"""Encoders by themselves: what travels, and what is made of rows without a stage."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from beam_ldp.protocols.string_code import StringCode
from beam_ldp.questions.columns import REASONS, Column, IntegerDomain
from beam_ldp.questions.encoders import (
    NO_CODE,
    LevelsEncoder,
    ListEncoder,
    RowEncoder,
    SurveyEncoder,
    VectorEncoder,
    WordEncoder,
)
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.transforms.elements.portable import PortableDomain

pytestmark = pytest.mark.exact

COLOURS = PortableDomain(Domain(("red", "green")))
TREE = Hierarchy(Bins.parse("0:4:4"), 2)
AGE = ListEncoder(("age",), PortableDomain(Bins.parse("0:4:4")))
ENCODERS: dict[str, tuple[RowEncoder, dict[str, list[object]], list[object], list[str]]] = {
    "list": (
        ListEncoder(("c",), COLOURS), {"c": ["green", "blue", None]}, [1, 2, 2], ["", "", "null"]
    ),
    "integers": (
        ListEncoder(("c",), PortableDomain(IntegerDomain(3))), {"c": [0, 9]}, [0, 2], ["", ""]
    ),
    "bins": (AGE, {"age": [1.5, "x", -1]}, [1, 4, 4], ["", "not a number", ""]),
    "levels": (
        LevelsEncoder(("age",), TREE), {"age": [3, None]},
        [TREE.encode(np.array([3.0]))[0].tolist(), [size - 1 for size in TREE.sizes]], ["", "null"],
    ),
    "survey": (
        SurveyEncoder.of((ListEncoder(("c",), COLOURS), AGE), ("c", "age")),
        {"c": ["red", "red"], "age": [0, "NaN"]}, [[0, 0], [0, 4]], ["", "NaN"],
    ),
    "vectors": (
        VectorEncoder(("x", "y"), 2, CoordinateRanges(0, 4)),
        {"x": [0, 4], "y": [2, "inf"]}, [[-1, 0], [0, 0]], ["", "infinite"],
    ),
    "words": (WordEncoder(("w",), StringCode(64, 8)), {"w": ["x" * 9]}, [[int(NO_CODE)]], [""]),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_rows_become_values_and_reasons(name: str) -> None:
    encoder, rows, values, reasons = ENCODERS[name]
    count = len(next(iter(rows.values())))
    found, codes = encoder.encode({n: Column(own, count) for n, own in rows.items()}, count)
    assert found.tolist() == values and [REASONS[code] for code in codes] == reasons


@pytest.mark.parametrize("name", ENCODERS)
def test_tables_stay_behind_and_the_rest_travels(name: str) -> None:
    encoder, *_ = ENCODERS[name]
    before = pickle.dumps(encoder)
    encoder.prepare()
    encoder.encode({}, 1)
    assert pickle.dumps(encoder) == before
    assert pickle.loads(before).columns == encoder.columns


def test_rows_without_a_column_are_bad_and_a_lone_column_needs_no_name() -> None:
    column = Column(pa.array(["red"]), 1)
    lone = ListEncoder(None, COLOURS)
    assert lone.encode({"any": column}, 1)[0].tolist() == [0]
    for columns in ({}, {"a": column, "b": column}):
        assert REASONS[lone.encode(columns, 1)[1][0]] == "missing column"
    found = lone.encode_array(np.array(["green", "red"]))
    assert found is not None and found[0].tolist() == [1, 0]


def test_levels_have_no_value_that_hides_a_row() -> None:
    levels = LevelsEncoder(("age",), TREE)
    assert levels.instead is None and AGE.instead == "other"
    assert SurveyEncoder.of((AGE, levels), ("a", "b", "c")).instead is None


def test_a_list_of_another_size_is_refused_where_it_is_read() -> None:
    with pytest.raises(ValueError, match="domain has 3 values"):
        ListEncoder(("c",), COLOURS, size=4).prepare()


def test_a_device_needs_no_beam() -> None:
    told = "import sys, beam_ldp.questions.encoders; print('apache_beam' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
