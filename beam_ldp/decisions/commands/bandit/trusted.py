"""Batches of a bandit whose server is trusted with rewards: what is refused, their price, words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from beam_ldp.accounting import PrivacyBound
from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.pipelines.records.gates import Price
from beam_ldp.pipelines.records.statement import Words
from beam_ldp.settings import Charge, Noise, SettingError

if TYPE_CHECKING:
    from beam_ldp.decisions.commands.bandit.choice import BatchRecord

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


def central_words(words: Words, record: BatchRecord) -> Words:
    """What the statement says where the server is trusted."""
    return replace(
        words,
        first="**The server is trusted with every reward, and with whose it is "
        "(`--model central`).** Against it, and against the machines that the job ran on, there is "
        "no epsilon. Everybody else sees sums with noise.",
        whole="a person's reward, as the server does",
        whole_briefly="rewards, as the server does",
        itself="the reward itself",
        outside="the result",
        crowd="every person on their own, however many there are",
        actors="* **The server**, that is whoever reads the rewards, the workers of the runner and "
        "where they keep what they work on, sees each reward, its play, and whose it is. **It is "
        "trusted.**\n"
        "* **Everybody who reads the result** sees one sum of rewards for each play, with noise. "
        "Against them the epsilon above holds, if nobody sees rewards, sums without noise, or the "
        "noise.",
        counted=f"The rewards of {record.num_reports:,} people were added up. The privacy cost "
        "does not depend on how many there are, nor on whether they are honest: the noise is that "
        "of one person, who has a part in one sum",
        noise="* noise: one integer for each sum, drawn once from its exact law by the operating "
        "system's generator, and fixed before anything was read of the sum",
        promised="the epsilon, at delta 0",
        intervals="for the mean reward of each play by itself, of all people who might have come: "
        "they count the noise by its law, and the most that rewards vary",
        notes=tuple(note for note in words.notes if "released, each with its own" not in note),
        weak="",
    )
