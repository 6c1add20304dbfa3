"""`beam-ldp audit-interactivity`: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from beam_ldp.pipelines.cli import group
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import ReleaseTerms, encode_envelope
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.research.interactivity.command import CLEAN, FLAGGED, MALFORMED
from tests.memory_files import SCHEME, STORE

pytestmark = pytest.mark.e2e

ORACLE = KRandomizedResponse(4, 1.5)


def write(path: Path, *records: dict[str, Any]) -> str:
    row = {"randomizer": "rr", "round": 0, "epsilon": 1.0, "output": 1, "assign_seq": 0}
    told = [json.dumps({"seq": i, "user": i, **row, **one}) for i, one in enumerate(records)]
    path.write_text("\n".join(told) + "\n")
    return str(path)


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["audit-interactivity", *arguments])


def shown(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def test_a_clean_log(tmp_path: Path) -> None:
    log = write(tmp_path / "log", {}, {})
    done = audit(log, "--epsilon", "1", "--output", str(tmp_path / "out"))
    assert done.exit_code == CLEAN, done.output
    for said in ("people 2", "most 1, mean 1", "sequentially interactive", "noninteractive yes",
                 "clean nobody above epsilon 1", "k at least 1 (this log)"):  # fmt: skip
        assert said in shown(done)
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    printed = audit(log, "--epsilon", "1", "--format", "json")
    assert json.loads(printed.stdout) == written and written["clean"]
    assert written["num_people"] == 2 and written["k_hat"] == 1.0
    assert (tmp_path / "out" / "audit.png").read_bytes().startswith(b"\x89PNG")
    assert audit(log, "--epsilon", "1", "--output", str(tmp_path / "out")).exit_code == MALFORMED


def test_a_log_that_is_named_twice_or_audited_twice_says_the_same(tmp_path: Path) -> None:
    log = write(tmp_path / "log", {}, {"user": 0, "round": 1})
    said = [audit(*logs, "--epsilon=2", "--format=json") for logs in ((log,), (log,), (log, log))]
    assert {one.exit_code for one in said} == {CLEAN} and len({one.stdout for one in said}) == 1
    assert audit(log, str(tmp_path), "--epsilon=2", "--format=json").stdout == said[0].stdout


def test_over_budget_is_one(tmp_path: Path) -> None:
    again = {"user": 0, "randomizer": "other", "assign_seq": 1}
    log = write(tmp_path / "log", {}, again)
    done = audit(log, "--epsilon", "1.5")
    assert done.exit_code == FLAGGED
    assert "over budget 1 people above epsilon 1.5" in shown(done)
    assert "fully interactive" in shown(done) and "no: 2 waves" in shown(done)
    assert "people asked again 0 of 1 could have been asked once" in shown(done)
    # one follow-up: 1 + e^1.5 fresh people on average, the 95 % quantile of a geometric law is 15
    assert "everybody asked once 6 people expected, at most 16 in 19 of 20 cases" in shown(done)
    # n (1 + (1 + e^1.5) k 1.5 / (1 - e^-1.5)) with k = 4/3, and 2 e^1.5 in place of 1 + e^1.5
    assert "cases; at epsilon 3 15, and 24 as the paper does it" in shown(done)
    assert audit(log, "--epsilon", "2").exit_code == CLEAN


def test_an_answer_drawn_anew_is_one(tmp_path: Path) -> None:
    log = write(tmp_path / "log", {}, {"user": 0, "output": 0})
    done = audit(log, "--epsilon", "5")
    assert done.exit_code == FLAGGED and "re-randomized on retry 1 answers" in shown(done)
    assert audit(write(tmp_path / "log", {}, {"user": 0}), "--epsilon", "1").exit_code == CLEAN


def test_what_is_malformed_is_two_and_says_where(tmp_path: Path) -> None:
    log = write(tmp_path / "log", {}, {"epsilon": -1})
    done = audit(log, "--epsilon", "1")
    assert done.exit_code == MALFORMED and "log: line 2: epsilon must be in" in shown(done)
    for wrong, said in (
        ([str(tmp_path / "none"), "--epsilon=1"], "there is no such file"),
        ([log, "--epsilon=0"], "epsilon must be in"),
        ([log, "--epsilon=1", "--memory=much"], "size such as 512M"),
        ([log, "--epsilon=1", "--memory=1M"], "memory must be at least 64 MiB"),
        ([log, "--epsilon=1", f"--kernels={tmp_path}/none"], "--kernels"),
        ([log, "--epsilon=1", f"--kernels={log}"], "--kernels"),
    ):
        done = audit(*wrong)
        assert done.exit_code == MALFORMED and said in shown(done), done.output


def test_a_folder_of_logs_a_plan_and_kernels(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for i in range(2):
        write(tmp_path / "logs" / f"{i}", {"user": i, "assign_seq": None})
    unknown = audit(f"{tmp_path}/logs", "--epsilon", "1")
    assert unknown.exit_code == CLEAN and "unknown (no provenance)" in shown(unknown)
    plan = write(tmp_path / "plan", {"user": 0}, {"user": 1})
    kernels = tmp_path / "kernels.json"
    kernels.write_text(json.dumps({"rr": [[0.7310585786, 0.2689414214],
                                          [0.2689414214, 0.7310585786]]}))  # fmt: skip
    told = [f"{tmp_path}/logs/*", "--epsilon=1", f"--plan={plan}", f"--kernels={kernels}"]
    done = audit(*told, "--memory", "64MiB")
    assert done.exit_code == CLEAN, done.output
    assert "by likelihoods most 1 of epsilon was told" in shown(done)
    assert "yes, by the plan" in shown(done) and "1 by the plan" in shown(done)
    kernels.write_text(json.dumps({"rr": [[0.9, 0.1], [0.1, 0.9]]}))
    low = audit(*told)
    assert low.exit_code == FLAGGED and "declared below minimal 1" in shown(low)


def test_logs_of_a_store_are_audited_as_local_ones(tmp_path: Path) -> None:
    """Also reports of devices, by the release.json beside them; errors name the originals."""
    write(tmp_path / "log", {}, {"user": 0, "round": 1})
    content = (tmp_path / "log").read_bytes()
    folder = f"{SCHEME}://bucket/asked"
    terms = ReleaseTerms(ORACLE, ReleaseIdentity("a", "b", ORACLE.config_digest().hex()))
    sent = encode_envelope(terms, ORACLE.randomize(np.array([2])))
    stored = {
        f"{folder}/one.jsonl": content,
        f"{folder}/two.jsonl": content,
        f"{folder}-sent/1.ldp": sent,
        f"{folder}-broken/log": content[:-9],
        f"{folder}-sent/release.json": json.dumps(ReleaseFile(terms).to_json()).encode(),
    }
    STORE.update({path: (told, 0.0) for path, told in stored.items()})
    local = json.loads(audit(f"file://{tmp_path}/log", "--epsilon=2", "--format=json").stdout)
    for told in (folder, f"{folder}/*.jsonl"):
        found = json.loads(audit(told, "--epsilon=2", "--format=json").stdout)
        assert found.pop("num_records") == 4 and found.pop("num_retries") == 2
        same = {name: value for name, value in local.items() if name in found}
        assert {**found, "randomizers": 0} == {**same, "randomizers": 0}
    for told in (f"{folder}-sent", f"{folder}-sent/1.ldp"):
        envelopes = audit(told, "--epsilon=2", "--format=json")
        assert json.loads(envelopes.stdout)["anonymous"] and envelopes.exit_code == CLEAN
    broken = audit(f"{folder}-broken", "--epsilon=2")
    assert broken.exit_code == MALFORMED
    assert f"{folder}-broken/log: line 2: is no JSON" in shown(broken)
    assert "there is no such file" in shown(audit(f"{folder}-none", "--epsilon=2"))


def test_people_are_not_named(tmp_path: Path) -> None:
    log = write(tmp_path / "log", {"user": "ada lovelace"}, {"user": "ada lovelace", "output": 0})
    done = audit(log, "--epsilon", "0.5", "--format", "json", "--output", str(tmp_path / "out"))
    assert done.exit_code == FLAGGED and "lovelace" not in done.output
    assert b"lovelace" not in (tmp_path / "out" / "audit.json").read_bytes()
