"""MLflow's tables take more than a second of CPU to make; they are made once in each process.

Every other store on SQLite begins as a copy of those first tables, before anything stood in them.
Programs that tests start in processes of their own make them anew.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

UTILS = "mlflow.store.db.utils"
_first = sqlite3.connect(":memory:", check_same_thread=False)


def remember() -> None:
    """From now on, where MLflow is loaded already; loading it takes seconds, too."""
    utils: Any = sys.modules.get(UTILS)
    if utils is None or hasattr(utils._initialize_tables, "__wrapped__"):
        return
    make = utils._initialize_tables

    def initialize(engine: Any) -> None:
        path = engine.url.database
        if engine.dialect.name != "sqlite" or path in (None, "", ":memory:"):
            return make(engine)
        known = _first.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not known:
            make(engine)
        there = sqlite3.connect(path)
        try:
            _first.backup(there) if known else there.backup(_first)
        finally:
            there.close()

    initialize.__wrapped__ = make  # type: ignore[attr-defined]
    utils._initialize_tables = initialize
