"""Combinations of flags that no program takes: each is refused by name, before data are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beam_ldp.pipelines import frequency
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.run import MISUSED
from beam_ldp.pipelines.streams.flags import check_stream
from tests.pipelines.test_stream import parsed

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--group-by", "country", "--groups", "g.txt"], "--group-by is not for --stream"),
        (["--groups", "g.txt"], "--groups is not for --stream"),
        (["--column", "other"], "--column must be given once with --stream"),
        (["--bins", "0:10:5"], "--bins is not for --stream"),
        (["--bins", "0:10:5", "--quantiles", "0.5"], "--bins is not for --stream"),
        (["--quantiles", "0.5"], "--quantiles is not for --stream"),
        (["--between", "0:5"], "--between is not for --stream"),
        (["--fan-out", "2"], "--fan-out is not for --stream"),
        (["--people-store", "d"], "--people-store is not for --stream"),
    ],
)
def test_streams_ask_one_question_of_one_list(flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_stream(parsed(*flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--column=c", "--column=x", "--bins=0:10:5"], "--bins is about one --column"),
        (["--column=c", "--column=x", "--domain={}/d.txt", "--bins=0:10:5"], "exclude each other"),
        (["--column=x", "--domain={}/d.txt", "--bins=0:10:5"], "exclude each other"),
        (["--column=x", "--column=x", "--domain={}/d.txt"], "names a column twice"),
        (["--column=c", "--column=x", "--domain={0}/d.txt", "--domain={0}/d.txt",
          "--domain={0}/d.txt"], "3 lists for 2 columns"),
        (["--column=c", "--domain={}/d.txt", "--quantiles=0.5"], "--quantiles needs --bins"),
        (["--column=c", "--column=x", "--bins=0:10:5", "--quantiles=0.5"],
         "--bins is about one --column"),
    ],
)  # fmt: skip
def test_lists_and_bins_are_asked_apart(
    flags: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "p.csv").write_text("c,x\na,1\n")
    (tmp_path / "d.txt").write_text("a\nb\n")
    more = [f"--input={tmp_path}/p.csv", "--local-epsilon=1", "--delta=1e-6", "--min-reports=1",
            f"--output={tmp_path}/out", "--no-ledger"]  # fmt: skip
    assert frequency.main([*more, *(flag.format(tmp_path) for flag in flags)]) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
