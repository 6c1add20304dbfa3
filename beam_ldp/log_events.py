"""What is written to the log, and nothing else: a fixed list of events, with fixed fields.

Everything goes through the standard library's logger `beam_ldp`. Fields are numbers and names of
configuration (programs, mechanisms, runs), never what people sent, their ids, keys or seeds, nor
the text of an error that may quote one. A record has the attributes `ldp_event`, the name, and
`ldp_fields`, a dictionary, for whoever writes logs as JSON.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

LOGGER = "beam_ldp"
LONGEST_NAME = 200  # characters of a field

Field = str | int | float | bool | None


@dataclass(frozen=True)
class Event:
    """One kind of event.

    Attributes:
        name: stable: what alerts are written against.
        level: of the standard library.
        fields: what it tells, always all of them.
        meaning: when it is said.
    """

    name: str
    level: int
    fields: tuple[str, ...]
    meaning: str


STARTED = Event(
    "run.started",
    logging.INFO,
    ("program", "mechanism", "local_epsilon", "bits_per_report", "num_files"),
    "flags are checked, the mechanism is chosen, data are about to be read",
)
RELEASED = Event(
    "run.released",
    logging.INFO,
    ("program", "num_reports", "num_bad_rows", "epsilon", "delta"),
    "the output is complete; privacy costs are null in a simulation",
)
NOTHING_RELEASED = Event(
    "run.nothing_released",
    logging.INFO,
    ("program",),
    "a gate was not passed: reports, bad rows, privacy cost or budget",
)
REFUSED = Event(
    "run.refused", logging.INFO, ("program",), "a flag or an input is wrong; nothing was run"
)
FAILED = Event("run.failed", logging.INFO, ("program",), "the job failed; nothing was released")
REPORTS_WRITTEN = Event(
    "reports.written",
    logging.INFO,
    ("program", "num_reports", "num_files"),
    "`randomize` has written reports",
)
VALUES_RECOVERED = Event(
    "values.recovered",
    logging.INFO,
    ("program", "num_people"),
    "`recover` has read single values of people who consented",
)
RESERVED = Event(
    "budget.reserved", logging.INFO, ("program", "run_id"), "the worst case of a run is set aside"
)
SETTLED = Event("budget.settled", logging.INFO, ("run_id",), "what was released is written down")
UNSETTLED = Event(
    "budget.unsettled",
    logging.WARNING,
    ("run_id",),
    "the ledger was away: a release stays charged at its worst case",
)
NOT_LOGGED = Event(
    "record.not_logged", logging.INFO, ("program",), "MLflow was away: the release has no run there"
)
NOT_ANCHORED = Event(
    "ledger.not_anchored",
    logging.WARNING,
    ("place",),
    "the ledger's head cannot be kept there: nobody would notice that the database was restored "
    "from a backup and grants spent epsilon again (see BEAM_LDP_ANCHORS)",
)
FILE_CHANGED = Event(
    "stream.file_changed",
    logging.WARNING,
    ("bytes",),
    "a file of a stream changed after it was read: its later rows count nowhere (bad rows name it)",
)

EVENTS = (
    STARTED, RELEASED, NOTHING_RELEASED, REFUSED, FAILED, REPORTS_WRITTEN, VALUES_RECOVERED,
    RESERVED, SETTLED, UNSETTLED, NOT_LOGGED, NOT_ANCHORED,
    FILE_CHANGED,
)  # fmt: skip


def say(event: Event, **fields: Field) -> None:
    """Write one event.

    Raises:
        TypeError: unless exactly the fields of the event are given, each a number, a name of at
            most 200 characters, or None. No value is quoted.
    """
    if set(fields) != set(event.fields):
        raise TypeError(f"{event.name} has the fields {', '.join(event.fields)}")
    for name, value in fields.items():
        if not (value is None or isinstance(value, (str, int, float))):
            raise TypeError(f"{name} of {event.name} must be a number, a name or None")
        if isinstance(value, str) and len(value) > LONGEST_NAME:
            fields[name] = value[:LONGEST_NAME]
    told = " ".join(f"{name}={json.dumps(fields[name])}" for name in event.fields)
    logging.getLogger(LOGGER).log(
        event.level,
        "%s %s",
        event.name,
        told,
        extra={"ldp_event": event.name, "ldp_fields": dict(fields)},
    )
