"""Where the noise of a release comes from: fresh, memoized under its identity, or simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.window import GlobalWindow

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.keys import read_key


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
        if seed is not None and (isinstance(seed, bool) or seed != int(seed) or seed < 0):
            raise ValueError(f"seed must be an integer >= 0, got {seed}")

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
