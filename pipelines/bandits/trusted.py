"""Batches of a bandit whose server is trusted with rewards: what is refused, their price, words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_ldp.accounting import PrivacyBound
from beam_ldp.pipelines.records.gates import Price
from beam_ldp.protocols.bandits.central import CentralSums
from beam_ldp.settings import Charge, Noise, SettingError

if TYPE_CHECKING:
    pass

METHOD = "discrete Laplace noise on each sum"


def check_reports(noise: Noise, charge: Charge) -> None:
    """A SettingError for flags about what each person would randomize, and would be charged for."""
    given = {
        "--people-store": charge.people_store,
        "--memoize-key-file": noise.key_file,
        "--interaction-log": noise.log,
    }
    for flag, value in given.items():
        if value is not None:
            raise SettingError(
                f"{flag} cannot be used with a service of --model central: people send rewards as "
                "they are, without a local epsilon, and the server draws noise once, of each sum"
            )


def central_price(sums: CentralSums) -> Price:
    """What a batch costs readers of its sums: exactly the epsilon of the noise, at delta 0."""
    bound = PrivacyBound(
        sums.epsilon, lower=sums.epsilon, method=METHOD, lower_method="a reward of -1 becomes 1"
    )
    return Price(bound, 1, sums.event)
