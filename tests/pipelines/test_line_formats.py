"""Line-based files: every line is a row, a bad row or blank, whatever bytes it holds."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.pipelines.inputs import line_formats as lf
from beam_ldp.pipelines.inputs.line_formats import Lines, Problem

REASONS = {
    lf.UNDECODABLE, lf.TOO_LONG, lf.WRONG_FIELDS, lf.BAD_QUOTES, lf.NOT_JSON, lf.NOT_SCALAR,
    lf.NOT_NUMBER, lf.MISSING_COLUMN,
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
    return flat(list(lf.read_csv(io.BytesIO(content), columns, delimiter)))


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
    assert flat(list(lf.read_text(io.BytesIO(b"ok\n\xff\xfe\nok"), "v"))) == {
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
        (b'{"v": "a"}', lf.MISSING_COLUMN),
        (b'{"v": NaN, "u": 1}', lf.NOT_NUMBER),
        (b'{"v": -Infinity, "u": 1}', lf.NOT_NUMBER),
        (b'{"v": ["a"], "u": 1}', lf.NOT_SCALAR),
        (b'{"v": "\\ud800", "u": 1}', lf.UNDECODABLE),
        (b'{"v": "\xff", "u": 1}', lf.UNDECODABLE),
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


def test_csv_quotes() -> None:
    content = b'u,v\n1,"a,b"\n2,"say ""hi"""\n3,"open\n4,fine\n5,"x"y\n'
    assert csv_rows(content, "v") == {
        2: ("a,b",), 3: ('say "hi"',), 4: lf.BAD_QUOTES, 5: ("fine",), 6: lf.BAD_QUOTES,
    }  # fmt: skip


def test_csv_undecodable_text_matters_only_in_the_wanted_columns() -> None:
    content = b"u,v\n\xff,a\n1,\xff\n2,b\n"
    assert csv_rows(content, "v") == {2: ("a",), 3: lf.UNDECODABLE, 4: ("b",)}


def test_csv_windows_line_ends_byte_order_mark_and_tabs() -> None:
    content = "\ufeffu\tv\r\n1\ta b\r\n".encode()
    assert csv_rows(content, "u", "v", delimiter="\t") == {2: ("1", "a b")}


def test_csv_missing_column_makes_every_line_a_bad_row() -> None:
    assert csv_rows(b"u,v\n1,2\n\n3,4\n", "w") == {2: lf.MISSING_COLUMN, 4: lf.MISSING_COLUMN}


def test_csv_with_nothing_but_a_header_or_nothing_at_all_has_no_rows() -> None:
    assert csv_rows(b"u,v\n", "v") == csv_rows(b"u,v", "v") == csv_rows(b"", "v") == {}


def test_csv_all_lines_bad() -> None:
    assert csv_rows(b"u,v\n1\n2\n", "v") == {2: lf.WRONG_FIELDS, 3: lf.WRONG_FIELDS}


def test_csv_same_column_twice() -> None:
    assert csv_rows(b"u,v\n1,a\n", "v", "v") == {2: ("a", "a")}


PIECES = st.sampled_from(
    [b"a", b"b,c", b",", b"\n", b"\r\n", b"\r", b" ", b"\t", b"\xff", "é".encode(), b"\0", b"1"]
)


def test_sound_blocks_take_the_fast_way() -> None:
    (lines,) = lf.read_csv(io.BytesIO(b"u,v\r\n1,a\r\n2,\xc3\xa9\r\n"), ["v"])
    assert lines.table is not None and lines.table.num_rows == 2


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_arrow_and_python_read_the_same_rows(body: bytes) -> None:
    """The fast parser only takes blocks that both read alike."""
    lines = body.split(b"\n")
    block = body if body.endswith(b"\n") else body + b"\n"
    fast = lf._csv_fast(2, block, 2, [("v", 1), ("u", 0)], ",")
    if fast is None:
        return
    slow = [lf._csv_row(line.removesuffix(b"\r"), 2, [1, 0], ",") for line in lf._split(block)]
    assert flat([fast]) == flat([Lines(2, slow)])
    assert len(lines) >= len(slow) - 1


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(["csv", "jsonl", "text"]))
def test_random_bytes_never_raise_and_reasons_are_fixed_phrases(content: bytes, kind: str) -> None:
    read = {
        "csv": lambda: lf.read_csv(io.BytesIO(b"u,v\n" + content), ["v", "u"]),
        "jsonl": lambda: lf.read_json_lines(io.BytesIO(content), ["v", "u"]),
        "text": lambda: lf.read_text(io.BytesIO(content), "v"),
    }[kind]
    rows = flat(list(read()))
    for row in rows.values():
        assert row in REASONS if isinstance(row, str) else isinstance(row, tuple)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    assert len(rows) <= lines


CELLS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"),
    min_size=1,
    max_size=8,
)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=20))
def test_what_python_writes_is_read_back(rows: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["u", "v"])
    writer.writerows(rows)
    found = csv_rows(text.getvalue().encode(), "u", "v")
    assert list(found.values()) == rows
