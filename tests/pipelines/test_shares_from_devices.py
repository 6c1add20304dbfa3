"""A mean in shares whose envelopes come from devices: question, edges, collector, end to end."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.auditing import audit
from beam_ldp.pipelines import collect, mean, randomize
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers import wire
from beam_ldp.randomizers.identity import ReleaseIdentity, digest_of
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.randomizers.walsh_hadamard import hadamard, public_signs
from beam_ldp.randomizers.wire import ReleaseTerms, decode_envelope, encode_envelope
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.verifier import verify
from tests.pipelines.test_frequency import FILES, record
from tests.pipelines.test_mean import assert_close

pytestmark = pytest.mark.e2e

PEOPLE, LEAST, DIMENSION = 600, 540, 8
EPSILON, DELTA = 1.0, 1e-6
ASKED = [
    "--column=x0,x1,x2,x3,x4,x5,x6,x7", "--user-id=uid", "--one-row-each", "--norm=l2",
    "--radius=2", f"--epsilon={EPSILON}", f"--delta={DELTA}", f"--expected-users={PEOPLE}",
    "--honest-fraction=0.9", "--trust-shuffler", "--dataset=open", "--release-id=week-47",
]  # fmt: skip


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    noise = np.random.default_rng(3).uniform(-0.2, 0.2, (PEOPLE, DIMENSION))
    return noise + np.linspace(-0.5, 0.5, DIMENSION)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Path:
    """A published question; two edges, each with half of the people, that answered it."""
    folder = tmp_path_factory.mktemp("devices")
    names = [f"x{j}" for j in range(DIMENSION)]
    for name, people in (("one", range(0, 300)), ("two", range(300, PEOPLE))):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["uid", *names])
            rows.writerows([uid, *vectors[uid].tolist()] for uid in people)
    assert mean.main(["--publish", *ASKED, f"--output={folder}/question"]) == DONE
    for name in ("one", "two"):
        assert edge(folder, name, f"{folder}/{name}") == DONE
    BudgetLedger.create(f"sqlite:///{folder}/privacy.db").set_budget(
        "open", epsilon=9.0, delta=1e-5
    )
    return folder


def edge(place: Path, name: str, out: str, *more: str) -> int:
    trusting = [] if "--no-trust" in more else ["--trust-shuffler"]
    return randomize.main([
        f"--release={place}/question/release.json", f"--input={place}/{name}.csv",
        "--user-id=uid", f"--output={out}", *trusting,
        *(flag for flag in more if flag != "--no-trust"),
    ])  # fmt: skip


def gather(place: Path, out: Path, *more: str, reports: str = "{0}/one {0}/two") -> int:
    return collect.main([
        *(f"--reports={folder}" for folder in reports.format(place).split()),
        f"--release={place}/question/release.json", f"--output={out}", "--no-mlflow", *more,
    ])  # fmt: skip


def terms_of(place: Path) -> ReleaseTerms:
    return ReleaseFile.from_json(json.loads((place / "question/release.json").read_text())).terms


def envelopes_of(place: Path, terms: ReleaseTerms) -> list[bytes]:
    data = b"".join(path.read_bytes() for path in sorted(place.glob("[ot][nw][eo]/*.ldp")))
    size = terms.envelope_bytes(1)
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.fixture(scope="module")
def released(place: Path) -> Path:
    charged = [f"--ledger=sqlite:///{place}/privacy.db", "--run-id=monday"]
    assert gather(place, place / "out", *charged) == DONE
    return place / "out"


# What comes out ---------------------------------------------------------------------------------


@pytest.mark.statistical
def test_the_mean_is_that_of_the_vectors_with_a_curators_error(
    place: Path, released: Path, vectors: np.ndarray
) -> None:
    """Within 5 standard errors (5e-6), of which a curator would have 1 / sqrt(1.3): one share lost
    or counted twice would be a random number of a hundred."""
    assert_close(released, vectors.mean(axis=0))
    found = record(released)
    mechanism = terms_of(place).randomizer
    assert isinstance(mechanism, SplitAndMixMean) and mechanism.to_config() == found["mechanism"]
    curator = DIMENSION * mechanism.curator_variance(EPSILON, DELTA, PEOPLE)
    assert found["mean_squared_error"] / curator < 1.3  # 0.9 honest of 0.9 arriving


@pytest.mark.statistical
def test_the_sum_has_the_law_of_the_noise(place: Path, vectors: np.ndarray) -> None:
    """Each envelope added up alone, as the collector could: what it sees but the vector is one
    person's noise. 4,800 squares: their mean within 5 standard deviations of one (6e-7).
    """
    terms = terms_of(place)
    mechanism, data = terms.randomizer, envelopes_of(place, terms)
    assert isinstance(mechanism, SplitAndMixMean) and len(data) == PEOPLE
    reports = np.vstack([decode_envelope(terms, one).reports for one in data])
    sums = reports.reshape(PEOPLE, DIMENSION, -1).sum(axis=2, dtype=np.int64)
    half = mechanism.modulus // 2
    alone = (sums + half) % mechanism.modulus - half
    held = hadamard(vectors, public_signs(DIMENSION, mechanism.rotation_seed or 0))
    variance = mechanism.noise_deviation**2 + (held / mechanism.cell % 1 * (
        1 - held / mechanism.cell % 1))  # fmt: skip
    squares = (alone - held / mechanism.cell) ** 2 / variance
    assert abs(squares.mean() - 1) < 5 * math.sqrt(2 / squares.size)
    mean_of_all = mechanism.estimate(mechanism.accumulate(reports), PEOPLE)
    error = (mean_of_all.value - vectors.mean(axis=0)) / mean_of_all.standard_error
    assert (np.abs(error) < 5).all()


def test_the_record_and_the_ledger_hold_what_was_promised(place: Path, released: Path) -> None:
    found = record(released)
    assert sorted(path.name for path in released.iterdir()) == FILES
    assert found["epsilon"] <= EPSILON == found["target_epsilon"] and found["delta"] == DELTA
    assert (found["min_reports"], found["honest_fraction"]) == (LEAST, 0.9)
    assert found["honest_reports"] == 540 and found["local_epsilon"] is None
    assert found["trust_shuffler"] is True and found["memoized"] is False
    charge = BudgetLedger(f"sqlite:///{place}/privacy.db").charge("monday")
    assert charge.status == "settled" and charge.local_epsilon == float("inf")
    assert charge.settled == found["event"] and charge.about["trust_shuffler"] == "yes"
    assert audit(BudgetLedger(f"sqlite:///{place}/privacy.db").rows()).clean
    told = verify.verify(found)
    assert told.code == verify.NOTHING and "only a shuffler hides" in told.text


def test_the_statement_says_who_is_trusted_and_what_a_forger_can_do(released: Path) -> None:
    text = (released / "privacy.md").read_text()
    _, first, *_ = text.split("\n\n")
    assert first.startswith("**Nobody here is protected unless the shuffler")
    said = " ".join(text.split())
    for expected in (
        "There is no local epsilon (it is infinite)", "**The collector is the shuffler here**",
        "against whoever else can read the envelopes, nothing protects",
        "there is no bound on what one forged envelope does but that of the sums",
        "where honest vectors have at most 2", "Every number below 2^",
        "600 envelopes arrived complete", "Everybody who sent a report is one person",
        "below 540 arrivals nothing would have been released",
    ):  # fmt: skip
        assert expected in said, expected
    for wrong in ("by the local epsilon alone", "is held to the local"):
        assert wrong not in said, wrong


def test_nothing_is_written_of_which_shares_came_together(place: Path, released: Path) -> None:
    """What a collection leaves holds the shares of nobody, in any order."""
    terms = terms_of(place)
    payloads = [one[44:56] for one in envelopes_of(place, terms)[:50]]
    left = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".ldp"]
    assert released / "privacy.json" in left
    for path in left:
        content = path.read_bytes()
        assert not any(payload in content for payload in payloads), path


# What arrives -----------------------------------------------------------------------------------


def with_envelopes(place: Path, folder: Path, data: list[bytes]) -> str:
    folder.mkdir()
    (folder / "received.ldp").write_bytes(b"".join(data))
    return str(folder)


def test_torn_nameless_and_repeated_envelopes_count_whole_or_not(
    place: Path, tmp_path: Path, vectors: np.ndarray
) -> None:
    """Half an envelope, one without id, one of two ids: refused whole, and the mean is right."""
    terms = terms_of(place)
    data = envelopes_of(place, terms)
    nameless = data[1][:24] + bytes(16) + data[1][40:-4]
    broken = [data[0][:-20], nameless + wire.checksum(nameless), data[2], data[2]]
    folder = with_envelopes(place, tmp_path / "received", [*broken, *data[3:]])
    assert gather(place, tmp_path / "out", "--no-ledger", reports=folder) == DONE
    found = record(tmp_path / "out")
    assert found["num_reports"] == PEOPLE - 2 and found["num_bad_rows"] == 3
    listed = (tmp_path / "out.private" / "bad_rows.jsonl").read_text()
    for reason in (wire.TOO_SHORT, wire.WITHOUT_ID, "sent before"):
        assert reason in listed
    reports = np.vstack([decode_envelope(terms, one).reports for one in data[2:]])
    expected = terms.randomizer.estimate(terms.randomizer.accumulate(reports), PEOPLE - 2)  # type: ignore[attr-defined]
    rows = list(csv.DictReader((tmp_path / "out" / "estimates.csv").open()))
    np.testing.assert_allclose([float(row["mean"]) for row in rows], expected.value, rtol=1e-9)


def test_a_forged_envelope_is_not_refused_and_a_wild_mean_is_said(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A large shift is warned of, though each coordinate is possible; a small one nobody sees."""
    terms = terms_of(place)
    mechanism, data = terms.randomizer, envelopes_of(place, terms)
    assert isinstance(mechanism, SplitAndMixMean)
    reports = np.vstack([decode_envelope(terms, one).reports for one in data])
    honest = mechanism.estimate(mechanism.accumulate(reports), PEOPLE).value
    for shift, warned in ((mechanism.modulus // 4, True), (60 * mechanism.cells, False)):
        forged = reports[:1].copy()
        forged[0, 0] = (int(forged[0, 0]) + shift) % mechanism.modulus
        out = tmp_path / f"out {shift}"
        folder = with_envelopes(
            place, tmp_path / f"{shift}", [*data[1:], encode_envelope(terms, forged)]
        )
        capsys.readouterr()
        assert gather(place, out, "--no-ledger", reports=folder) == DONE
        rows = list(csv.DictReader((out / "estimates.csv").open()))
        moved = np.linalg.norm([float(row["mean"]) for row in rows] - honest)
        assert moved == pytest.approx(shift * mechanism.cell / PEOPLE, rel=1e-6)
        said = " ".join((out / "privacy.md").read_text().split())
        assert ("the mean is longer than any of honest vectors" in said) is warned


def test_too_few_are_withheld(place: Path, tmp_path: Path, capsys: Any) -> None:
    assert gather(place, tmp_path / "out", "--no-ledger", reports="{0}/one") == NOTHING_RELEASED
    assert "300 reports received, --min-reports is 540" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_an_edge_sees_what_is_promised_before_it_answers(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that somebody published may promise little."""
    assert edge(place, "one", f"{tmp_path}/out", "--dry-run", "--format=json") == DONE
    assert "local epsilon infinite, epsilon 1 at delta = 1e-06" in capsys.readouterr().out


# What is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--no-trust"], "asks for shares, which protect nobody unless whoever collects"),
        (["--column=x0,x1"], "--column: "),
        (["--memoize-key-file=key"], "--memoize-key-file: --release says it, or it does not go"),
        (["--epsilon=3"], "--epsilon: --release says it"),
        (["--local-epsilon=3"], "--local-epsilon: --release says it"),
        (["--reports-per-envelope=4"], "--reports-per-envelope: --release says it"),
    ],
)
def test_what_an_edge_refuses(
    more: list[str], said: str, place: Path, tmp_path: Path, capsys: Any
) -> None:
    assert edge(place, "one", f"{tmp_path}/out", *more) == MISUSED
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--min-reports=539"], "--min-reports must be at least 540, as "),
        (["--honest-fraction=0.95"], "--honest-fraction must be at most 0.9, as "),
        (["--epsilon=1.5"], "--epsilon must be at most 1.0, as "),
        (["--delta=1e-5"], "--delta must be at most 1e-06, as "),
        (["--allow-over-target"], "promises people a privacy cost"),
        (["--shuffle-output=reports"], "--shuffle-output must be statistic: shares are added up"),
        (["--frozen-values"], "--frozen-values is for a second publication of the same reports"),
    ],
)
def test_a_collector_keeps_the_promise(
    more: list[str], said: str, place: Path, tmp_path: Path, capsys: Any
) -> None:
    assert gather(place, tmp_path / "out", *more) == MISUSED
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--input=rows.csv"], "--input is for a mean of rows: with --publish devices answer"),
        (["--column=x*"], "--column must name each column once, without globs"),
        (["--mechanism=L2Mean"], "--publish is for shares, and L2Mean sends none"),
    ],
)
def test_what_cannot_be_published(more: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    named = {flag.split("=")[0] for flag in more}
    asked = [flag for flag in ASKED if flag.split("=")[0] not in named]
    assert mean.main(["--publish", *asked, *more, f"--output={tmp_path}/out"]) == MISUSED
    assert said in " ".join(capsys.readouterr().err.split())


LIES = {
    "too little noise": lambda told: {**told, "epsilon": 0.5},
    "too few people": lambda told: {**told, "min_reports": 200},
    "fewer honest ones": lambda told: {**told, "honest_fraction": 0.5},
    "no delta": lambda told: {**told, "delta": 0.0},
    "something else": lambda told: {**told, "more": 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_question_that_promises_more_than_its_noise_keeps_is_refused(
    lie: str, place: Path
) -> None:
    """Whoever publishes can write a digest anew; a device works out what the noise is worth."""
    told = json.loads((place / "question" / "release.json").read_text())
    asked = json.loads(told["questions"])
    asked["promised"] = LIES[lie](asked["promised"])
    with pytest.raises(ValueError, match=r"release terms contradict|questions|must|argument"):
        ReleaseFile.from_json(rewritten(told, json.dumps(asked, sort_keys=True,
                                                         separators=(",", ":"))))  # fmt: skip


def rewritten(told: dict[str, Any], questions: str) -> dict[str, Any]:
    """The file with other questions, whose digests are right."""
    values = digest_of(questions.encode()).hex()
    identity = ReleaseIdentity.from_json({**told["identity"], "values": values})
    return {**told, "questions": questions, "identity": identity.to_json(),
            "identity_digest": identity.digest.hex()}  # fmt: skip


def test_a_file_without_a_promise_is_refused(place: Path) -> None:
    told = json.loads((place / "question" / "release.json").read_text())
    identity = {**told["identity"], "values": ""}
    plain = rewritten(told, told["questions"])
    assert ReleaseFile.from_json(plain).to_json() == told
    made = ReleaseIdentity.from_json(identity)
    del told["questions"]
    with pytest.raises(ValueError, match="shares lack what people are promised"):
        ReleaseFile.from_json(
            {**told, "identity": made.to_json(), "identity_digest": made.digest.hex()}
        )


def test_an_edge_that_asks_itself_writes_the_question(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a published one: the same file, with its envelopes beside it. It says the promise."""
    given = [*ASKED, f"--input={place}/one.csv", f"--output={tmp_path}/out"]
    assert randomize.main(given) == DONE
    assert (
        "People are promised epsilon = 1 at delta = 1e-06 against readers of the mean, if 540 "
        "envelopes are added up together at least, 0.9 of them honest"
    ) in " ".join(capsys.readouterr().err.split())
    mine, published = tmp_path / "out/release.json", place / "question/release.json"
    assert mine.read_bytes() == published.read_bytes()
    shutil.rmtree(tmp_path / "out")
    assert randomize.main([*given, "--reports-per-envelope=2"]) == MISUSED
