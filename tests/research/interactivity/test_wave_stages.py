"""Waves in pipelines: what is said is what the plan says, also after a stop; nobody twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.research.interactivity.auditing import audit_logs
from beam_ldp.research.interactivity.places import PlaceSearch
from beam_ldp.research.interactivity.quantiles import QuantileSearch
from beam_ldp.research.interactivity.sequential import (
    Ask,
    NotEnoughUsersError,
    protocol_epsilon,
)
from beam_ldp.research.interactivity.wave_stages import AskWave, WaveNoise, run_waves
from beam_ldp.research.interactivity.waves import (
    Answers,
    Progress,
    WavePlan,
    one_by_one,
    places_of,
)
from beam_ldp.transforms.elements.blocks import ShuffledBlock, ValueBlock
from beam_ldp.transforms.elements.stages import StageError
from tests.research.interactivity.test_sequential import response
from tests.transforms.helpers import local

pytestmark = pytest.mark.pipeline

IDS, KEY = np.arange(300), bytes(range(32))
DATA = (IDS % 3 > 0).astype(np.int64)


def rounds(answers: Answers) -> list[Ask]:
    """Three people, then one of them again, whom the answers choose."""
    if not answers:
        return [Ask(name, response(0.6)) for name in range(3)]
    return [Ask(sum(answers[0]) % 3, response(0.6))] if len(answers) == 1 else []


PLAN = WavePlan(rounds, protocol_epsilon(one_by_one(rounds)), beta=0.6, seed=4)


@pytest.fixture
def noise(tmp_path: Path) -> WaveNoise:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return WaveNoise("trips", "quantile-1", str(path))


def people(data: np.ndarray = DATA, ids: np.ndarray = IDS) -> Any:
    """Blocks of 70 people, in any order."""

    def blocks(pipeline: beam.Pipeline) -> beam.PCollection:
        parts = np.array_split(np.random.default_rng().permutation(len(ids)), 5)
        made = [ValueBlock(data[part], user_ids=ids[part]) for part in parts]
        return pipeline | beam.Create(made).with_output_types(ValueBlock)

    return blocks


def reference(plan: WavePlan, noise: WaveNoise, data: np.ndarray = DATA) -> Progress:
    """The same without a pipeline: all people in their order, and their words."""
    places = places_of(IDS, plan.seed)
    order, progress = np.argsort(places), Progress()
    while (wave := plan.wave(progress)) is not None:
        asked = order[progress.people : progress.people + wave.people]
        source = UserRandomness(KEY, IDS[asked], noise.of(wave))
        words = source.words_for(bytes.fromhex(wave.digest), data[asked])
        ranks = np.arange(wave.people)
        said = wave.reports(ranks, data[asked], words.words(0, len(asked), 1)[:, 0])
        told = wave.first_accepted(ranks, said)
        accepted = {question: answer for question, (_, answer) in told.items()}
        progress = plan.after(progress, wave, accepted, len(asked), int(places[asked[-1]]))
    return progress


def test_a_run_is_that_of_the_plan_and_can_be_stopped_and_audited(
    noise: WaveNoise, tmp_path: Path
) -> None:
    folder = tmp_path / "waves"
    found = run_waves(PLAN, people(), noise, str(folder), local)
    assert found == reference(PLAN, noise)
    assert len(found.finished) == 2 and found.runs >= 2
    # of a run that was stopped before the last wave was written: the same people and answers
    last = folder / f"wave-{found.runs - 1:03}.json"
    told = json.loads(last.read_text())
    last.unlink()
    assert run_waves(PLAN, people(), noise, str(folder), local) == found
    assert json.loads(last.read_text()) == told
    # and of one that had ended: no pipeline at all
    assert run_waves(PLAN, people(), noise, str(folder), _no_pipeline) == found
    logs = sorted(folder.glob("asked-*.jsonl"))
    report = audit_logs(logs, epsilon=PLAN.promise)
    assert report.clean and report.interactivity == "sequentially interactive"
    assert report.to_json()["num_people"] == report.to_json()["num_records"] == found.people
    assert not audit_logs(logs, epsilon=0.5 * PLAN.promise).clean


def _no_pipeline() -> beam.Pipeline:
    raise AssertionError("a finished wave is run again")


def test_a_quantile_is_found_by_people_who_are_asked_once(noise: WaveNoise, tmp_path: Path) -> None:
    """Noise is a function of the key, so the verdict is the same in every run of the test."""
    search = QuantileSearch(cells=4, level=0.5, epsilon=4.0, error=0.15)
    assert search.people <= len(IDS)
    data = np.repeat([0, 1, 2, 3], [30, 70, 180, 20])  # the median is in cell 2, by far
    plan = WavePlan(search.rounds, 4.0)
    found = run_waves(plan, people(data), noise, str(tmp_path / "waves"), local)
    assert found.people == search.people and found.runs == search.steps
    assert search.interval(found.finished) == (2, 2)


def test_a_city_is_found_by_people_who_are_asked_at_every_level(
    noise: WaveNoise, tmp_path: Path
) -> None:
    """Everybody in every wave; a sum of epsilons is over budget, the likelihoods are not."""
    search = PlaceSearch(3, 2, epsilon=4.0, share=0.33, rival=0.0, again=True)
    assert search.people < len(IDS)
    path = (1, 0, 1)
    data = np.array([search.datum(path[: 1 + i % 3]) for i in IDS])
    plan = WavePlan(search.rounds, 4.0, again=True)
    folder = tmp_path / "waves"
    found = run_waves(plan, people(data), noise, str(folder), local)
    assert search.path(found.finished) == path
    assert found.people == search.people and found.runs == 3
    logs = sorted(folder.glob("asked-*.jsonl"))
    kernels = {
        f"wave-{level}-0": search.kernel(path[:level]).tolist() for level in range(search.depth)
    }
    report = audit_logs(logs, epsilon=4.0).to_json()
    assert report["num_people"] == search.people and not report["clean"]
    assert report["k_hat"] == pytest.approx(3, abs=1e-6)
    by_likelihoods = audit_logs(logs, epsilon=4.0, kernels=kernels)
    assert by_likelihoods.clean and by_likelihoods.interactivity == "fully interactive"


def test_another_plan_or_release_in_the_folder_is_refused(noise: WaveNoise, tmp_path: Path) -> None:
    folder = tmp_path / "waves"
    run_waves(PLAN, people(), noise, str(folder), local)
    other = WavePlan(rounds, PLAN.epsilon, beta=0.6, seed=5)
    for plan, names in ((other, noise), (PLAN, WaveNoise("trips", "other", noise.key_file))):
        with pytest.raises(ValueError, match=r"wave-000.json is of another protocol"):
            run_waves(plan, people(), names, str(folder), _no_pipeline)


def test_people_who_run_out(noise: WaveNoise, tmp_path: Path) -> None:
    """Two people for three questions: both are heard, and the folder has what they said."""
    with pytest.raises(NotEnoughUsersError, match="after 0 answers"):
        run_waves(PLAN, people(DATA[:2], IDS[:2]), noise, str(tmp_path / "waves"), local)
    told = json.loads((tmp_path / "waves" / "wave-000.json").read_text())
    assert told["people"] == 2 and len(told["accepted"]) == 2


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (ValueBlock(np.array([0, 1, 1]), user_ids=np.array([5, 6, 5])), "has two rows"),
        (ValueBlock(np.array([0, 1])), "needs user ids"),
        (ValueBlock(np.array([0, 2]), user_ids=np.array([5, 6])), r"data must lie in 0 \.\. 1"),
        (ValueBlock(np.array([0.5, 1.0]), user_ids=np.array([5, 6])), "must be integers"),
    ],
)
def test_what_nobody_may_be_asked_with(block: ValueBlock, reason: str, noise: WaveNoise) -> None:
    wave = PLAN.wave(Progress())
    assert wave is not None
    with pytest.raises(Exception, match=reason), local() as pipeline:
        values = pipeline | beam.Create([block]).with_output_types(ValueBlock)
        values | AskWave(wave, noise)


def test_behind_a_shuffle_nobody_is_known(noise: WaveNoise) -> None:
    wave = PLAN.wave(Progress())
    assert wave is not None
    pipeline = beam.Pipeline()
    shuffled = pipeline | beam.Create([]).with_output_types(ShuffledBlock)
    with pytest.raises(StageError, match="AskWave belongs before the shuffle"):
        shuffled | AskWave(wave, noise)
    untyped = pipeline | "Any" >> beam.Create([1, "a"])
    with pytest.raises(StageError, match="AskWave takes ValueBlock"):
        untyped | "Untyped" >> AskWave(wave, noise)
