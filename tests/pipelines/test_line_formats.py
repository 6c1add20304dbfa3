"""Line-based files: every line is a row, a bad row or blank, whatever bytes it holds."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.release.inputs import csv_format
from beam_ldp.release.inputs import line_formats as lf
from beam_ldp.release.inputs.line_formats import Lines, Problem

REASONS = {
    lf.NOT_ID, lf.UNDECODABLE, lf.TOO_LONG, lf.WRONG_FIELDS, lf.BAD_QUOTES, lf.NOT_JSON,
    lf.NOT_SCALAR, lf.NAN, lf.INFINITE, lf.MISSING_COLUMN, lf.WINDOWS_1252,
}  # fmt: skip


def flat(found: list[Lines]) -> dict[int, object]:
    """Line number -> tuple of fields, or the reason; blank lines are left out."""
    rows: dict[int, object] = {}
    for lines in found:
        if lines.table is None:
            for number, row in enumerate(lines.rows, lines.first_line):
                if isinstance(row, Problem):
                    rows[number] = row.reason
                elif row is not None:
                    rows[number] = row
            continue
        fields = zip(*(column.to_pylist() for column in lines.table.columns))
        rows.update(enumerate(fields, lines.first_line))
    return rows


def csv_rows(content: bytes, *columns: str, delimiter: str = ",") -> dict[int, object]:
    return flat(list(csv_format.read_csv(io.BytesIO(content), columns, delimiter)))


def json_rows(content: bytes, *columns: str) -> dict[int, object]:
    return flat(list(lf.read_json_lines(io.BytesIO(content), columns)))


# Cutting into lines -----------------------------------------------------------------------


@given(st.binary(max_size=300), st.integers(1, 20))
def test_blocks_lose_and_invent_nothing(content: bytes, block_bytes: int) -> None:
    blocks = list(lf.blocks_of_lines(io.BytesIO(content), 1, block_bytes))
    whole = b"".join(block for _, block in blocks)
    assert whole == content or whole == content + b"\n"
    line = 1
    for number, block in blocks:
        assert number == line and block.endswith(b"\n")
        line += block.count(b"\n")


def test_a_line_without_end_is_skipped_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lf, "LONGEST_LINE", 50)
    content = b"a\n" + b"x" * 500 + b"\nb\n"
    blocks = list(lf.blocks_of_lines(io.BytesIO(content), 1, 16))
    assert (2, None) in blocks
    assert b"b\n" in blocks[-1][1]
    assert blocks[-1][0] == 3


# Text -------------------------------------------------------------------------------------


def test_text_lines_are_values() -> None:
    found = flat(list(lf.read_text(io.BytesIO("\ufeffä b\r\n\n \n\xff".encode("utf-8")), "v")))
    assert found == {1: ("ä b",), 4: ("ÿ",)}


def test_text_that_does_not_decode_is_a_bad_row() -> None:
    assert flat(list(lf.read_text(io.BytesIO(b"ok\n\xff\xfe\xfd\nok"), "v"))) == {
        1: ("ok",), 2: lf.UNDECODABLE, 3: ("ok",),
    }  # fmt: skip


# JSON lines -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"v": "a", "u": "x"}', ("a", "x")),
        (b'{"v": 12, "u": 1.50}', ("12", "1.50")),
        (b'{"v": 123456789012345678901234567890, "u": 1e5}',
         ("123456789012345678901234567890", "1e5")),
        (b'{"v": true, "u": null}', ("true", None)),
        (b'{"v": "a"}', ("a", None)),
        (b'{"v": NaN, "u": 1}', lf.NAN),
        (b'{"v": -Infinity, "u": 1}', lf.INFINITE),
        (b'{"v": ["a"], "u": 1}', lf.NOT_SCALAR),
        (b'{"v": "\\ud800", "u": 1}', lf.UNDECODABLE),
        (b'{"v": "\xff", "u": 1}', lf.WINDOWS_1252),
        ('{"v": "你好", "u": 1}'.encode("gb18030"), lf.UNDECODABLE),
        ('{"v": "дом", "u": 1}'.encode("cp1251"), lf.UNDECODABLE),
        (b'{"v": "a", "u": 1} trailing', lf.NOT_JSON),
        (b'{"v": "a", "u": 1}{"v": "a", "u": 1}', lf.NOT_JSON),
        (b'["a", 1]', lf.NOT_JSON),
        (b"[" * 100_000, lf.NOT_JSON),
        (b'{"v": "a"', lf.NOT_JSON),
    ],
)  # fmt: skip
def test_json_line(line: bytes, expected: object) -> None:
    assert json_rows(b'{"v":"first","u":"0"}\n' + line, "v", "u") == {
        1: ("first", "0"),
        2: expected,
    }


@pytest.mark.parametrize(
    ("written", "user_id"),
    [
        ("7", "7"), ("7.0", "7"), ("70e-1", "7"), ('"7"', "7"), ('"7.0"', "7.0"), ('"07"', "07"),
        ('"7 "', "7 "), ("-0.0", "0"), ("null", None), ("NaN", None),
        (str(2**64), str(2**64)), ("7.5", lf.NOT_ID), ("true", lf.NOT_ID), ("1e300", lf.NOT_ID),
        ("9007199254740993.0", lf.NOT_ID), ("[7]", lf.NOT_SCALAR),
    ],
)  # fmt: skip
def test_ids_in_json(written: str, user_id: str | None) -> None:
    """What is left is made one by `canonical_id`: 7, 7.0, "7" and "7.0"; not "07" and "7 "."""
    line = f'{{"v": "a", "u": {written}}}'.encode()
    found = flat(list(lf.read_json_lines(io.BytesIO(line), ["v"], "u")))
    assert found == {1: user_id if user_id in REASONS else ("a", user_id)}


@pytest.mark.parametrize("inside", ["\u2028", "\x0b", "\x0c", "\x85", "\x1c", "\r", "\0"])
def test_nothing_but_a_newline_ends_a_line(inside: str) -> None:
    assert flat(list(lf.read_text(io.BytesIO(f"a{inside}b\nc".encode()), "v"))) == {
        1: (f"a{inside}b",), 2: ("c",),
    }  # fmt: skip
    escaped = json.dumps({"v": f"a{inside}b"}).encode()
    assert json_rows(escaped + b"\n" + escaped, "v") == {n: (f"a{inside}b",) for n in (1, 2)}
    assert csv_rows(f"v\na{inside}b\n".encode(), "v") == {2: (f"a{inside}b",)}


@given(st.dictionaries(st.sampled_from("uvw"), st.text() | st.none() | st.booleans(), min_size=1))
def test_json_text_survives(fields: dict[str, object]) -> None:
    found = json_rows(json.dumps(fields).encode(), *fields)
    shown = tuple({True: "true", False: "false"}.get(v, v) if isinstance(v, bool) else v
                  for v in fields.values())  # fmt: skip
    assert found == {1: shown}


# CSV --------------------------------------------------------------------------------------


def test_csv_ragged_lines_are_bad_rows_and_the_others_keep_their_numbers() -> None:
    content = b"u,v\n1,a\n2\n3,b,c\n\n4,d\n,e\n5,\n"
    assert csv_rows(content, "v", "u") == {
        2: ("a", "1"), 3: lf.WRONG_FIELDS, 4: lf.WRONG_FIELDS,
        6: ("d", "4"), 7: ("e", None), 8: (None, "5"),
    }  # fmt: skip


def test_csv_undecodable_text_matters_only_in_the_wanted_columns() -> None:
    content = b"u,v\n\xff,a\n1,\xff\n2,b\n"
    assert csv_rows(content, "v") == {2: ("a",), 3: lf.WINDOWS_1252, 4: ("b",)}


def test_csv_windows_line_ends_byte_order_mark_and_tabs() -> None:
    content = "\ufeffu\tv\r\n1\ta b\r\n".encode()
    assert csv_rows(content, "u", "v", delimiter="\t") == {2: ("1", "a b")}


@pytest.mark.parametrize("header", [b"u,v", b"w,w"])
def test_csv_without_the_one_column_makes_every_line_a_bad_row(header: bytes) -> None:
    content = header + b"\n1,2\n\n3,4\n"
    assert csv_rows(content, "w") == {2: lf.MISSING_COLUMN, 4: lf.MISSING_COLUMN}


def test_csv_with_nothing_but_a_header_or_nothing_at_all_has_no_rows() -> None:
    assert csv_rows(b"u,v\n", "v") == csv_rows(b"u,v", "v") == csv_rows(b"", "v") == {}


def test_csv_all_lines_bad() -> None:
    assert csv_rows(b"u,v\n1\n2\n", "v") == {2: lf.WRONG_FIELDS, 3: lf.WRONG_FIELDS}


def test_csv_same_column_twice() -> None:
    assert csv_rows(b"u,v\n1,a\n", "v", "v") == {2: ("a", "a")}


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(["csv", "jsonl", "text"]))
def test_random_bytes_never_raise_and_reasons_are_fixed_phrases(content: bytes, kind: str) -> None:
    read = {
        "csv": lambda: csv_format.read_csv(io.BytesIO(b"u,v\n" + content), ["v", "u"]),
        "jsonl": lambda: lf.read_json_lines(io.BytesIO(content), ["v", "u"]),
        "text": lambda: lf.read_text(io.BytesIO(content), "v"),
    }[kind]
    rows = flat(list(read()))
    for row in rows.values():
        assert row in REASONS if isinstance(row, str) else isinstance(row, tuple)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    assert len(rows) <= lines
