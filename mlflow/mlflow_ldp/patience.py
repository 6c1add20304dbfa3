"""How long a program waits for a tracking server: a slow one must not hold what it records.

A request that is under way cannot be stopped, so it goes on in a thread of its own, which the
program no longer waits for. A late answer still counts: what it carried has arrived.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

SECONDS_VARIABLE = "BEAM_LDP_TRACKING_SECONDS"
USUAL_SECONDS = 60.0
_OURS = {  # by themselves requests and retries would take a quarter of an hour
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "{seconds:.0f}",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # which may be JSON for another program
}

_T = TypeVar("_T")


class TrackingTimeoutError(RuntimeError):
    """The tracking server did not answer in time."""


def tracking_seconds() -> float:
    """How long to wait: the environment variable BEAM_LDP_TRACKING_SECONDS, or a minute.

    Raises:
        ValueError: if the variable is no number above zero.
    """
    text = os.environ.get(SECONDS_VARIABLE)
    if not text:
        return USUAL_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"{SECONDS_VARIABLE} must be a number of seconds above zero")
    return seconds


class Patience:
    """Does one thing after the other, and waits for each only so long.

    Args:
        seconds: to wait; default: see `tracking_seconds`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = tracking_seconds() if seconds is None else seconds
        self._at_work: threading.Thread | None = None

    def do(self, work: Callable[[], _T]) -> _T:
        """What `work` gives.

        Raises:
            TrackingTimeoutError: if it takes longer, or what was begun before is still not done;
                `work` is then not begun.
        """
        if self._at_work is not None and self._at_work.is_alive():
            raise TrackingTimeoutError("the tracking server still holds an earlier request")
        done: dict[str, Any] = {}

        def run() -> None:
            try:
                done["result"] = work()
            except BaseException as error:  # raised where it is waited for
                done["error"] = error

        with _mlflow_settings(self.seconds):
            self._at_work = threading.Thread(target=run, name="beam-ldp-tracking", daemon=True)
            self._at_work.start()
            self._at_work.join(self.seconds)
        if "error" in done:
            raise done["error"]
        if "result" not in done:
            raise TrackingTimeoutError(
                f"the tracking server did not answer within {self.seconds:g} s ({SECONDS_VARIABLE})"
            )
        result: _T = done["result"]
        return result


@contextmanager
def _mlflow_settings(seconds: float) -> Iterator[None]:
    """MLflow's requests end too, and say nothing, unless the user has set it otherwise."""
    ours = {
        name: how.format(seconds=max(1.0, seconds))
        for name, how in _OURS.items()
        if name not in os.environ
    }
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
