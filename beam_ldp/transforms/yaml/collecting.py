"""The two halves of a release as transforms of Beam YAML, with envelopes between them.

What leaves the device's pipeline is a column of envelopes (docs/wire-format.md): one person's
packed report each, the digest of the release, an id by which copies are known, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.wire import (
    EnvelopeError,
    GroupTerms,
    ReleaseTerms,
    check_prefix,
    digests_of,
    open_envelope,
    shared,
)
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.transforms.budgeted import charge
from beam_ldp.transforms.collector.side import CollectorSide
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.device.side import ORIGIN_BYTES, DeviceSide
from beam_ldp.transforms.elements.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.elements.portable import BLOCK_BYTES, report_bytes, rows_in
from beam_ldp.transforms.elements.stages import counter, typed_outputs
from beam_ldp.transforms.files import reason
from beam_ldp.transforms.queries import encode, estimator, split
from beam_ldp.transforms.wire.file_parts import BINARY, PortableTerms
from beam_ldp.transforms.wire.read_reports import DUPLICATE
from beam_ldp.transforms.wire.write_reports import PackReports
from beam_ldp.transforms.yaml.config import (
    ANY_QUESTION,
    NEEDED,
    SECTIONS,
    AskedBy,
    How,
    Key,
    Section,
    check_columns,
    strict,
)
from beam_ldp.transforms.yaml.rows import OUTPUTS, AskedRelease, RowOutputs

ENVELOPE = "envelope"  # the column
BYTES, BASE64 = "bytes", "base64"
_BAD = "bad"
_NOT_ENCODED = "not base64"
_MISSING = "missing column"


@dataclass(eq=False, repr=False)
class _Half(AskedRelease):
    """What both halves agree on: the release, whose terms stand in every envelope.

    Args:
        terms_file: path of the file with the terms of the release; "" for none.
    """

    terms_file: str

    def __post_init__(self) -> None:
        noise = self.told.noise
        if not (noise.dataset and noise.id):
            raise SettingError(
                "{release.dataset} and {release.id} are missing: they name the release, and every "
                "envelope says which it is of"
            )
        whole = self.estimate()
        assert whole.identity is not None
        assert isinstance(whole.randomizer, LocalRandomizer)  # of questions of one round
        self.terms = ReleaseTerms(whole.randomizer, whole.identity, noise.simulated)


@dataclass(eq=False, repr=False)
class RandomizeRows(_Half):
    """The device's half: rows to envelopes. It writes the file of the terms.

    In: rows. Out: rows with the column `envelope`.

    Args:
        encoding: "bytes" or "base64".
    """

    encoding: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding not in (BYTES, BASE64):
            raise SettingError(f"encoding must be {BYTES} or {BASE64}", self.encoding)
        if self.told.charge.ledger:
            raise SettingError(
                "{release.ledger} is for CollectReports: the budget is charged where estimates are "
                "released, not where reports are sent"
            )

    def expand(self, pcoll: beam.PCollection) -> Any:
        told, query = self.told, self.query
        check_columns(pcoll, query, told.people)
        if self.terms_file:
            agree_on(self.terms_file, self.terms)
        device = DeviceSide(
            encode(query, self.terms.randomizer, told.people),
            self.terms.randomizer,
            noise=NoiseSource(self.terms.identity, seed=told.noise.seed),
            one_each=told.people.id is not None,
            windows=told.windows,
        )
        found = pcoll | "Device" >> device
        carried = PortableTerms(self.terms, told.people.groups)
        packed = found.reports | "Pack" >> beam.ParDo(PackReports(carried, 1))
        rows = packed | "Rows" >> beam.FlatMap(
            _envelope_rows, self.terms.envelope_bytes(1), self.encoding
        ).with_output_types(
            RowTypeConstraint.from_fields([(ENVELOPE, bytes if self.encoding == BYTES else str)])
        )
        late = [] if found.late is None else [found.late]
        return self.outputs.of(rows, found.bad_rows, late)


def _envelope_rows(element: tuple[int, bytes], length: int, encoding: str) -> Iterator[beam.Row]:
    """The envelopes of one person each that stand behind one another."""
    _, together = element
    for start in range(0, len(together), length):
        one = together[start : start + length]
        yield beam.Row(envelope=one if encoding == BYTES else base64.b64encode(one).decode())


def agree_on(path: str, terms: ReleaseTerms) -> None:
    """Write the terms of a release, unless they stand there.

    Raises:
        SettingError: if other terms stand there: those of another release.
    """
    text = json.dumps(terms.to_json(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if FileSystems.exists(path):
        if read_terms(path).to_json() != terms.to_json():
            raise SettingError(f"terms {path} are of another release: name another file")
        return
    with FileSystems.create(path, BINARY) as file:
        file.write(text.encode())


def read_terms(path: str) -> ReleaseTerms:
    """The terms that a file holds. Raises SettingError."""
    try:
        with FileSystems.open(path, BINARY) as file:
            return ReleaseTerms.from_json(json.loads(file.read()))
    except Exception as error:
        raise SettingError(f"terms {path} cannot be read ({reason(path, error)})") from None


@dataclass(eq=False, repr=False)
class CollectRows(_Half):
    """The collector's half: envelopes to rows of estimates. It reads the file of the terms.

    In: rows with the column `envelope`, bounded. Out: rows as `EstimateToRows` makes them.

    Args:
        one_row_each: as in `EstimateToRows`.
    """

    one_row_each: bool

    def __post_init__(self) -> None:
        if self.told.charge.people_store is not None:
            raise SettingError("{release.people_store} needs ids of people, which reports lack")
        super().__post_init__()
        if self.terms_file:
            self._agree(read_terms(self.terms_file), self.terms_file)
        self._budget = self.told.budget()

    def _agree(self, found: ReleaseTerms, path: str) -> None:
        """Take the terms that devices have: their mechanism and its seeds."""
        own, theirs = self.terms.identity, found.identity
        unlike = [name for name in own.differences(theirs) if name != "mechanism"]
        if unlike or found.simulated != self.terms.simulated:
            raise SettingError(
                f"terms {path} are of another release: "
                f"{', '.join(unlike) or 'simulated'} differs from what is configured"
            )
        self.query.check(found.randomizer)
        self.terms = found

    def expand(self, pcoll: beam.PCollection) -> Any:
        if not pcoll.is_bounded:
            raise SettingError(
                "CollectReports takes bounded data, in which copies can be told: release streams "
                "with PrivateFrequencies, PrivateMean or PrivateQuestions in one pipeline"
            )
        told, query, randomizer = self.told, self.query, self.terms.randomizer
        least = told.shuffle.least(told.privacy.expected_users)
        opened = pcoll | "Open" >> OpenEnvelopes(PortableTerms(self.terms, told.people.groups))
        estimate = estimator(
            query,
            randomizer,
            least,
            sampling="iid" if told.people.id is not None and not self.one_row_each else "fixed",
        )
        collector = CollectorSide(
            randomizer,
            estimate,
            shuffle=replace(told.shuffle, min_reports=least),
            groups=told.people.groups,
            windows=told.windows,
        )
        found = opened | "Collector" >> collector
        if self._budget is not None:
            found = charge(
                self._budget.begin(pcoll, self.terms.identity, same_reports=True),
                self._budget.worst_event(randomizer, least),
                pcoll,
                found,
                identity=self.terms.identity,
                grouped=told.people.groups is not None,
                question=query.name,
            )
        rows = split(query, randomizer, found.releases) | "Rows" >> self.rows()
        return self.outputs.of(rows, opened.bad_rows, [found.withheld])


@dataclass(eq=False, repr=False)
class OpenEnvelopes(beam.PTransform):
    """Envelopes to reports, each checked and each once.

    In: rows with the column `envelope`. Out: `ReportBlock`s, with the attribute `bad_rows`: what is
    refused, and copies of what was taken, with the reason and never with content. Envelopes without
    an id are taken as they come.

    Args:
        terms: of the release.
    """

    terms: PortableTerms

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        sound, refused = typed_outputs(
            pcoll,
            "Check",
            beam.ParDo(_Check(self.terms)),
            typehints.Tuple[int, bytes],
            bad=BadRowBlock,
        )
        # By equal parts of the ids, which are random; sorted, so that a retry sees the same blocks.
        together = sound | "By id" >> beam.GroupByKey()
        reports, copies = typed_outputs(
            together, "Take once", beam.ParDo(_Take(self.terms)), ReportBlock, bad=BadRowBlock
        )
        reports.bad_rows = (refused, copies) | "All refused" >> beam.Flatten()
        return reports


@dataclass(eq=False)
class _Check(beam.DoFn):
    """Rows to envelopes that are of this release."""

    carried: PortableTerms

    def setup(self) -> None:
        self._terms = self.carried.any
        self._refused = counter("envelopes_refused")

    def process(self, row: Any) -> Iterator[Any]:
        given = row.get(ENVELOPE) if isinstance(row, Mapping) else getattr(row, ENVELOPE, None)
        try:
            data = _decoded(given)
            check_prefix(shared(self._terms).head, digests_of(self._terms), data)
            opened = open_envelope(shared(self._terms), data)
        except EnvelopeError as error:
            self._refused.inc()
            yield beam.pvalue.TaggedOutput(_BAD, _bad(error.reason))
            return
        name = opened.envelope_id or hashlib.blake2b(data, digest_size=1).digest()
        yield name[0], data


def _decoded(given: Any) -> bytes:
    if given is None:
        raise EnvelopeError(_MISSING)
    if not isinstance(given, str):
        return bytes(given)
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise EnvelopeError(_NOT_ENCODED) from None


def _bad(reason: str, count: int = 1) -> BadRowBlock:
    return BadRowBlock("", None, np.zeros(count, np.uint8), (reason,))


@dataclass(eq=False)
class _Take(beam.DoFn):
    """The envelopes of some ids to blocks of reports; of those with one id the first."""

    carried: PortableTerms

    def setup(self) -> None:
        self._terms = self.carried.any
        randomizer = shared(self._terms).randomizer
        self._rows = rows_in(BLOCK_BYTES, report_bytes(randomizer))
        self._repeated = counter("envelopes_repeated")
        self._received = counter("reports_received")

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        bucket, given = element
        waiting: list[tuple[np.ndarray, int | None]] = []
        known: set[bytes] = set()
        copies, number = 0, 0
        for data in sorted(given):
            opened = open_envelope(shared(self._terms), data)
            if opened.envelope_id is not None and opened.envelope_id in known:
                copies += 1
                continue
            known.add(opened.envelope_id or b"")
            waiting.append((opened.reports, self._group_of(data)))
            if len(waiting) >= self._rows:
                yield self._block(waiting, bucket, number)
                waiting, number = [], number + 1
        if waiting:
            yield self._block(waiting, bucket, number)
        if copies:
            self._repeated.inc(copies)
            yield beam.pvalue.TaggedOutput(_BAD, _bad(DUPLICATE, copies))

    def _group_of(self, data: bytes) -> int | None:
        if not isinstance(self._terms, GroupTerms):
            return None
        return check_prefix(self._terms.terms.head, self._terms.digests, data)

    def _block(
        self, waiting: Sequence[tuple[np.ndarray, int | None]], bucket: int, number: int
    ) -> ReportBlock:
        terms = shared(self._terms)
        reports = np.concatenate([one for one, _ in waiting])
        self._received.inc(len(reports))
        groups = None
        if isinstance(self._terms, GroupTerms):
            groups = np.array([group for one, group in waiting for _ in range(len(one))])
        place = length_prefixed(terms.digest, b"%d %d" % (bucket, number))
        origin = hashlib.blake2b(place, digest_size=ORIGIN_BYTES).digest()
        return ReportBlock(
            reports, terms.randomizer.config_digest(), groups, origin, terms.simulated
        )


_NAMED = Key(Section, "dataset and id, which name the release; seed.", NEEDED)
_CHARGED = Key(Section, "that of Randomize; ledger, and what else belongs to a charge.", NEEDED)
_REFUSED = Key(Section | None, "where envelopes that are refused, and copies, are listed: output.")


@strict(asked=ANY_QUESTION, told=SECTIONS.but(release=_NAMED), outputs=OUTPUTS.but(level=None))
def Randomize(  # noqa: N802
    *,
    asked: AskedBy,
    told: How,
    bad_rows: str = DEAD_LETTER,
    encoding: str = BYTES,
    terms: str = "",
    outputs: RowOutputs,
) -> beam.PTransform:
    """What devices send: one envelope for each person, with a report that protects their answer.

    Args:
        bad_rows: dead-letter, or other or zero: to report rows that cannot be used as that.
        encoding: bytes, or base64 for sinks of text.
        terms: file that the terms of the release are written to, for CollectReports.
    """
    return RandomizeRows(asked(bad_rows), told, outputs, terms, encoding)


@strict(
    asked=ANY_QUESTION,
    told=SECTIONS.but(release=_CHARGED),
    outputs=OUTPUTS.but(error_handling=_REFUSED),
)
def CollectReports(  # noqa: N802
    *,
    asked: AskedBy,
    told: How,
    terms: str = "",
    one_row_each: bool = False,
    outputs: RowOutputs,
) -> beam.PTransform:
    """Estimates from what devices sent: envelopes of `Randomize`, each checked and taken once.

    Args:
        terms: file that Randomize wrote: what devices ran, whatever a plan says today.
        one_row_each: declares that every id has one row, so that errors allow for no draw.
    """
    return CollectRows(asked(DEAD_LETTER), told, outputs, terms, one_row_each)
