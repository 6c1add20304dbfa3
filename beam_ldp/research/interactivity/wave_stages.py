"""A protocol in pipelines, one for each wave: everybody once, or the same people again.

    people ── places in the public order ── the next so many ──┐
      └─────────────────────────────────────────────────────── one report each ── first who accepts

A wave depends on the answers of the waves before, so the next pipeline is made when one has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints

from beam_ldp.randomizers.identity import ReleaseIdentity, one_row_of
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.research.interactivity.sequential import NotEnoughUsersError
from beam_ldp.research.interactivity.waves import Progress, Wave, WavePlan, places_of
from beam_ldp.transforms.device.keyed import read_key
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.elements.stages import StageError, expect, expect_unshuffled, typed_outputs

_PLACES = np.dtype("<u8")


@dataclass(frozen=True)
class WaveNoise:
    """Where the noise of the waves comes from: always memoized.

    A person's report is a function of key, person, value and what the wave asks, so a bundle or
    a wave that is run again asks the same people and hears the same.

    Args:
        dataset: declared name of the people's data.
        release_id: name of this run of the protocol; another one draws other noise.
        key_file: file with at least 32 secret bytes that its owner alone can read; workers read it.
            Whoever has it can undo every report.
    """

    dataset: str
    release_id: str
    key_file: str

    def of(self, wave: Wave) -> ReleaseIdentity:
        """The identity of what a wave says."""
        return ReleaseIdentity(
            self.dataset, self.release_id, mechanism=wave.digest, bounding=one_row_of("person")
        ).of_round(wave.number)


@dataclass(eq=False, repr=False)
class AskWave(beam.PTransform):
    """One wave: the next people in the public order answer one question each.

    In: `ValueBlock`s with user ids, one row a person, values int `(n,)`: rows of the protocol's
    kernels. Out: one dictionary: `accepted`, `[question, answer]` of each that was answered; how
    many `people` were asked, and the place of the `last` of them. Attribute of the result:
    `records` of who was asked what, as `AuditInteractivity` takes them, people by their places.

    Each person is protected against everybody who reads all of it, by the local epsilon of their
    kernel. It runs at the trusted edge: what comes out of a shuffler is refused.

    Args:
        wave: from `WavePlan.wave`.
        noise: key and names.

    Raises:
        StageError: for what has gone through a `Shuffle`, and for what is no `ValueBlock`.
        ValueError: at run time for blocks without user ids, for values that are no row, and where
            somebody who is called up has two rows.
    """

    wave: Wave
    noise: WaveNoise

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        expect_unshuffled("AskWave", values)
        if expect("AskWave", values, ValueBlock).keyed:
            raise StageError("AskWave takes ValueBlock without keys")
        places = (
            values
            | "Places" >> beam.Map(_places, self.wave).with_output_types(bytes)
            | "Next people" >> beam.CombineGlobally(_Smallest(self.wave.people + 1))
            | "Each has one row" >> beam.Map(_distinct, self.wave.people).with_output_types(bytes)
        )
        said, records = typed_outputs(
            values,
            "Ask",
            beam.ParDo(_Ask(self.wave, self.noise), called=beam.pvalue.AsSingleton(places)),
            typehints.Any,
            records=typehints.Any,
        )
        told = (
            said
            | "First who accepts" >> beam.CombineGlobally(_first_of_all)
            | "Tell" >> beam.Map(_told, beam.pvalue.AsSingleton(places))
        )
        told.records = records
        return told

    def display_data(self) -> dict[str, Any]:
        return {"wave": self.wave.number, "people": self.wave.people}


def _places(block: ValueBlock, wave: Wave) -> bytes:
    return np.sort(wave.called(_of_block(block, wave)))[: wave.people + 1].tobytes()


def _of_block(block: ValueBlock, wave: Wave) -> np.ndarray:
    if block.user_ids is None:
        raise ValueError("AskWave needs user ids: name the user id column")
    return places_of(block.user_ids, wave.seed)


@dataclass(eq=False)
class _Smallest(beam.CombineFn):
    """The smallest so many of many places, sorted."""

    most: int

    def create_accumulator(self) -> bytes:
        return b""

    def add_input(self, held: bytes, more: bytes) -> bytes:
        return self.merge_accumulators([held, more])

    def merge_accumulators(self, accumulators: Iterable[bytes]) -> bytes:
        together = np.frombuffer(b"".join(accumulators), dtype=_PLACES)
        return np.sort(together)[: self.most].tobytes()

    def extract_output(self, held: bytes) -> bytes:
        return held


def _distinct(held: bytes, people: int) -> bytes:
    places = np.frombuffer(held, dtype=_PLACES)
    if np.any(places[1:] == places[:-1]):
        raise ValueError("a person has two rows: nobody may be asked twice (BoundContributions)")
    return places[:people].tobytes()


@dataclass(eq=False)
class _Ask(beam.DoFn):
    """One report of each person of a block who is called up: the first who accept, and records."""

    wave: Wave
    noise: WaveNoise

    def setup(self) -> None:
        self._key = read_key(self.noise.key_file)

    def process(self, block: ValueBlock, called: bytes) -> Iterator[Any]:
        order = np.frombuffer(called, dtype=_PLACES)
        places = _of_block(block, self.wave)
        own = np.flatnonzero(np.isin(places, order))
        ranks = np.searchsorted(order, places[own])
        own, ranks = own[self.wave.asked[ranks] >= 0], ranks[self.wave.asked[ranks] >= 0]
        if not len(own):
            return
        asked = block.where(own)
        if asked.values.ndim != 1 or asked.values.dtype.kind not in "iu":
            raise ValueError("values must be integers, one a person")
        data = asked.values.astype(np.int64)
        assert asked.user_ids is not None
        source = UserRandomness(self._key, asked.user_ids, self.noise.of(self.wave))
        words = source.words_for(bytes.fromhex(self.wave.digest), data).words(0, len(own), 1)[:, 0]
        reports = self.wave.reports(ranks, data, words)
        yield self.wave.first_accepted(ranks, reports)
        for record in self._records(places[own], ranks, reports):
            yield beam.pvalue.TaggedOutput("records", record)

    def _records(
        self, places: np.ndarray, ranks: np.ndarray, reports: np.ndarray
    ) -> Iterator[dict[str, Any]]:
        wave = self.wave
        costs = [kernel.epsilon for kernel in wave.kernels]
        kernels = np.array(wave.which)[wave.asked[ranks]].tolist()
        for place, kernel, report in zip(places.tolist(), kernels, reports.tolist()):
            yield {
                "seq": wave.number, "user": f"{place:016x}", "round": wave.number,
                "randomizer": f"wave-{wave.number}-{kernel}", "epsilon": costs[kernel],
                "output": report, "assign_seq": wave.number,
            }  # fmt: skip


def _first_of_all(parts: Iterable[dict[int, tuple[int, int]]]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for part in parts:
        for question, first in part.items():
            found[question] = min(first, found.get(question, first))
    return found


def _told(found: dict[int, tuple[int, int]], called: bytes) -> dict[str, Any]:
    accepted = sorted((question, answer) for question, (_, answer) in found.items())
    places = np.frombuffer(called, dtype=_PLACES)
    last = int(places[-1]) if len(places) else -1
    return {"accepted": [list(one) for one in accepted], "people": len(places), "last": last}


# A run for each wave ------------------------------------------------------------------------------


def run_waves(
    plan: WavePlan,
    people: Callable[[beam.Pipeline], beam.PCollection],
    noise: WaveNoise,
    folder: str,
    pipeline: Callable[[], beam.Pipeline] = beam.Pipeline,
) -> Progress:
    """Run a protocol to its end, a pipeline for each wave.

    What a wave told is in `folder`, `wave-000.json` and so on, and who was asked what in
    `asked-000*.jsonl`, for `beam-ldp audit-interactivity`. A run that was stopped goes on where it
    was: waves that are in the folder are not run again. The wave it was in asks the same people the
    same question and hears the same answers, for noise is memoized.

    Args:
        plan: the protocol, and how everybody is asked at most once.
        people: makes the `ValueBlock`s of all people, in each pipeline: with user ids, one row a
            person, rows of the kernels as values.
        noise: names and key.
        folder: on any file system that Beam knows and workers reach.
        pipeline: makes an empty pipeline.

    Returns:
        The answers, and how many people were asked.

    Raises:
        NotEnoughUsersError: if people run out; the folder has what they said.
        ValueError: if the folder has the waves of another protocol or plan.
    """
    progress = Progress()
    while (wave := plan.wave(progress)) is not None:
        told: dict[str, Any] = {"accepted": [], "people": 0, "last": -1}
        if wave.people:
            told = _told_before(folder, wave, noise) or _run(wave, people, noise, folder, pipeline)
        accepted = {question: answer for question, answer in told["accepted"]}
        progress = plan.after(progress, wave, accepted, told["people"], told["last"])
        if told["people"] < wave.people and progress.current:
            answers = tuple(answer for one in progress.finished for answer in one)
            raise NotEnoughUsersError(answers)
    return progress


def _run(
    wave: Wave,
    people: Callable[[beam.Pipeline], beam.PCollection],
    noise: WaveNoise,
    folder: str,
    pipeline: Callable[[], beam.Pipeline],
) -> dict[str, Any]:
    if not FileSystems.exists(folder):
        FileSystems.mkdirs(folder)
    with pipeline() as run:
        told = people(run) | "Wave" >> AskWave(wave, noise)
        _ = (
            told.records
            | "As lines" >> beam.Map(json.dumps)
            | "Log" >> beam.io.WriteToText(_path(folder, f"asked-{wave.number:03}"), ".jsonl")
        )
        _ = told | "Keep" >> beam.Map(_keep, folder, wave.number, _name(wave, noise))
    found = _told_before(folder, wave, noise)
    assert found is not None
    return found


def _told_before(folder: str, wave: Wave, noise: WaveNoise) -> dict[str, Any] | None:
    path = _path(folder, f"wave-{wave.number:03}.json")
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path) as file:
        told: dict[str, Any] = json.loads(file.read())
    if told["wave"] != _name(wave, noise):
        raise ValueError(f"{path} is of another protocol, plan or release: use another folder")
    return told


def _name(wave: Wave, noise: WaveNoise) -> str:
    return noise.of(wave).digest.hex()


def _keep(told: dict[str, Any], folder: str, number: int, name: str) -> None:
    """Written under another name first: what is there is whole."""
    path = _path(folder, f"wave-{number:03}.json")
    part = f"{path}.part"
    with FileSystems.create(part) as file:
        file.write(json.dumps({"wave": name, **told}).encode())
    if FileSystems.exists(path):
        FileSystems.delete([path])
    FileSystems.rename([part], [path])


def _path(folder: str, name: str) -> str:
    return str(FileSystems.join(folder, name))
