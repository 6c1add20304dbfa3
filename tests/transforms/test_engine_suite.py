"""The suite of `engine_suite`: local runner with one process and with two, and the engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transforms.engine_suite import SUITE

LOCAL = {
    "one process": ["--runner=FnApiRunner"],
    "two processes": [
        "--runner=FnApiRunner",
        "--direct_num_workers=2",
        "--direct_running_mode=multi_processing",
    ],
}


@pytest.mark.pipeline
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_in_one_process(check, tmp_path: Path) -> None:
    check(LOCAL["one process"], tmp_path)


@pytest.mark.pipeline
@pytest.mark.slow
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_in_two_processes(check, tmp_path: Path) -> None:
    check(LOCAL["two processes"], tmp_path)


@pytest.mark.engines
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_on_an_engine(check, engine, tmp_path: Path) -> None:
    check(engine.options, tmp_path)
