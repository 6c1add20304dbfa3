"""What every mechanism knows: how to randomize, sum, estimate and price.

One mechanism is one frozen dataclass. It knows nothing of Beam, TensorFlow or MLflow.
"""

from __future__ import annotations

import importlib
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import ReleaseIdentity, config_digest
from beam_ldp.randomizers.randomness import UserRandomness, word_source
from beam_ldp.randomizers.report_format import ReportFormat
from beam_ldp.randomizers.shuffle_pair import (
    ShufflePair,
    TwoLevels,
    two_level_witnesses,
)

if TYPE_CHECKING:
    from typing import Self

Sampling = Literal["fixed", "iid"]
Rng = np.random.Generator | UserRandomness | None
# What a block kernel calls for the rare draw beyond its words: (rows of the block, positions).
ExtraWords = Callable[[np.ndarray, np.ndarray], np.ndarray]

CONFIG_VERSION = 1
MIN_LOCAL_EPSILON = 1e-9  # below, float64 no longer tells e**local_epsilon from one
_CHUNK_WORDS = 1 << 16  # half a MiB of words: stays in the second-level cache


class LocalRandomizer(ReportFormat):
    """A local randomizer and the reading of its reports.

    `local_epsilon` protects one person's value against everybody who sees that person's report,
    the collector included, whatever else they know (replace-one; that the person takes part is
    not hidden). It is the budget of everything that one user sends in one release.

    Attributes:
        local_epsilon: declared local budget, in nats; infinite where `protects_alone` is False.
        exactness: "exact" where the implemented law of finitely many outputs satisfies the stated
            epsilon to the last bit; "real-arithmetic" where it does so for ideal real numbers;
            "computational" where it does so against readers who cannot break AES.
        messages_per_user: reports that one user sends.
        protects_alone: whether reports protect whoever sends them, and not only the shuffler or
            the sum that they go through. Plans offer a mechanism where it is False only to those
            who declare that the shuffler is trusted.
        task: what its reports are for, "frequency" or "mean"; plans of that task consider it.
        decoding: what it takes to turn n reports into the estimate, in words.
        also_known_as: what the literature calls it; a subclass does not inherit it.
    """

    local_epsilon: float  # a field of every subclass; not one here, so that sizes come before it

    exactness: ClassVar[str] = "exact"
    messages_per_user: ClassVar[int] = 1
    protects_alone: ClassVar[bool] = True
    task: ClassVar[registry.Task] = "frequency"
    decoding: ClassVar[str] = ""
    also_known_as: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        registry.register(cls)

    def __post_init__(self) -> None:
        epsilon = self.local_epsilon
        if not self.protects_alone:
            if epsilon != math.inf:
                raise ValueError(f"local_epsilon must be infinite, got {epsilon!r}")
            return
        real = isinstance(epsilon, Real) and not isinstance(epsilon, bool)
        if not (real and math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"local_epsilon must be a finite number > 0, got {epsilon!r}")
        if epsilon < MIN_LOCAL_EPSILON:
            raise ValueError(f"local_epsilon must be at least {MIN_LOCAL_EPSILON}, got {epsilon!r}")
        object.__setattr__(self, "local_epsilon", float(epsilon))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: cached tables are large, and are rebuilt where they are used."""
        return {f.name: getattr(self, f.name) for f in fields(cast(Any, self))}

    def for_release(self, identity: ReleaseIdentity) -> Self:
        """The mechanism of one release: a public seed that nobody gave follows from the identity.

        Devices, workers and the collector of a release thereby agree on it; the programs and the
        composites ask for it wherever a release has a name.
        """
        return self

    # What one user sends ------------------------------------------------------------------

    @property
    def words_per_user(self) -> int:
        """Random words that a block kernel receives per user."""
        return 1

    @abstractmethod
    def log_ratio_max(self) -> float:
        """The implemented budget: at most `local_epsilon`, and within 1e-8 of it."""

    def randomize(self, values: np.ndarray, rng: Rng = None) -> np.ndarray:
        """One report per value.

        Args:
            values: `(n,)` or `(n, ...)` array in the mechanism's input domain.
            rng: None draws fresh secure words; `UserRandomness` memoizes; a NumPy generator
                simulates and protects nobody.

        Returns:
            `(n,) + report_shape` array of `report_dtype`.

        Raises:
            ValueError: if a value lies outside the input domain (values are never quoted).
        """
        values = self._check_values(np.asarray(values))
        words = word_source(rng, self.config_digest(), values)
        reports = np.empty((len(values), *self.report_shape), dtype=self.report_dtype)
        step = max(1, _CHUNK_WORDS // self.words_per_user)
        for start in range(0, len(values), step):
            stop = min(start + step, len(values))

            def extra(rows: np.ndarray, positions: np.ndarray, start: int = start) -> np.ndarray:
                return words.extra(rows + start, positions)

            block = words.words(start, stop, self.words_per_user)
            self._randomize_block(values[start:stop], block, extra, reports[start:stop])
        return reports

    def example_values(self, count: int) -> np.ndarray:
        """So many values that a device may hold, to time the mechanism with."""
        raise NotImplementedError(f"{type(self).__name__} has no example values")

    @abstractmethod
    def _check_values(self, values: np.ndarray) -> np.ndarray:
        """The values in the form that `_randomize_block` takes, or a ValueError."""

    @abstractmethod
    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        """Fill `reports` from `values` and `words` of shape `(n, words_per_user)`."""

    # What the collector does with it -----------------------------------------------------

    @property
    @abstractmethod
    def statistic_shape(self) -> tuple[int, ...]:
        """Shape of the linear statistic."""

    @property
    def statistic_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    @abstractmethod
    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        """The linear statistic of these reports: statistics of disjoint sets of reports add."""

    @abstractmethod
    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> Estimate:
        """Unbiased estimate with its standard error (NaN and infinite for zero users).

        Args:
            statistic: sum of `accumulate` over all reports.
            num_users: users whose reports were received.
            sampling: "fixed" for the error about these users' own values; "iid" for the error
                about the population that they were drawn from.
        """

    @abstractmethod
    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance of each component of `Estimate.value`; the worst truth if None."""

    @property
    def reach(self) -> float:
        """How far one person who forges her reports moves `num_users` times the estimate.

        The farthest that anything she can send is read from a value of the domain, hers or not; an
        honest person's reports are read as her value on average. So F forgers among n people move
        the estimate by at most F/n times this, and a report that no device sends moves nothing: it
        is refused (`possible`). Frequencies: of one value's count, in people. Means: Euclidean
        length, in the unit of the data.

        Against forgers nothing is promised but this: the local epsilon says how little a report
        tells, and for the same reason each counts for more than one. (Cheu, Smith and Ullman 2021
        prove that no mechanism does much better.)

        Raises:
            NotImplementedError: if the mechanism does not say.

        >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
        >>> round(KRandomizedResponse(266, 4.0).reach, 2)
        5.94
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how far a report reaches")

    # What it costs -----------------------------------------------------------------------

    def channel(self) -> np.ndarray:
        """P(report | value): rows are reports, columns values, where finite and small."""
        raise NotImplementedError(f"{type(self).__name__} has no small finite channel")

    def channel_reports(self) -> np.ndarray:
        """The reports that the rows of `channel` stand for."""
        return np.arange(len(self.channel()), dtype=self.report_dtype)

    @property
    def two_levels(self) -> TwoLevels | None:
        """The law, where it has two levels above a uniform blanket: the mechanism's own blanket.

        Says which two values are the worst pair, and why.
        """
        return None

    @property
    def triple_shares(self) -> tuple[float, ...]:
        """Of `two_levels`: shares of reports that three values favour, for each kind of third."""
        return ()

    def dominating_pair(self) -> ShufflePair:
        """What shuffling hides one report in: its two levels, or else the clone pair, unless a
        mechanism knows better."""
        levels = self.two_levels
        if levels is None:
            return ShufflePair.clones(self.local_epsilon)
        return ShufflePair.two_level(*levels[:4])

    @property
    def sends_bits(self) -> bool:
        """Whether each message is one of two reports, about the same for everybody.

        And by no value is one of them likelier, or less likely, than by the two values of the pair
        (of message columns: of `message_pairs`). Where people are in public groups, within a group.
        """
        return False

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Concrete pairs of datasets for lower bounds of the shuffled price; none unless known."""
        levels = self.two_levels
        if levels is None:
            return ()
        ratio, support, overlap, _, attained = levels
        return two_level_witnesses(attained or ratio, support, overlap, self.triple_shares)

    @property
    def public_groups(self) -> int:
        """Groups that split a crowd: everybody is in one of them, at random, for all to see.

        More than 1 where a report carries something public that is tied to the user. It is drawn
        anew for each report, each group equally likely, whatever the value.
        """
        return 1

    @property
    def telling_groups(self) -> int:
        """Of the `public_groups`, in how many at most the reports of any two values can differ."""
        return self.public_groups

    def crowd_size(self, num_reports: int) -> int:
        """Reports among which one report hides once shuffled, about as many as in a public group.

        All of them, unless there are several `public_groups`. Those are priced by the chances of
        every size of the person's own, not by this number.

        Overriding this method makes a rule of its own (`own_crowd_rule`): what it says of a number
        of reports must hold for certain, and the event of one report, a sample or fakes have no
        price.
        """
        return -(-num_reports // self.public_groups)

    def dp_event(self) -> Any:
        """One report of one person as a privacy event: `accounting.local_event`."""
        return accounting("shuffle.one_release").local_event(self)

    # What it is called -------------------------------------------------------------------

    def to_config(self) -> dict[str, Any]:
        """Parameters as JSON-able values; they travel with the reports and into the ledger."""
        name = registry.name_of(type(self))
        config: dict[str, Any] = {"mechanism": name, "version": CONFIG_VERSION}
        config.update({f.name: getattr(self, f.name) for f in fields(cast(Any, self)) if f.init})
        return config

    @staticmethod
    def from_config(config: dict[str, Any]) -> LocalRandomizer:
        """The randomizer that `to_config` described.

        Nothing is imported because a configuration names it: it may come from anybody. Found are
        this package's mechanisms, installed ones (`registry.ENTRY_POINTS`), and those that the
        program has imported itself.

        Raises:
            ValueError: on an unknown mechanism, version or parameter.
        """
        parameters = dict(config)
        name, version = parameters.pop("mechanism", None), parameters.pop("version", None)
        kind = registry.find(name)
        if kind is None:
            raise ValueError(
                f"mechanism must be the name of a randomizer that is known here, got {name!r} "
                "(one from elsewhere is installed, or named with --mechanism package:Class)"
            )
        if version != CONFIG_VERSION:
            raise ValueError(f"version must be {CONFIG_VERSION}, got {version!r}")
        try:
            return cast(LocalRandomizer, kind(**parameters))
        except TypeError as error:
            raise ValueError(f"config does not fit {name}: {error}") from None

    def config_digest(self) -> bytes:
        """16 bytes that identify the mechanism and all its parameters."""
        return config_digest(self.to_config())


def accounting(module: str) -> Any:
    """A module of `beam_ldp.accounting`.

    The one look upward, when it is called: randomizers run without the accountant (a device has
    no use for it), and know that it exists for those who calibrate or price where it is installed.
    """
    return importlib.import_module(f"beam_ldp.accounting.{module}")


def own_crowd_rule(mechanism: Any) -> bool:
    """Whether a mechanism splits crowds by a rule of its own, of which `public_groups` is not all.

    Told from whose `crowd_size` it is: no rule can be told from what it says of a few numbers.
    """
    rule = getattr(mechanism, "crowd_size", None)
    return rule is not None and getattr(rule, "__func__", None) is not LocalRandomizer.crowd_size


def check_sampling(sampling: str) -> None:
    """A ValueError unless `sampling` is one that error formulas know."""
    if sampling not in ("fixed", "iid"):
        raise ValueError(f'sampling must be "fixed" or "iid", got {sampling!r}')
