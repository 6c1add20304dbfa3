"""The end of a release: what is finished is settled in the ledger, and only then appears.

Whatever happens between the steps, what is public has been charged. What is finished outlives this
process from the moment it may be settled, for `beam-ldp finalize` to go on with.
"""

from __future__ import annotations

from apache_beam.io.filesystem import BeamIOError

from beam_ldp import log_events
from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.records.gates import NotPublishedError
from beam_ldp.pipelines.records.record import PrivacyRecord


def release(
    charge: NoCharge, record: PrivacyRecord, folder: outputs.OutputFolder, staging: str
) -> None:
    """Settle what is finished, and publish it.

    Args:
        charge: of the run.
        record: of what is released.
        folder: where all files are finished.
        staging: where the run left its note.

    Raises:
        NotPublishedError: if the ledger or the place does not take it; where somebody may go on
            with it later, it is kept.
    """
    try:
        settle(charge, record, folder)
        publish(folder)
    except NotPublishedError:
        if folder.keep:
            charge.let_go(staging)
        raise


def settle(charge: NoCharge, record: PrivacyRecord, folder: outputs.OutputFolder) -> None:
    """Write down what will be published. The finished output then outlives this process.

    Raises:
        NotPublishedError: if the ledger did not take it: it is away, or refuses.
    """
    if record.run_id is None:
        return
    from beam_ldp.ledger import LedgerError

    folder.keep = True
    try:
        charge.settle(record.to_json())
    except LedgerError as error:
        folder.keep = False
        raise NotPublishedError(f"nothing was published: {error}") from None
    except Exception as error:
        log_events.say(log_events.UNSETTLED, run_id=record.run_id)
        raise NotPublishedError(
            f"nothing was published: the ledger could not be written ({type(error).__name__}), so "
            "the run stays charged at its worst case. The result is kept: `beam-ldp finalize "
            f"{folder.path}` settles and publishes it"
        ) from None
    log_events.say(log_events.SETTLED, run_id=record.run_id)


def publish(folder: outputs.OutputFolder) -> None:
    """The finished output appears.

    Raises:
        NotPublishedError: if its place does not take it.
    """
    try:
        folder.publish()
    except (OSError, BeamIOError, outputs.OutputError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotPublishedError(
            f"nothing was published: {why}. What was released is settled, and kept beside "
            f"--output: `beam-ldp finalize {folder.path}` publishes it"
        ) from None
    folder.keep = False
