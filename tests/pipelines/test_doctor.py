"""The doctor: sound here, and it notices what it is there to notice."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from beam_ldp.pipelines import doctor
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.randomness import FreshWords, UserRandomness
from tests.identities import identity

pytestmark = pytest.mark.exact


def faults(findings) -> list[str]:
    return [finding.name for finding in findings if finding.status == "fault"]


def test_this_installation_is_sound(monkeypatch):
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    done = CliRunner().invoke(doctor.doctor, ["--format", "json"])
    assert done.exit_code == 0, done.output
    findings = json.loads(done.output)["findings"]
    named = {finding["name"]: finding for finding in findings}
    assert set(frequency.__all__) <= set(named)
    assert named["numpy"]["detail"] == np.__version__
    assert not [finding for finding in findings if finding["status"] == "fault"]


def test_the_table_has_a_line_for_each_area():
    done = CliRunner().invoke(doctor.doctor)
    assert done.exit_code == 0
    for area in ("installed", "randomness", "mechanisms", "engines", "records"):
        assert area in done.output


def test_a_version_out_of_range_is_a_fault(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "1.20" if name == "numpy" else real(name)
    )
    assert faults(doctor.installed()) == ["numpy"]


def test_an_absent_need_is_a_fault_and_an_absent_extra_is_not(monkeypatch):
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("scipy", "mlflow"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = {finding.name: finding.status for finding in doctor.installed()}
    assert found["scipy"] == "fault" and found["mlflow"] == "absent"


@pytest.mark.parametrize(("kept", "status"), [(True, "ok"), (False, "absent")])
def test_it_says_when_python_compiles_everything_anew(kept, status, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", not kept)
    (found,) = [one for one in doctor.installed() if one.name == "compiled modules"]
    assert found.status == status
    assert ("PYTHONDONTWRITEBYTECODE" in found.detail) != kept


def test_one_sided_words_are_noticed(monkeypatch):
    real = FreshWords.words
    # One bit in 64 forced to one: 32 standard deviations at this many words.
    one = np.uint64(1)
    monkeypatch.setattr(FreshWords, "words", lambda self, *where: real(self, *where) | one)
    assert "fresh words are balanced" in faults(doctor.randomness())


def test_repeated_words_are_noticed(monkeypatch):
    words = np.random.default_rng(1).integers(0, 2**64, (1 << 16, 1), np.uint64)
    monkeypatch.setattr(FreshWords, "words", lambda self, *where: words)
    assert faults(doctor.randomness()) == ["fresh words do not repeat"]


def test_memoized_words_that_ignore_the_release_are_noticed(monkeypatch):
    real = UserRandomness.words_for

    def words_for(self, digest, values):
        one = UserRandomness(self.key, self.user_ids, identity("always"))
        return real(one, digest, values)

    monkeypatch.setattr(UserRandomness, "words_for", words_for)
    assert faults(doctor.randomness()) == ["memoized words"]


def test_a_mechanism_off_its_channel_is_noticed(monkeypatch):
    real = KRandomizedResponse.randomize

    def randomize(self, values, rng=None):
        reports = real(self, values, rng)
        # One report in eight is the truth: 17 standard deviations, where 5.7 are noticed.
        reports[::8] = values[::8]
        return reports

    monkeypatch.setattr(KRandomizedResponse, "randomize", randomize)
    assert faults(doctor.mechanisms()) == ["KRandomizedResponse"]


def test_an_overspent_budget_is_noticed(monkeypatch):
    monkeypatch.setattr(KRandomizedResponse, "log_ratio_max", lambda self: 1.0001)
    assert faults(doctor.mechanisms()) == ["KRandomizedResponse"]


def test_channels_are_tested_where_chi_square_holds():
    for name in frequency.__all__:
        channel = getattr(frequency, name)(4, 1.0).channel()[:, 1]
        expected, _ = doctor._by_probability(channel, np.ones(len(channel)))
        assert expected.sum() == pytest.approx(1)
        assert doctor._REPORTS * expected[expected > 0].min() > 50, name


def test_engines_that_answer_and_that_do_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_port = f"127.0.0.1:{server.getsockname()[1]}"
        assert not faults(doctor.engines((open_port,)))
    assert faults(doctor.engines((open_port, "nonsense"))) == [open_port, "nonsense"]


def test_a_ledger_is_read_and_its_password_never_shown(tmp_path: Path, monkeypatch):
    pytest.importorskip("sqlalchemy")
    from beam_ldp.ledger import BudgetLedger

    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    BudgetLedger.create(url)
    (found,) = doctor.records(url)
    assert found.status == "ok" and "rows" in found.detail
    secret = "postgresql+psycopg://someone:tiger@127.0.0.1:1/none"
    done = CliRunner().invoke(doctor.doctor, ["--ledger", secret, "--format", "json"])
    assert done.exit_code == 1 and "tiger" not in done.output
    assert "ledger" in faults(doctor.records(f"sqlite:///{tmp_path / 'absent.db'}"))
