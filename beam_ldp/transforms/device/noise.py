"""Where the noise of a release comes from: fresh, memoized under its identity with a secret key, or
simulated.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.transforms.window import GlobalWindow

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import MIN_KEY_BYTES

# Secret keys, read where they are used: never in a job graph, a log or a message ----------
#
# A key is a file that its owner alone can read, at any path of Beam's file systems, or a secret
# of a secret manager in Beam's own notation,
# `type:GcpSecret;version_name:projects/.../versions/1`. Whoever has the key of memoized noise can
# invert every report.


_SECRET = "type:"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _ReadableByOthers(Exception):
    """A key file whose mode lets others read it."""


def read_key(source: str, name: str = "memoize_key_file") -> bytes:
    """The secret bytes of a key.

    Args:
        source: path of a file, or a secret in Beam's notation.
        name: of the argument, for errors.

    Raises:
        ValueError: if it cannot be read or is too short, or if others than its owner can read a
            local file; nothing of it is quoted.
    """
    try:
        key = _of_secret(source) if source.startswith(_SECRET) else _of_file(source, name)
    except _ReadableByOthers as refused:
        raise ValueError(str(refused)) from None
    except Exception:
        raise ValueError(f"{name} must be readable on every worker: {source}") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"{name} must hold at least {MIN_KEY_BYTES} secret bytes, see {source}")
    return key


def _of_secret(notation: str) -> bytes:
    from apache_beam.utils.secret import Secret

    return bytes(Secret.parse_secret_option(notation).get_secret_bytes())


def _of_file(path: str, name: str) -> bytes:
    if os.name == "posix" and isinstance(FileSystems.get_filesystem(path), LocalFileSystem):
        mode = os.stat(path).st_mode
        if mode & _OTHERS:
            raise _ReadableByOthers(
                f"{name} must be readable by its owner alone: chmod 600 {path} (a key that others "
                "may have read is replaced, not only hidden)"
            )
    with FileSystems.open(path, mime_type="application/octet-stream") as file:
        return bytes(file.read())


# Where the noise of a release comes from: fresh, memoized under its identity, or simulated.


@dataclass(frozen=True)
class NoiseSource:
    """Where noise comes from. It travels in the job graph, where no secret does.

    Args:
        identity: of the release. Needed where noise is memoized; its commitment to the key, if it
            has one, is checked where the key is read.
        key_file: file with at least 32 secret bytes, read on the worker. A report is then a
            function of key, user, value and identity: a retry or a re-run sends the same one. Needs
            blocks with user ids. Each window is a release of its own: a person's reports in two
            windows have independent noise.
        seed: for simulations: the noise is predictable, nobody is protected, and the release has
            no price. Reproducible for blocks with source positions; blocks without them draw
            new noise each time.
        permanent: memoized only: a person's report is the same in every window while the value is
            the same. That costs the local epsilon once, for people whose value never changes; a
            changed value shows as a change, for which there is no bound.

    Raises:
        ValueError: for arguments that contradict each other.

    >>> NoiseSource().memoized, NoiseSource(seed=1).simulated
    (False, True)
    """

    identity: ReleaseIdentity | None = None
    key_file: str | None = None
    seed: int | None = None
    permanent: bool = False

    def __post_init__(self) -> None:
        if self.permanent and not self.memoized:
            raise ValueError("noise.key_file must be given where permanent is set")
        if self.memoized:
            if self.identity is None:
                raise ValueError(
                    "identity must say which release this is where key_file is given (for a "
                    "composite: Noise(dataset=..., id=...))"
                )
            if self.seed is not None:
                raise ValueError("seed must be None where key_file is given")
        seed = self.seed
        if seed is not None:
            check_integer("seed", seed, 0)

    @property
    def memoized(self) -> bool:
        """Whether a repetition sends the same reports."""
        return self.key_file is not None

    @property
    def simulated(self) -> bool:
        """Whether nobody is protected."""
        return self.seed is not None

    def key(self) -> bytes | None:
        """The secret key, read where it is used; None where noise is not memoized.

        Raises:
            ValueError: if it cannot be read, is too short, or is not the one that the identity
                commits to.
        """
        if self.key_file is None or self.identity is None:
            return None
        key = read_key(self.key_file)
        self.identity.committed(key)
        return key

    def of(self, window: Any) -> ReleaseIdentity:
        """The identity of the release that a window is, for memoized randomness."""
        assert self.identity is not None
        if self.permanent or isinstance(window, GlobalWindow):
            return self.identity
        return self.identity.of_window(window.start.micros, window.end.micros)


FRESH = NoiseSource()
