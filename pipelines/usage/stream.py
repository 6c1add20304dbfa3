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
        "help": "the files keep arriving: release one window after the other, until Ctrl-C or "
        "until the budget is used (docs/streaming.md)",
    },
    "--time-column": {
        "metavar": "NAME", "help": "with --stream: column that holds each row's time",
    },
    "--window": {
        "type": seconds, "metavar": "TIME", "help": "with --stream: length of a window, as in 60s",
    },
    "--slide": {
        "type": seconds, "metavar": "TIME",
        "help": "with --window: release panes of this length, each once, and add them to windows "
        "that overlap",
    },
    "--session-gap": {
        "type": seconds, "metavar": "TIME",
        "help": "with --stream: windows that end where nobody sent anything for so long; needs "
        "--public-bounds",
    },
    "--public-bounds": {
        "action": "store_true", "default": False,
        "help": "declare that anybody may know at which times single rows were sent",
    },
    "--allowed-lateness": {
        "type": seconds, "default": 0.0, "metavar": "TIME",
        "help": "how long late rows of a window are gathered (default: not at all)",
    },
    "--late": {
        "choices": ["release", "dead-letter"], "default": "release",
        "help": "late rows: a release of their own, if they are enough, or only counted",
    },
    "--watermark-delay": {
        "type": seconds, "default": 10.0, "metavar": "TIME",
        "help": "a window closes when the clock is so far past its end (default 10s)",
    },
    "--stop-after": {
        "type": seconds, "metavar": "TIME", "help": "end as with Ctrl-C after so long",
    },
}  # fmt: skip
