"""Types that files declare for ids: refused before anything is read where they can hold none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.release.inputs.previews import check_id_types, read_heads
from beam_ldp.release.inputs.sources import ReadTable
from beam_ldp.settings import SettingError

pytestmark = pytest.mark.exact


def files(folder: Path, *kinds: pa.DataType | None) -> list[str]:
    paths = [str(folder / f"{i}.parquet") for i in range(len(kinds))]
    for path, kind in zip(paths, kinds):
        columns = {"v": pa.array(["a"])} | ({} if kind is None else {"uid": pa.nulls(1, kind)})
        pq.write_table(pa.table(columns), path)
    return paths


def check(paths: list[str]) -> None:
    check_id_types(read_heads(paths, ReadTable(paths, "parquet", "v", "uid").reader), "uid")


def test_types_that_hold_ids_may_be_mixed(tmp_path: Path) -> None:
    kinds = [
        pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.large_binary(), pa.decimal128(9, 0),
        pa.dictionary(pa.int32(), pa.string()), pa.null(), None,
    ]  # fmt: skip
    check(files(tmp_path, *kinds))


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.timestamp("us"), pa.date32(), pa.list_(pa.int64()), pa.decimal128(9, 2),
     pa.binary(16), pa.struct([("a", pa.int64())])],
    ids=str,
)  # fmt: skip
def test_a_type_that_holds_none_is_refused_with_both_types_named(
    tmp_path: Path, kind: pa.DataType
) -> None:
    with pytest.raises(SettingError) as caught:
        check(files(tmp_path, pa.int64(), kind))
    said = str(caught.value)
    assert f"1.parquet declares {str(kind).split('<')[0]}" in said
    assert "0.parquet int64 beside it" in said
    with pytest.raises(SettingError, match="cannot hold ids. Ids are integers"):
        check(files(tmp_path, kind))
