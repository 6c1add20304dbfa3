"""A later level of a search: its price stands with the first, and its reports are known again.

The first level of a search is charged for all. What is collected of a later one is written down
beside that, at no cost: the same envelopes again give the same bytes, and others are refused. Two
sums of one level that differ by few people's reports show those among few, whatever was charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beam_ldp.questions.heavy_hitters import PublishedWords, search_of
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import OLD_DIGEST, is_old, same_set
from beam_ldp.release.charging import ChargeSettings, NoCharge
from beam_ldp.release.devices.release_file import release_of_level
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.release.reserving import ledger_errors, ledger_url
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge

CHARGED = "no: a search is charged with its first level, for all of them"


def later_level(
    settings: ChargeSettings, asked: PublishedWords, identity: ReleaseIdentity
) -> NoCharge:
    """What stands for the charge of a later level.

    Args:
        settings: the flags; without a ledger nothing is remembered.
        asked: the question of the level.
        identity: its own.

    Raises:
        SettingError: if the ledger that is named holds no charge of the first level.
    """
    url = ledger_url(settings)
    if url is None:
        return NoCharge(CHARGED)
    first = PublishedWords.first(
        asked.column, asked.protocol, asked.min_reports, asked.honest_fraction
    )
    search = release_of_level(first, search_of(identity)).terms.identity
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger

        ledger = BudgetLedger(url)
        charge = ledger.published(search)
    if charge is None:
        raise SettingError(
            f"--ledger: level 1 of this search ({search.release_id!r}) was not collected with this "
            "ledger, which is charged there for all levels"
        )
    return LaterLevel(ledger, charge, replace(search, part=identity.part))


class LaterLevel(NoCharge):
    """Free, and written down.

    Args:
        ledger: that was charged for the search.
        first: the charge of its first level.
        identity: of this level, under the names of the first: a release stands for one question.
    """

    def __init__(self, ledger: BudgetLedger, first: Charge, identity: ReleaseIdentity) -> None:
        super().__init__(CHARGED)
        self._ledger, self._first, self._identity = ledger, first, identity

    def settle(self, record: Mapping[str, Any]) -> None:
        """Write down which envelopes are released.

        Raises:
            NotPublishedError: if others were, or another collection takes over, or the ledger is
                away.
        """
        from beam_ldp.ledger import LedgerError

        # Its identity, with the question that follows from the level before, is in the digest.
        digest = record["report_digest"]
        try:
            before = self._ledger.published(self._identity)
            if before is None:
                self._write(digest, record)
            elif is_old(before.report_digest):
                raise NotPublishedError(f"nothing was released: {OLD_DIGEST}")
            elif not same_set(before.report_digest, digest):
                raise NotPublishedError(
                    "nothing was released: reports of this level were published before, and these "
                    "are not the same envelopes. Whoever compares the two publications sees the "
                    "reports of those who came in between, among few others or none: collect all "
                    "of them at once"
                )
        except NotPublishedError:
            raise
        except LedgerError as error:
            raise NotPublishedError(f"nothing was published: {error}") from None
        except Exception as error:
            raise NotPublishedError(
                f"nothing was published: the ledger could not be written ({type(error).__name__}). "
                "Collect the level again: the same envelopes are free"
            ) from None

    def tags(self, record: Mapping[str, Any]) -> dict[str, str]:
        """What ties an MLflow run to the one that shows what was charged for it."""
        from mlflow_ldp.runs import CHARGED_WITH_TAG

        return {CHARGED_WITH_TAG: self._first.run_id}

    def _write(self, digest: str | None, record: Mapping[str, Any]) -> None:
        import dp_accounting

        from beam_ldp.ledger.rows import short_name

        nothing, identity = dp_accounting.NoOpDpEvent(), self._identity
        run_id = short_name(f"{self._first.run_id}/{identity.part.replace(' ', '-')}")
        about = {
            "question": record["question"],
            "untracked": f"run {self._first.run_id} shows what was charged for it",
        }
        begun = self._ledger.reserve(
            self._first.dataset,
            run_id,
            nothing,
            identity=identity,
            memoized=True,
            quota=self._first.quota,
            privacy_unit=identity.privacy_unit,
            about=about,
        )
        self._ledger.settle(
            run_id,
            nothing,
            identity=identity,
            attempt=begun.attempt,
            report_digest=digest,
            about=about | {"num_reports": record["num_reports"]},
        )
