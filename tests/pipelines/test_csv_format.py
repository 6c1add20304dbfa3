"""CSV: each record is a row, a bad row or blank, and no line of a quoted text becomes a person."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.release.inputs import csv_format
from beam_ldp.release.inputs import line_formats as lf
from beam_ldp.release.inputs.csv_format import blocks_of_records, csv_header, read_csv
from tests.pipelines.test_line_formats import flat

pytestmark = pytest.mark.exact


def rows(content: bytes, *columns: str, delimiter: str = ",") -> dict[int, object]:
    return flat(list(read_csv(io.BytesIO(content), columns, delimiter)))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that records lie across the blocks of a short file."""
    read = csv_format.blocks_of_records
    monkeypatch.setattr(csv_format, "blocks_of_records", lambda s, d: read(s, d, 7))


# Newlines in quotes -------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", ["large", "small"])
def test_a_quoted_newline_makes_no_person(blocks: str, request: pytest.FixtureRequest) -> None:
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    content = b'u,v\n1,"hello\n777777,fine\nbye"\n2,b\n\n3,"x\r\n\r\ny"\n4,"a ""b"", c"\n'
    assert rows(content, "u", "v") == {
        2: ("1", "hello\n777777,fine\nbye"), 3: ("2", "b"), 5: ("3", "x\r\n\r\ny"),
        6: ("4", 'a "b", c'),
    }  # fmt: skip


def test_a_file_of_records_of_many_lines_has_so_many_people() -> None:
    """1,500 records of three lines were 1,500 invented people and 3,000 bad rows."""
    content = "uid,url\n" + "".join(f'{i},"a\n{i + 10**6},b\nc"\n' for i in range(1500))
    found = rows(content.encode(), "uid")
    assert found == {i + 2: (str(i),) for i in range(1500)}


def test_headers_may_hold_newlines_and_quotes() -> None:
    content = b'\xef\xbb\xbf"u\nid","v, ""w"""\n1,2\n'
    assert csv_header(io.BytesIO(content)) == ["u\nid", 'v, "w"']
    assert rows(content, "u\nid") == {2: ("1",)}
    assert rows(b'u,"v\nopen\n1,2\n', "u") == {n: lf.BAD_QUOTES for n in (2, 3)}


# Malformed quotes ---------------------------------------------------------------------------------


def test_malformed_quotes_within_a_line_are_one_bad_row() -> None:
    content = b'u,v\n1,"x"y\n2,"a"b"c\n3,"fine\nstill 3"\n4,5" disk\n'
    assert rows(content, "u", "v") == {
        2: lf.BAD_QUOTES, 3: lf.BAD_QUOTES, 4: ("3", "fine\nstill 3"), 5: ("4", '5" disk'),
    }  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        b'2,"open\n3,c\n4,d\n',  # without an end
        b'2,"open\n3,"closed"\n4,d\n',  # closed by the quote that opens another field
        b'2,"a"b,"c\n777777,fine\nd"\n',  # malformed, and its last field has no end on its line
        b'2,"a\n777777,fine\nb"c\n',
    ],
)
@pytest.mark.parametrize("blocks", ["large", "small"])
def test_after_quotes_that_cross_lines_nothing_is_guessed(
    broken: bytes, blocks: str, request: pytest.FixtureRequest
) -> None:
    """Lines after them may be inside a text: every one is a bad row, none a person."""
    if blocks == "small":
        request.getfixturevalue("small_blocks")
    content = b"u,v\n1,a\n" + broken + b"8,h\n9,i"
    count = broken.count(b"\n") + 2
    assert rows(content, "u") == {2: ("1",), **{3 + i: lf.BAD_QUOTES for i in range(count)}}
    found = [row for lines in read_csv(io.BytesIO(content), ["u"]) for row in lines.rows]
    lost = [row for row in found if isinstance(row, lf.Problem)]
    assert lost and not any(row.is_row for row in lost)  # no mode makes `other` of them


