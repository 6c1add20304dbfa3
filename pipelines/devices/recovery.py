"""Reports of which single values can be read later: the key that a run makes, and what it recovers.

A recoverable report is the value plus a key that is a function of the release's secret, the person
and the release, and *not of the value*: whoever recovers does not know the value yet. So, unlike
other memoized noise, the same secret must never serve a person's second value, whose difference to
the first would be plain: every run makes a secret of its own, in a file that was not there before.

The ids of envelopes are functions of the same secret and the person. They are the map from a person
to the stored report; nothing else has to be kept, and without the secret they say nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.randomness import MIN_KEY_BYTES, UserRandomness, envelope_ids
from beam_ldp.randomizers.wire import ID_BYTES
from beam_ldp.randomizers.wire_stream import StreamPart, margin, read_part
from beam_ldp.release import outputs
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job import absolute
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.wire.file_parts import PartReader, find_parts

FLAG = "--recover-key-file"
_ID_BYTES = 1 << 28  # of memory for ids that are compared; here they are few

# Where values are: a new key --------------------------------------------------------------------

_CLASHES = {
    ("release", "key_file"): "--memoize-key-file: its noise depends on the value, and is for edges "
    "that run again",
    ("release", "seed"): "--seed: a simulation has nobody to ask for consent",
    ("people", "group_by"): "--group-by",
    ("privacy", "epsilon"): "--epsilon: reports that somebody can link to people promise "
    "--local-epsilon and nothing else",
}


def with_recover_key(given: Arguments) -> Arguments:
    """What was given, its noise under the key that this run makes. Raises SettingError."""
    named = given["release"].get("recover_key_file")
    if named is None:
        return given
    for (home, name), said in _CLASHES.items():
        if given[home].get(name) not in (None, "", ()):
            raise SettingError(f"{FLAG} excludes {said}")
    if "domain" not in given["question"] or len(given["question"].get("column", ())) > 1:
        raise SettingError(f"{FLAG} is for values of one list: a single --column, and its --domain")
    if given["mechanism"].get("name", "auto") != "auto":
        raise SettingError(f"{FLAG} excludes --mechanism: it is RecoverableResponse")
    if given["people"].get("id") is None:
        raise SettingError(f"{FLAG} needs --user-id: who consents later is known by it")
    path = _new_place(named, given["output"]["folder"])
    return Arguments({"release": {"key_file": path}}, []).over(given)


def _new_place(path: str, folder: str) -> str:
    if not outputs.is_local(path):
        raise SettingError(f"{FLAG} {path} must be a path of this machine: the key stays here")
    place = str(absolute(path.removeprefix("file://")))
    if os.path.lexists(place):
        raise SettingError(
            f"{FLAG} {path} exists: every run makes a key of its own, for two values of a person "
            "under one key tell their difference. If a run was killed and wrote no reports, remove "
            "the file"
        )
    within = os.path.realpath(folder) if outputs.is_local(folder) else folder
    if os.path.realpath(place).startswith(within.rstrip("/") + "/"):
        raise SettingError(f"{FLAG} must lie outside of --output {folder}, which is public")
    return place


class Recoverable(Protocol):
    """What is told of values whose reports may be read later; its release is committed to the key.

    Attributes: as of `DeviceValues`.
    """

    release: ReleaseFile

    @property
    def job(self) -> Job: ...


@contextmanager
def new_key(device: Recoverable) -> Iterator[None]:
    """While the reports of a recoverable release are made: its key, in a file that stays with them.

    A run that writes no reports leaves no key.

    Raises:
        OutputError: if the file cannot be made.
    """
    path = device.job.noise.key_file
    if path is None or not device.release.recoverable:
        yield
        return
    key = os.urandom(MIN_KEY_BYTES)
    outputs.create_private(path, key)
    try:
        terms = device.release.terms
        committed = replace(terms, identity=terms.identity.committed(key))
        device.release = replace(device.release, terms=committed)
        yield
    except BaseException:
        with suppress(OSError):
            Path(path).unlink()
        raise


# Where somebody has consented: values -----------------------------------------------------------

NO_REPORT = "no report in these files"
TWO_REPORTS = "two different reports under one id: one of them is forged"
NOT_MADE = "a report that was not made under this key"


@dataclass(frozen=True)
class Recovered:
    """What was read of one person who consented.

    Attributes:
        user_id: as the list of consents has it.
        index: of the value in the public list; None where there is none.
        note: why there is none.
    """

    user_id: str
    index: int | None
    note: str = ""


def recover(
    agreed: ReleaseFile, key: bytes, user_ids: Sequence[str], patterns: Sequence[str]
) -> list[Recovered]:
    """The value of each of these people, in their order.

    Args:
        agreed: what `release.json` says; its release is recoverable, and this is its key.
        key: the secret.
        user_ids: distinct people.
        patterns: files, folders or globs of envelopes.

    Raises:
        ValueError: for files that cannot be read, naming them.
    """
    found = _reports_of(agreed, key, user_ids, patterns)
    oracle, identity = agreed.terms.randomizer, agreed.terms.identity
    assert isinstance(oracle, RecoverableResponse)
    keys = oracle.draw_keys(len(user_ids), UserRandomness(key, list(user_ids), identity))

    def read(user_id: str, own: np.ndarray, reports: set[int]) -> Recovered:
        if not reports:
            return Recovered(user_id, None, NO_REPORT)
        if len(reports) > 1:
            return Recovered(user_id, None, TWO_REPORTS)
        try:
            (index,) = oracle.recover(np.array([*reports]), own)
        except ValueError:
            return Recovered(user_id, None, NOT_MADE)
        return Recovered(user_id, int(index))

    return [read(*one) for one in zip(user_ids, keys[:, None], found)]


def _reports_of(
    agreed: ReleaseFile, key: bytes, user_ids: Sequence[str], patterns: Sequence[str]
) -> list[set[int]]:
    """The different reports under each person's id."""
    terms = agreed.terms
    wanted = _as_one(envelope_ids(key, list(user_ids), terms.identity))
    order = np.argsort(wanted)
    found: list[set[int]] = [set() for _ in user_ids]
    for part in find_parts(patterns, _ID_BYTES, terms.envelope_bytes(1)):
        for stretch in PartReader(part, margin(terms)):
            read = read_part(terms, stretch.data, stretch.begin, stretch.start, stretch.stop)
            for person, report in _matches(read, wanted, order):
                found[person].add(report)
    return found


def _matches(part: StreamPart, wanted: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, int]]:
    ids = _as_one(part.ids)
    place = np.searchsorted(wanted, ids, sorter=order)
    place[place == len(wanted)] = 0
    rows = np.flatnonzero(wanted[order[place]] == ids)
    yield from zip(order[place[rows]].tolist(), part.reports[rows].tolist())


def _as_one(ids: np.ndarray) -> np.ndarray:
    """Each id as one value that sorts."""
    return np.ascontiguousarray(ids).view(f"S{ID_BYTES}").reshape(-1)
