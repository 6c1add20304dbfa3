"""The flags of `frequency --stream`."""

from __future__ import annotations

import re

from beam_ldp.pipelines.flags import Flags

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `2h`, `1d` or `250ms`, in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if found is None:
        raise ValueError
    return float(found[1]) * _UNITS[found[2] or "s"]


seconds.__name__ = "time such as 90s, 5m, 2h"


STREAM_FLAGS: Flags = {
    "--stream": {
        "action": "store_true", "default": False,
        "help": "files keep arriving: release one window after another, until Ctrl-C or until the "
        "budget is used up (docs/streaming.md)",
    },
    "--time-column": {
        "metavar": "NAME", "help": "with --stream: column with the event time of each row",
    },
    "--window": {
        "type": seconds, "metavar": "TIME", "help": "with --stream: length of a window, such as "
        "60s",
    },
    "--slide": {
        "type": seconds, "metavar": "TIME",
        "help": "with --window: release each pane of this length once, and add panes up to "
        "overlapping windows",
    },
    "--session-gap": {
        "type": seconds, "metavar": "TIME",
        "help": "with --stream: session windows, which end after a gap of this length; needs "
        "--public-bounds",
    },
    "--public-bounds": {
        "action": "store_true", "default": False,
        "help": "declares that the times at which single rows were sent are public",
    },
    "--allowed-lateness": {
        "type": seconds, "default": 0.0, "metavar": "TIME",
        "help": "how long late rows of a window are accepted (default: not at all)",
    },
    "--late": {
        "choices": ["release", "dead-letter"], "default": "release",
        "help": "late rows: released on their own, if there are enough of them, or only counted",
    },
    "--watermark-delay": {
        "type": seconds, "default": 10.0, "metavar": "TIME",
        "help": "how long after its end a window closes (default 10s)",
    },
    "--stop-after": {
        "type": seconds, "metavar": "TIME", "help": "stop after this time, as with Ctrl-C",
    },
}  # fmt: skip
