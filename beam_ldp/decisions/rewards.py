"""Rewards of a bandit's batch: what is asked, what it costs, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.decisions.bandits.noise import CentralSums, bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, BatchTerms
from beam_ldp.planning import Plan
from beam_ldp.questions.base import Asked, Choice, Rows
from beam_ldp.questions.columns import SOUND, TOO_LARGE, Codes
from beam_ldp.questions.encoders import Encoded, VectorEncoder
from beam_ldp.questions.means import local_price
from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.settings import Privacy
from beam_ldp.settings.job import Job
from beam_ldp.wording import number

if TYPE_CHECKING:
    from beam_ldp.accounting.prices import Price
    from beam_ldp.decisions.views import RewardView

METHOD = "discrete Laplace noise on each sum"  # of a server that is trusted
_MODELS = {"shuffled": "shuffle", "local": "local", "central": "central"}


def reward_digest(batch: str) -> bytes:
    """What stands for a batch in the identity of its release.

    Args:
        batch: digest of it, in hexadecimal.
    """
    return digest_of(b"bandit batch", bytes.fromhex(batch))


@dataclass(frozen=True, eq=False)
class Rewards(Asked):
    """What the reward of each play is, on average, and which actions may still be best.

    Attributes:
        column: with the reward, from -1 to 1.
        batch: digest of the batch that asks. It is part of the release's identity: another batch
            is another release.
        name: for the record.
        asks: the batch; None where no more is known than its digest.
        progress: of the bandit, before the batch.
    """

    column: str
    batch: str = ""
    name: str = ""
    asks: BatchTerms | None = None
    progress: BanditProgress | None = None
    estimates = "mean"
    only_listed = True  # a row whose play is not of this batch is a bad row
    vector_size = 1

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def open(self) -> BatchTerms:
        """The batch, where it is known."""
        assert self.asks is not None
        return self.asks

    def digest(self, mechanism: Any) -> bytes:
        return reward_digest(self.batch)

    def check(self, mechanism: Any) -> None:
        if not isinstance(mechanism, ScalarMean) or mechanism.radius != 1.0:
            raise TypeError("randomizer must be a ScalarMean of radius 1: rewards lie in [-1, 1]")

    def mechanism(self, privacy: Privacy) -> Any:
        if self.open.terms.trusts_the_server:
            return CentralSums(self.open.terms.bandit.epsilon)
        return bit_randomizer(self.open.local_epsilon)

    def encoder(self, mechanism: Any) -> RewardEncoder:
        return RewardEncoder(self.columns, 1)

    def on_devices(self, job: Job, mechanism: Any) -> RewardOnDevices:
        return RewardOnDevices(self.column, self.batch, self.open.plays)

    # Before the rewards -----------------------------------------------------------------------

    @property
    def whole_crowd(self) -> bool:
        """Whether people hide among all of the batch, and not only those with the same action."""
        bandit = self.open.terms.bandit
        return bandit.model == "shuffled" and bandit.amplify_over == "batch"

    @property
    def _crowd(self) -> int:
        return self.open.batch.people if self.whole_crowd else self.open.least

    def best(self, job: Job) -> Plan:
        mechanism = self.mechanism(job.privacy)
        return Plan(type(mechanism).__name__, mechanism)

    def chosen(self, job: Job, mechanism: Any) -> Choice:
        price = self._expected_price(job, mechanism)
        return Choice(mechanism, self._crowd, price, self.open.batch.width)

    def _expected_price(self, job: Job, mechanism: Any) -> Price:
        from beam_ldp.accounting.prices import expected_price

        if isinstance(mechanism, CentralSums):
            return central_price(mechanism)
        if not job.trusts_the_shuffler:
            return local_price(mechanism.local_epsilon)
        return expected_price(mechanism, self._crowd, job.privacy.delta, 1.0)

    def expectation(self, job: Job, choice: Choice) -> str:
        return (
            f"batch {self.open.number} drops actions that lose more than "
            f"{number(4 * choice.predicted_error)} against the best"
        )

    def inputs(self, job: Job) -> Rows:
        if self.asks is None:
            return []
        asks, terms = self.asks, self.asks.terms
        return [
            ("service", f"{terms.name}, {terms.digest[:16]}"),
            ("batch", f"{asks.number}, of {asks.batch.people:,} people"),
            ("actions", f"{len(asks.plays)} played, of {len(asks.batch.active)} left"),
        ]

    def expected(self, job: Job, choice: Choice) -> Rows:
        return [("drops actions that lose", f"more than {number(4 * choice.predicted_error)}")]

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        return {"batch": self.open.to_json()}

    # After them -------------------------------------------------------------------------------

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        if self.open.terms.trusts_the_server:
            return central_price(choice.mechanism)
        if job.trusts_the_shuffler:
            return super().price(job, choice, release)
        return local_price(release.mechanism["local_epsilon"])

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        """With `model`, "shuffle", "local" (nobody but the device is trusted) or "central" (the
        server is); `service`, the digest of its terms; `batch`, which it is; `amplify_over`,
        "batch" where people hide among all of it, "action" where among those with the same action,
        None without a shuffler; `best`, the action with the largest estimate; and `survivors`, how
        many actions may still be best."""
        asks, view = self.open, self.view(job, choice, release)
        bandit, trusts = asks.terms.bandit, asks.terms.trusts_the_server
        return {
            "kind": "central_batch" if trusts else "bandit_batch",
            "statistic": "bandit batch",
            "model": _MODELS[bandit.model],
            "service": asks.terms.digest,
            "batch": asks.number,
            "amplify_over": bandit.amplify_over if bandit.model == "shuffled" else None,
            "best": view.best,
            "survivors": len(view.decided.survivors),
        }

    def view(self, job: Job, choice: Choice, release: Any, truth: Any = None) -> RewardView:
        """Of all plays together: they decide together."""
        from beam_ldp.decisions.views import RewardView

        found = {
            part.group: (part.num_reports, float(part.estimate.raw.value[0]) * part.num_reports)
            for part in release.releases
            if part.group is not None
        }
        assert self.progress is not None
        return RewardView(release, self.open, self.progress.after(self.open.heard(found)))

    def view_of_parts(self, job: Job, choice: Choice, parts: Any) -> RewardView:
        return self.view(job, choice, parts)


def central_price(sums: CentralSums) -> Price:
    """What a batch costs readers of its sums: exactly the epsilon of the noise, at delta 0."""
    from beam_ldp.accounting import PrivacyBound
    from beam_ldp.accounting.prices import Price

    bound = PrivacyBound(
        sums.epsilon, lower=sums.epsilon, method=METHOD, lower_method="a reward of -1 becomes 1"
    )
    return Price(bound, 1, sums.event)


@dataclass(frozen=True)
class RewardEncoder(VectorEncoder):
    """A column of rewards: numbers of [-1, 1], or text that spells one. Any other row is bad.

    Nothing is clipped: a reward outside says that the data are not what the bandit learns from.
    """

    instead = None

    def fitted(self, vectors: np.ndarray, codes: Codes) -> Encoded:
        beyond = (codes == SOUND) & (np.abs(vectors[:, 0]) > 1)
        codes[beyond] = TOO_LARGE
        vectors[beyond] = 0.0
        return vectors, codes

    @property
    def shown(self) -> dict[str, Any]:
        return {"reward": "-1 to 1"}


# On devices -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewardOnDevices(Published):
    """What a person's reward was, in one batch of a bandit.

    Attributes:
        column: with the reward, from -1 to 1.
        batch: its digest, in hexadecimal.
        plays: that the batch asks about; a report says which of them it is of.
    """

    answered_by = "beam_ldp.decisions.bandit_collect:rewards_on_devices"

    column: str
    batch: str
    plays: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.batch) != 64 or set(self.batch) - set("0123456789abcdef"):
            raise ValueError("questions: batch must be 32 bytes in hexadecimal")
        if not self.plays or len(set(self.plays)) < len(self.plays):
            raise ValueError("questions: plays must be distinct names")

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "batch": self.batch, "plays": list(self.plays)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> RewardOnDevices:
        column, batch = names_in([found["column"], found["batch"]])
        return cls(column, batch, names_in(found["plays"]))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        return reward_digest(self.batch)

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, ScalarMean) or randomizer.radius != 1.0:
            raise ValueError("release terms contradict themselves: a reward lies in [-1, 1]")
