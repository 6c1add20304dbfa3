"""What several files of tests need and nobody changes is made once in a session.

Test workers (`-n 2`) share it: the first that needs it makes it, under a lock; the others read what
was written. `made` is for values that can be pickled, `folder` for folders.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class MadeOnce:
    """A folder of the whole session, below its temporary root.

    Attributes:
        root: where it is; the same for all workers.
    """

    root: Path

    def made(self, name: str, make: Callable[[], T]) -> T:
        """What `make()` gave the first time that the session asked for this name."""
        with self._locked(name) as place:
            if place.exists():
                found: T = pickle.loads(place.read_bytes())
                return found
            value = make()
            place.write_bytes(pickle.dumps(value))
            return value

    def folder(self, name: str, fill: Callable[[Path], None]) -> Path:
        """The folder that `fill(folder)` filled the first time; tests copy what they change.

        One that was not filled to its end is filled anew.
        """
        with self._locked(name) as place:
            done = place.with_suffix(".done")
            if not done.exists():
                if place.exists():
                    place.rename(place.with_suffix(f".failed-{os.urandom(4).hex()}"))
                place.mkdir()
                fill(place)
                done.touch()
            return place

    @contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        place = self.root / hashlib.sha256(name.encode()).hexdigest()[:16]
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield place
