"""Privacy events as versioned JSON, for ledgers that outlive a program."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import attr

from beam_ldp.accounting.reports import (
    ComposedReports,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shares import ShuffledShares

if TYPE_CHECKING:
    import dp_accounting

FORMAT_VERSION = 1

_RECORDS = {  # what ran is written as its event, which need not be made for that
    LocalReports: "LocalRandomizerDpEvent",
    ShuffledReports: "ShuffledDpEvent",
    ShuffledMessages: "ShuffledMessagesDpEvent",
    ShuffledShares: "ShuffledSharesDpEvent",
    SampledReports: "SubsampledShuffledDpEvent",
    ComposedReports: "ComposedDpEvent",
}
_NUMBER = "number"  # the kind of what JSON cannot write
# Of one person's reports, written only where known: other events have the bytes they always had.
_WHERE_KNOWN = ("squared_change", "places")


@cache
def _own() -> dict[str, type[dp_accounting.DpEvent]]:
    from beam_ldp.accounting import events  # loads dp_accounting

    own = vars(events)  # all of them but dp_accounting's own
    names = (*_RECORDS.values(), "CommittedDpEvent")
    return {name: own[name] for name in names if name in own}


@cache
def _theirs() -> dict[str, type[dp_accounting.DpEvent]]:
    from dp_accounting import dp_event  # takes a second to load

    return {
        kind.__name__: kind
        for kind in vars(dp_event).values()
        if isinstance(kind, type)
        and issubclass(kind, dp_event.DpEvent)
        and kind not in (dp_event.DpEvent, dp_event.UnsupportedDpEvent)
    }


def _kinds() -> dict[str, type[dp_accounting.DpEvent]]:
    return _own() | _theirs()


def event_to_json(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """The event as JSON-able values; floats keep every bit.

    Raises:
        ValueError: for a kind of event that the format does not know.
    """
    return {"version": FORMAT_VERSION, "event": _encode(event)}


def event_from_json(data: dict[str, Any]) -> dp_accounting.DpEvent:
    """Inverse of `event_to_json`.

    Raises:
        ValueError: on an unknown version or kind, or on fields that do not fit it.
    """
    if data.get("version") != FORMAT_VERSION:
        raise ValueError(f"version must be {FORMAT_VERSION}, got {data.get('version')!r}")
    return _decode(data["event"])


def _encode(value: Any) -> Any:
    if attr.has(type(value)):
        name = _RECORDS.get(type(value)) or type(value).__name__
        if type(value) not in _RECORDS and _kinds().get(name) is not type(value):
            raise ValueError(f"event must be of a known kind, got {name}")
        fields = {f.name: _encode(getattr(value, f.name)) for f in attr.fields(type(value))}
        if isinstance(value, LocalReports) and value.squared_change is None:
            fields = {key: told for key, told in fields.items() if key not in _WHERE_KNOWN}
        if fields.get("telling_groups", 0) is None:
            del fields["telling_groups"]
        if not fields.get("outputs", 1):
            del fields["outputs"]
        return {"kind": name, **fields}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"kind": _NUMBER, "value": repr(value)}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, dict):
        return value
    fields = dict(value)
    name = fields.pop("kind", None)
    if name == _NUMBER:
        return float(fields["value"])
    kind = _kinds().get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"kind must be a known event, got {name!r}")
    decoded = {key: _decode(item) for key, item in fields.items()}
    if name in _theirs():
        decoded = {k: list(v) if isinstance(v, tuple) else v for k, v in decoded.items()}
    try:
        return kind(**decoded)
    except TypeError as error:
        raise ValueError(f"event does not fit {name}: {error}") from None
