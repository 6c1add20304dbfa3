"""One public report for readers of several levels: made under keys, and read with one or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import apache_beam as beam

from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.level_keys import LevelKey, fresh_ids, hidden, level_chain, refined
from beam_ldp.randomizers.randomness import report_ids
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource, read_key
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.elements.blocks import LeveledBlock, ReportBlock, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import expect
from beam_ldp.transforms.shuffler.sums import check_digest
from beam_ldp.transforms.wire.file_parts import PortableTerms


def reader_levels(terms: ReleaseTerms) -> tuple[float, ...]:
    """The levels of a release, from the largest; one or none where there are no keys."""
    randomizer = terms.randomizer
    return randomizer.all_levels if isinstance(randomizer, RefinableResponse) else ()


def refinable(terms: ReleaseTerms) -> RefinableResponse:
    """The mechanism of a release of several levels. Raises ValueError."""
    if len(reader_levels(terms)) < 2:
        raise ValueError("terms must be of a RefinableResponse of two levels or more")
    if terms.max_reports > 1:
        raise ValueError("terms must grant one report in an envelope: its id is that of its shifts")
    assert isinstance(terms.randomizer, RefinableResponse)
    return terms.randomizer


@dataclass(eq=False, repr=False)
class RandomizeForLevels(beam.PTransform):
    """Randomizes values for readers of several levels: `Randomize`, with ids to read them by.

    Protects each value with the smallest level against everybody, and with the level of their key
    against readers who hold one, together with the largest of theirs; nobody from whoever holds the
    secret and sees the reports: from that one the largest level protects.

    In: `ValueBlock`s. Out: `LeveledBlock`s.

    Args:
        terms: of the release; its identity is committed to the secret.
        level_secret: path of a file with at least 32 secret bytes, or a secret of a secret manager,
            read on the worker.
        noise: as in `Randomize`. Memoized under the level secret itself, ids are functions of
            person and value, and a re-run gives the same bytes; a person whose value changed
            in between has another report under another id, which nobody knows for a copy.

    Raises:
        StageError: if the input is no collection of `ValueBlock`s.
        ValueError: for terms of one level, or noise under another key; at run time for values
            outside the domain, or a secret that is not that of the release.
    """

    terms: ReleaseTerms
    level_secret: str
    _: KW_ONLY
    noise: NoiseSource = FRESH

    def __post_init__(self) -> None:
        terms, noise, level_secret = self.terms, self.noise, self.level_secret
        mechanism = refinable(terms)
        if noise.memoized and (noise.key_file, noise.identity) != (level_secret, terms.identity):
            raise ValueError("noise must be memoized under level_secret and the identity of terms")
        if noise.simulated != terms.simulated:
            raise ValueError("terms.simulated must be true exactly where noise has a seed")
        first = PortableRandomizer(mechanism.at_level(mechanism.all_levels[0]))
        carried = PortableTerms(terms, None)
        self._doer = _RandomizeForLevels(first, noise, False, carried, level_secret)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("RandomizeForLevels", pcoll, ValueBlock)
        return pcoll | "Randomize" >> beam.ParDo(self._doer).with_output_types(LeveledBlock)


@dataclass(eq=False)
class _RandomizeForLevels(RandomizeBlocks):
    """The report of the largest level, and then what hides it from smaller ones."""

    terms: PortableTerms
    secret: str

    def setup(self) -> None:
        super().setup()
        terms = self.terms.terms
        self._identity, self._public = terms.identity, refinable(terms)
        self._public_digest = self._public.config_digest()
        self._chain = level_chain(
            read_key(self.secret, "level_secret"), terms.identity, self._public
        )

    def _emit(self, key: Any, block: ValueBlock, window: Any) -> Iterator[LeveledBlock]:
        start = 0
        for found in super()._emit(key, block, window):
            stop = start + len(found)
            ids = fresh_ids(len(found))
            if self._key is not None:
                part = block.rows(start, stop)
                assert part.user_ids is not None
                ids = report_ids(self._key, part.user_ids, part.values, self._identity)
            yield LeveledBlock(
                hidden(self._public, self._chain, found.reports, ids),
                ids,
                self._public_digest,
                found.origin,
                found.simulated,
            )
            start = stop


@dataclass(eq=False, repr=False)
class AtLevel(beam.PTransform):
    """What a reader of a level makes of public reports; what everybody does, without a key.

    In: `LeveledBlock`s, of `RandomizeForLevels` or `ReadReports(keep_ids=True)`. Out:
    `ReportBlock`s of the mechanism `mechanism`: the public one, or that of the key's level.

    Args:
        terms: of the release.
        key_file: path of the key of a level (`beam-ldp keys derive`), read here and on the worker;
            None for what everybody reads.

    Raises:
        StageError: if the input has no ids.
        ValueError: for a key that is damaged, or of another release or level; nothing of it is
            quoted.
    """

    terms: ReleaseTerms
    key_file: str | None = None

    def __post_init__(self) -> None:
        self.mechanism = refinable(self.terms)
        if self.key_file is not None:
            level = read_level_key(self.key_file, self.terms).level
            self.mechanism = self.mechanism.at_level(level)
        self._doer = _AtLevel(PortableTerms(self.terms, None), self.key_file)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        expect("AtLevel", pcoll, LeveledBlock)
        return pcoll | "Refine" >> beam.ParDo(self._doer).with_output_types(ReportBlock)

    def display_data(self) -> dict[str, Any]:
        return {"level": self.mechanism.local_epsilon}


@dataclass(eq=False)
class _AtLevel(beam.DoFn):
    terms: PortableTerms
    key_file: str | None

    def setup(self) -> None:
        terms = self.terms.terms
        self._public = refinable(terms)
        self._digest = self._read = self._public.config_digest()
        self._key = None
        if self.key_file is not None:
            self._key = read_level_key(self.key_file, terms)
            self._read = self._public.at_level(self._key.level).config_digest()

    def process(self, block: LeveledBlock) -> Iterator[ReportBlock]:
        check_digest("AtLevel", block.mechanism_digest, self._digest)
        reports = block.reports
        if self._key is not None:
            reports = refined(self._public, self._key, reports, block.ids)
        yield ReportBlock(reports, self._read, None, block.origin, block.simulated)


def read_level_key(path: str, terms: ReleaseTerms, name: str = "key_file") -> LevelKey:
    """The key in a file, checked against the release.

    Raises:
        ValueError: if it cannot be read, others than its owner can read it, it is damaged, or of
            another release or level; nothing of it is quoted.
    """
    content = read_key(path, name)
    try:
        key = LevelKey.from_bytes(content)
        key.check_fits(terms.identity, refinable(terms))
    except ValueError as error:
        raise ValueError(f"{name} {path} {error}") from None
    return key
