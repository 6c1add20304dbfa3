"""What a client remembers of what it has told: one SQLite file, its own, beside its data.

A SuperNode starts a process for every message, and servers restart: without a memory the same
question would be answered with fresh noise, and nobody on the client's side would add up.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from beam_ldp.randomizers.checks import check_positive
from flower_adapters.messages import Question, Report

_SCHEMA = """
CREATE TABLE IF NOT EXISTS reports (
    training TEXT NOT NULL, round INTEGER NOT NULL, content TEXT NOT NULL,
    identity BLOB NOT NULL, payload BLOB, local_epsilon REAL NOT NULL,
    PRIMARY KEY (training, round))
"""
_WAIT = 60.0  # seconds for another process of the same client
_ROUNDING = 1e-9  # relative, of a sum of local epsilons


class RefusedQuestionError(RuntimeError):
    """The client does not answer. The server reads the reason, which depends neither on data nor
    on how much was told to whom."""


class ClientMemory:
    """What one client has told, and at what local epsilon in all.

    Each round of a training is answered once. Asked again, the client sends the same report, which
    tells nothing more; only that of a training's last answer is kept. Anything else under the name
    of a round that was answered is refused, and so is what would go beyond the limit. A report is
    counted in the transaction that stores it, before it is sent: a process that is killed has
    either told nothing, or what is in the file.

    The limit is that of this file. Whoever deletes it or puts an older one back starts anew, and
    nobody can see it: it protects its owner from servers, not a server from its clients.

    Args:
        path: of the file, made where it is missing, readable by its owner alone.
        local_epsilon_limit: for the sum over all trainings and rounds.
    """

    def __init__(self, path: str | os.PathLike[str], local_epsilon_limit: float) -> None:
        check_positive("local_epsilon_limit", local_epsilon_limit)
        self.path, self.limit = Path(path), float(local_epsilon_limit)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(self._open()) as database:
            database.execute(_SCHEMA)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)

    @property
    def local_epsilon(self) -> float:
        """Told so far, in all."""
        with closing(self._open()) as database:
            return _told(database)

    def recall(self, question: Question, local_epsilon: float) -> Report | None:
        """The report that this question was answered with; None if it may be answered now.

        Raises:
            RefusedQuestionError: if it may not.
        """
        with closing(self._open()) as database:
            return self._recall(database, question, local_epsilon)

    def keep(self, question: Question, local_epsilon: float, make: Callable[[], Report]) -> Report:
        """Make a report, count it, and store it; of two processes the first one's is both's.

        Raises:
            RefusedQuestionError: as of `recall`.
        """
        with closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")
            report = self._recall(database, question, local_epsilon)
            if report is None:
                report = make()
                database.execute(
                    "UPDATE reports SET payload = NULL WHERE training = ?", (question.training,)
                )
                database.execute(
                    "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)",
                    (question.training, question.number, question.content, report.identity,
                     report.payload, local_epsilon),
                )  # fmt: skip
            database.execute("COMMIT")
            return report

    def _recall(
        self, database: sqlite3.Connection, question: Question, local_epsilon: float
    ) -> Report | None:
        row = database.execute(
            "SELECT content, identity, payload FROM reports WHERE training = ? AND round = ?",
            (question.training, question.number),
        ).fetchone()
        named = f"round {question.number} of training {question.training!r}"
        if row is not None:
            content, identity, payload = row
            if content != question.content:
                raise RefusedQuestionError(f"{named} was answered, and asked something else then")
            if payload is None:
                raise RefusedQuestionError(f"{named} was answered, and later rounds were since")
            return Report(payload, identity)
        told = _told(database)
        if told + local_epsilon > self.limit * (1 + _ROUNDING):
            raise RefusedQuestionError(f"{named} would go beyond the limit of this client")
        return None


def _told(database: sqlite3.Connection) -> float:
    return float(database.execute("SELECT TOTAL(local_epsilon) FROM reports").fetchone()[0])
