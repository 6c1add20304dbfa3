"""Rewards of a bandit's batch: rows to numbers of [-1, 1] and public plays."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows

from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.settings import People
from beam_ldp.transforms.device.encode import ColumnNames, EncodeStage
from beam_ldp.transforms.device.vectors import EncodeNumbers
from beam_ldp.transforms.elements.columns import SOUND, TOO_LARGE, Codes
from beam_ldp.transforms.elements.portable import groups_of
from beam_ldp.transforms.queries import MeanQuery


def reward_digest(batch: str) -> bytes:
    """What stands for a batch in the identity of its release.

    Args:
        batch: digest of it, in hexadecimal.
    """
    return digest_of(b"bandit batch", bytes.fromhex(batch))


@dataclass(frozen=True)
class RewardQuery(MeanQuery):
    """What the reward of each play is, on average.

    Attributes:
        batch: digest of the batch that asks. It is part of the release's identity: another batch
            is another release.
    """

    batch: str = ""

    def digest(self, randomizer: Any) -> bytes:
        return reward_digest(self.batch)

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, ScalarMean) or randomizer.radius != 1.0:
            raise TypeError("randomizer must be a ScalarMean of radius 1: rewards lie in [-1, 1]")

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeRewards(*self.columns, people=people)


class EncodeRewards(EncodeStage):
    """Turns rows into `ValueBlock`s of rewards. Nothing is private yet.

    A reward is a number of [-1, 1], or text that spells one. Any other row, and a row whose play is
    not of this batch, goes to the attribute `bad_rows` of the result. Nothing is clipped: a reward
    outside says that the data are not what the bandit learns from.

    Args:
        column: name of the column with the reward.
        people: the columns with a person's id and play, and the public list of plays.
    """

    def __init__(self, column: str, *, people: People = People()) -> None:
        super().__init__()
        self._doer = _EncodeRewards(
            names=ColumnNames.of((column,), people),
            groups=groups_of(people),
            hide_bad=False,
            only_listed=True,
            dimension=1,
            ranges=None,
            binary=False,
        )

    def display_data(self) -> dict[str, Any]:
        return {"reward": "-1 to 1"}


@dataclass(eq=False, kw_only=True)
class _EncodeRewards(EncodeNumbers):
    def _fitted(self, vectors: np.ndarray, codes: Codes) -> tuple[np.ndarray, Codes]:
        beyond = (codes == SOUND) & (np.abs(vectors[:, 0]) > 1)
        codes[beyond] = TOO_LARGE
        vectors[beyond] = 0.0
        return vectors, codes


# Rows of a queue, kept until their batch is decided -----------------------------------------------


class KeepRewards(beam.PTransform):
    """Keeps rewards of a stream in a folder until their batch is decided.

    Protects nobody yet: rewards are kept as they are, in files for their owner alone (0600). Empty
    the folder of a batch's files once it is decided.

    Event times, windows and lateness play no part, for plays say which batch a row is of: nothing
    is dropped as late. (Beam's own file sink gives what is late in a window the name of the file
    that came in time.) A file appears whole, under a name that its rows give it, so that a bundle
    that is repeated writes it again; rows that come twice in different files count once where
    `--user-id` says whose they are.

    In: mappings with the columns, in any windows. Out: the paths of the files.

    Args:
        folder: local, or mounted by all workers; made if it is missing.
        columns: that are kept of each row: play, reward, and whose it is.
        rows: most of one file.
        seconds: the longest that a row waits for others.

    >>> import tempfile, apache_beam as beam
    >>> rows = [{"play": "1:blue", "reward": 1, "uid": 7, "name": "left out"}]
    >>> with tempfile.TemporaryDirectory() as inbox:
    ...     with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...         _ = pipeline | beam.Create(rows) | KeepRewards(inbox)
    ...     [file] = Path(inbox).iterdir()
    ...     print(file.suffix, file.read_text().strip())
    .jsonl {"play": "1:blue", "reward": 1, "uid": 7}
    """

    def __init__(
        self,
        folder: str,
        *,
        columns: Sequence[str] = ("play", "reward", "uid"),
        rows: int = 10_000,
        seconds: float = 10.0,
    ) -> None:
        super().__init__()
        self._write = _Write(folder, tuple(columns))
        self._rows, self._seconds = rows, seconds

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "Whenever they come" >> beam.WindowInto(GlobalWindows())
            | "Lines" >> beam.Map(self._write.line).with_output_types(tuple[str, str])
            | "Files" >> beam.GroupIntoBatches(self._rows, self._seconds)
            | "Write" >> beam.ParDo(self._write).with_output_types(str)
        )


class _Write(beam.DoFn):
    def __init__(self, folder: str, columns: tuple[str, ...]) -> None:
        self._folder, self._columns = folder, columns

    def line(self, row: Mapping[str, Any]) -> tuple[str, str]:
        return "", json.dumps({name: row.get(name) for name in self._columns}, default=str)

    def process(self, element: tuple[str, Iterable[str]]) -> Iterator[str]:
        content = ("\n".join(element[1]) + "\n").encode()
        folder = Path(self._folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.jsonl"
        aside = folder / f".{uuid.uuid4().hex}"
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(place)
        yield str(place)
