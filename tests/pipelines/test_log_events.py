"""The log: a fixed list of events, the same in the page, and no data in any of it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from beam_ldp import log_events
from beam_ldp.log_events import EVENTS, LONGEST_NAME, RELEASED, SETTLED, say
from beam_ldp.pipelines import collect, frequency, mean, randomize
from beam_ldp.pipelines.programs import DONE, FAILED, MISUSED, NOTHING_RELEASED

ROOT = Path(__file__).resolve().parents[2]
PLANTED = ("planted-value", "planted-person", "planted-group", "31337.0625")
KEY = b"planted-key-planted-key-planted-key"


@pytest.mark.exact
def test_the_page_lists_what_there_is() -> None:
    page = (
        (ROOT / "docs" / "monitoring.md").read_text().split("\n## The log\n")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (.+?) \| (.+?) \|$", page, re.M)
    assert rows == [
        (e.name, logging.getLevelName(e.level), ", ".join(f"`{f}`" for f in e.fields), e.meaning)
        for e in EVENTS
    ]
    assert len({event.name for event in EVENTS}) == len(EVENTS)


@pytest.mark.exact
def test_every_event_is_said_somewhere_and_nothing_else_is_logged() -> None:
    folders = ("beam_ldp", "pipelines", "mlflow/mlflow_ldp")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    names = [name for name, value in vars(log_events).items() if value in EVENTS]
    assert len(names) == len(EVENTS)
    for name in names:
        assert any(f"log_events.{name}" in text for text in texts.values()), name
    spoken = r"getLogger\([^)]*\)\s*\.(?:log|debug|info|warning|error|exception)\("
    assert [name for name, text in texts.items() if re.search(spoken, text)] == [
        "beam_ldp/log_events.py"
    ]


@pytest.mark.exact
def test_an_event_has_its_fields_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "beam_ldp")
    say(SETTLED, run_id="x" * 500)
    (record,) = caplog.records
    assert record.name == "beam_ldp" and record.levelname == "INFO"
    assert record.ldp_event == "budget.settled"  # type: ignore[attr-defined]
    assert record.ldp_fields == {"run_id": "x" * LONGEST_NAME}  # type: ignore[attr-defined]
    assert record.getMessage() == f'budget.settled run_id="{"x" * LONGEST_NAME}"'
    for fields in ({}, {"run_id": "a", "more": 1}, {"other": "planted-value"}):
        with pytest.raises(TypeError, match="has the fields run_id") as error:
            say(SETTLED, **fields)  # type: ignore[arg-type]
        assert "planted" not in str(error.value)
    with pytest.raises(TypeError, match="run_id of budget.settled must be a number") as error:
        say(SETTLED, run_id=["planted-value"])  # type: ignore[arg-type]
    assert "planted" not in str(error.value)


def everything(caplog: pytest.LogCaptureFixture) -> str:
    """All that any logger was given, with stacks of errors."""
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join(formatter.format(r) + repr(vars(r)) for r in caplog.records)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = [r for r in caplog.records if hasattr(r, "ldp_event")]
    return [(r.ldp_event, r.ldp_fields) for r in found]  # type: ignore[attr-defined]


@pytest.mark.e2e
def test_no_planted_value_is_in_any_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lists, groups, numbers, devices and collectors; releases, refusals and failures: nothing
    that was planted in the data is given to any logger, Beam's included, and the events come in
    their order."""
    lines = ["c,uid,g,x\n"]
    lines += [f"{PLANTED[0]},{PLANTED[1]}-{i},{PLANTED[2]},{PLANTED[3]}\n" for i in range(300)]
    lines += [",,,\n", f"{PLANTED[0]},,,{PLANTED[0]}\n"]
    (tmp_path / "p.csv").write_text("".join(lines))
    (tmp_path / "d.txt").write_text("a\nb\n")
    (tmp_path / "key").write_bytes(KEY)
    common = [f"--input={tmp_path}/p.csv", "--user-id=uid"]
    listed = ["--column=c", f"--domain={tmp_path}/d.txt", "--local-epsilon=2"]
    release = ["--delta=1e-6", "--min-reports=200", "--no-mlflow", "--no-ledger"]
    number = ["--column=x", "--radius=50000", "--local-epsilon=2"]
    memoized = [f"--memoize-key-file={tmp_path}/key", "--release-id=r", "--dataset=d"]
    caplog.set_level(logging.DEBUG)
    programs: list[tuple[Any, list[str], int]] = [
        (frequency.main, [*common, *listed, *release, "--output={}/a"], DONE),
        (frequency.main, [*common, *listed, *release, *memoized, "--group-by=g",
                          f"--groups={tmp_path}/d.txt", "--output={}/b"], DONE),
        (mean.main, [*common, *number, *release, "--output={}/c"], DONE),
        (mean.main, [*common, "--column=x", "--radius=1", "--outside=raise", "--local-epsilon=2",
                     *release, "--output={}/d"], FAILED),
        (frequency.main, [*common, *listed, *release, "--min-reports=900", "--output={}/e"],
         NOTHING_RELEASED),
        (frequency.main, [*common, *listed, *release, "--delta=2", "--output={}/f"], MISUSED),
        (randomize.main, [*common, *listed, *memoized, "--output={}/g"], DONE),
        (collect.main, ["--reports={}/g", "--release={}/g/release.json",
                        f"--domain={tmp_path}/d.txt", *release, "--output={}/h"], DONE),
    ]  # fmt: skip
    for program, flags, code in programs:
        assert program([flag.format(tmp_path) for flag in flags]) == code, flags
    text = everything(caplog)
    for planted in (*PLANTED, KEY.decode()):
        assert planted not in text, planted
    events = [name for name, _ in said(caplog)]
    assert events == [
        "run.started", "run.released", "run.started", "run.released", "run.started",
        "run.released", "run.started", "run.failed", "run.started", "run.nothing_released",
        "run.refused", "run.started", "reports.written", "run.started", "run.released",
    ]  # fmt: skip
    first = dict(said(caplog)[1][1])
    told = json.loads((tmp_path / "a" / "privacy.json").read_text())
    assert first == {"program": "frequency"} | {
        name: told[name] for name in RELEASED.fields if name != "program"
    }


@pytest.mark.e2e
def test_budgets_are_reserved_and_settled_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from beam_ldp.ledger import BudgetLedger

    url = f"sqlite:///{tmp_path}/ledger.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("people", epsilon=10.0, delta=1e-5, local_epsilon=10.0)
    (tmp_path / "p.csv").write_text("c\n" + "a\n" * 300)
    (tmp_path / "d.txt").write_text("a\nb\n")
    caplog.set_level(logging.INFO, "beam_ldp")
    flags = [f"--input={tmp_path}/p.csv", "--column=c", f"--domain={tmp_path}/d.txt",
             "--local-epsilon=2", "--delta=1e-6", "--min-reports=200", "--no-mlflow",
             f"--ledger={url}", "--dataset=people", "--run-id=monday", "--one-row-per-person",
             f"--output={tmp_path}/out"]  # fmt: skip
    assert frequency.main(flags) == DONE
    found = said(caplog)
    assert [name for name, _ in found] == [
        "budget.reserved", "run.started", "budget.settled", "run.released",
    ]  # fmt: skip
    assert found[0][1] == {"program": "frequency", "run_id": "monday"}
    assert found[2][1] == {"run_id": "monday"}
