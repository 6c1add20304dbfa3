"""What commands print: JSON, safe text, where files and runs are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from mlflow_ldp import LoggedRun


def printed_json(value: dict[str, Any]) -> str:
    """One JSON document on stdout."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def console_beside(form: str) -> Console:
    """Where people read: on stdout, unless that is for a program."""
    return Console(stderr=form == "json")


def printable(text: object) -> str:
    """Text whose control characters cannot steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def say_logged(console: Console, logged: LoggedRun | None) -> None:
    """Where the run is in MLflow, and how to look at it."""
    if logged is not None:
        where = f"[bold]MLflow[/bold] run {logged.run_id} in {escape(logged.shown_uri)}"
        console.print(where, soft_wrap=True)
        console.print(f"  {escape(logged.ui_command)}", soft_wrap=True)


def logged_as_json(logged: LoggedRun | None) -> dict[str, str | None]:
    """The same for programs."""
    if logged is None:
        return dict.fromkeys(("mlflow_run_id", "mlflow_uri", "mlflow_link"))
    return logged.to_json()


def say_files(console: Console, folder: str, purposes: Mapping[str, str]) -> None:
    """What was written where, and what for."""
    console.print(f"[bold]Written to[/bold] {escape(folder)}")
    width = max(map(len, _FILES))
    for name, purpose in {**_FILES, **purposes}.items():
        console.print(f"  {name.ljust(width)}  [dim]{purpose}[/dim]")


_FILES = {
    "estimates.csv": "",  # these two say what they hold in every program
    "estimates.parquet": "the same, for programs",
    "privacy.md": "the privacy statement, in plain words",
    "privacy.json": "the same, for programs",
    "plot.png": "",
}