def test_records_that_are_too_long(monkeypatch: pytest.MonkeyPatch, small_blocks: None) -> None:
    monkeypatch.setattr(csv_format, "LONGEST_LINE", 50)
    long = b"2," + b"x" * 500
    assert rows(b"u,v\n1,a\n" + long + b"\n3,c\n4,d", "u") == {
        2: ("1",), 3: lf.TOO_LONG, 4: ("3",), 5: ("4",),
    }  # fmt: skip
    for content in (b'2,"' + b"x" * 500 + b'"\n3,c\n', long + b',"\n777777,fine\n"\n3,c\n'):
        found = rows(b"u,v\n1,a\n" + content, "u")
        assert found == {2: ("1",), **{3 + i: lf.BAD_QUOTES for i in range(content.count(b"\n"))}}
    assert rows(b"u,v\n1,a\n" + long, "u") == {2: ("1",), 3: lf.TOO_LONG}


def test_a_quoted_field_may_be_long() -> None:
    text = "line\n" * 100_000  # beyond the limit that Python's parser has by default
    assert rows(f'u,v\n1,"{text}"\n2,5" disk\n'.encode(), "v") == {2: (text,), 3: ('5" disk',)}


# Both parsers -------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [b"a", b"b,c", b",", b"\n", b"\r\n", b"\r", b" ", b"\t", b"\xff", "é".encode(), b"\0", b"1"]
    + [b'"', b'"', b'"a"', b',"b\nc",', b'""', "\u2028\x0b\x85".encode()]
)


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=40).map(b"".join), st.integers(1, 60))
def test_both_parsers_and_all_cuts_read_the_same_rows(body: bytes, block_bytes: int) -> None:
    """A file means the same however its bytes arrive: rows keep their numbers."""
    content = b"u,v\n" + body
    whole = rows(content, "v", "u")
    for records in blocks_of_records(io.BytesIO(content)):
        slow = csv_format._by_python(records.content, ",")[0]
        if records.read is None:
            assert len(slow) == len(records)
            fast = csv_format._by_arrow(records, 2, [("v", 1), ("u", 0)])
            if fast is not None:
                plain = [csv_format._row(fields, 2, [1, 0]) for fields in slow]
                assert flat([lf.Lines(1, (), fast)]) == flat([lf.Lines(1, plain)])
    parts = blocks_of_records(io.BytesIO(content), ",", block_bytes)
    found: dict[int, object] = {}
    for part in parts:
        part_rows = [csv_format._row(fields, 2, [1, 0]) for fields in part.by_python()]
        found |= flat([lf.Lines(part.first, part_rows)])
    found.pop(1, None)
    whole.pop(1, None)
    assert found == whole


def test_sound_blocks_take_the_fast_way() -> None:
    for body in (b"1,a\r\n2,\xc3\xa9\r\n", b'1,"a\r\nb"\r\n2,"x, ""y"""\r\n'):
        (lines,) = read_csv(io.BytesIO(b"u,v\r\n" + body), ["v"])
        assert lines.table is not None and lines.table.num_rows == 2


@pytest.mark.parametrize(
    ("content", "ends"),
    [
        (b'"a\nb",c\nd', [7]),
        (b'a"b\n', None),
        (b'"a"b\n', None),
        (b' "a"\n', None),
        (b'"a" \n', None),
        (b'"a"\r\n"b"\rc', None),
        (b'"a"\r\n"b"\r\n', [4, 9]),
        (b'""\n"""a\n"""', [2]),
        (b'x,"open\n', []),
    ],
)
def test_where_records_end(content: bytes, ends: list[int] | None) -> None:
    found = csv_format.record_ends(content, ",")
    assert (None if found is None else found.tolist()) == ends


CELLS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=20),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(",;\t"),
)
def test_what_python_writes_is_read_back(
    written: list[tuple[str, str]], end: str, quoting: int, delimiter: str
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=quoting, delimiter=delimiter)
    writer.writerow(["u", "v", "w"])
    writer.writerows((u, v, "w") for u, v in written)
    found = rows(text.getvalue().encode(), "u", "v", delimiter=delimiter)
    assert list(found.values()) == [(u or None, v or None) for u, v in written]
    assert list(found) == list(range(2, len(written) + 2))


def test_garbage_invents_nobody() -> None:
    """Bytes of anything below a sound header: at most one row for each of their lines."""
    noise = np.random.default_rng(3).integers(0, 256, 200_000, dtype=np.uint8).tobytes()
    found = rows(b"u,v\n" + noise, "u", "v")
    assert len(found) <= noise.count(b"\n") + 1
    assert sum(isinstance(row, tuple) for row in found.values()) < 50
