"""An open ledger: where its rows are, what they amount to now, and how more are appended.

All that talks to the database is here and in `store`.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from beam_ldp.ledger import kinds
from beam_ldp.ledger.admission import BudgetStatus, budget_of, population_of, status_of
from beam_ldp.ledger.balances import Balances, Population
from beam_ldp.ledger.charges import Charge, followed, of_run, part_of, place
from beam_ldp.ledger.rows import (
    NO_HASH,
    Anchor,
    ChainHead,
    LedgerCorruptedError,
    LedgerError,
    Row,
    as_text,
    canonical,
    check_name,
    check_size,
    jumps,
    load_private,
    login,
    next_row,
    row_time,
)
from beam_ldp.ledger.sinks import Anchoring, AnchorSink, open_anchors, usual_anchors
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.store import Appender, LedgerUnavailableError, Reader, RowStore
from beam_ldp.randomizers.identity import ReleaseIdentity

# Who wrote a row: login, machine and version, and a signature where the writer has a key.
#
# The key is the writer's own (an Ed25519 key in PEM, in the file that BEAM_LDP_WRITER_KEY names):
# it shows who of several that may insert rows did insert this one. It is no key of the
# operator's.


KEY_VARIABLE = "BEAM_LDP_WRITER_KEY"
_PURPOSE = "beam-ldp: a row of a ledger"
_LONGEST = 200  # characters of a machine's name


@dataclass(frozen=True)
class Writer:
    """Who writes.

    Attributes:
        login, host, version: of the account, the machine and beam-ldp, as they say of themselves.
        key: signs each row; None: rows are not signed.
    """

    login: str
    host: str
    version: str
    key: Ed25519PrivateKey | None = None

    @classmethod
    def this(cls) -> Writer:
        """Who runs this process.

        Raises:
            ValueError: if BEAM_LDP_WRITER_KEY names no readable Ed25519 key.
        """
        path = os.environ.get(KEY_VARIABLE)
        try:
            key = load_private(Path(path).read_bytes()) if path else None
        except OSError:
            raise ValueError(f"{KEY_VARIABLE} names a file that cannot be read") from None
        return cls(login(), socket.gethostname()[:_LONGEST], _version(), key)

    def told(self, head: ChainHead, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the next row says of its writer."""
        about: dict[str, Any] = {
            "login": self.login,
            "host": self.host,
            "version": self.version,
            "key": None,
            "signature": None,
        }
        if self.key is None:
            return about
        about["key"] = _hex_of(self.key.public_key())
        content = _signed(head.count, head.hash, kind, {**body, "writer": about})
        return {**about, "signature": self.key.sign(content).hex()}


def signer_of(row: Row) -> str | None:
    """The public key that signed a row, hexadecimal; None if nobody did.

    Raises:
        ValueError: if the signature is not that of the key.
    """
    about = row.body.get("writer") or {}
    if about.get("signature") is None:
        return None
    unsigned = {**row.body, "writer": {**about, "signature": None}}
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(about["key"]))
        content = _signed(row.number, row.previous, row.kind, unsigned)
        key.verify(bytes.fromhex(about["signature"]), content)
    except (InvalidSignature, ValueError, TypeError, KeyError):
        raise ValueError(f"row {row.number} is not signed by the key that it names") from None
    return str(about["key"])


def _signed(number: int, previous: str, kind: str, body: dict[str, Any]) -> bytes:
    told = {"purpose": _PURPOSE, "number": number, "previous": previous, "kind": kind}
    return canonical({**told, "body": body})


def _hex_of(key: Ed25519PublicKey) -> str:
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _version() -> str:
    try:
        return metadata.version("beam-ldp")
    except metadata.PackageNotFoundError:  # from a folder of sources
        return ""


# Where runs are logged: named in the first row, so that an older program opens the ledger too.

MLFLOW_URI = "mlflow_uri"


def checked_uri(uri: str) -> str:
    """The address of MLflow's store as a ledger keeps it: of files, their whole path.

    Raises:
        ValueError: if it is no short text, or holds a password.
    """
    check_name(MLFLOW_URI, uri)
    if urlsplit(uri).password is not None:
        raise ValueError(
            f"{MLFLOW_URI} must hold no password, which the ledger would keep for good: see "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return absolute_uri(uri)


def absolute_uri(uri: str) -> str:
    """The address of MLflow's store, of files with their whole path."""
    if "://" not in uri and uri != "databricks":
        return Path(uri).absolute().as_uri()
    scheme, _, path = uri.partition(":///")
    return f"{scheme}:///{Path(path).absolute()}" if scheme == "sqlite" else uri


URL_VARIABLE = "BEAM_LDP_LEDGER"
CHECKPOINT_EVERY = 256  # rows
_DECIDES = (
    kinds.DATASET,
    kinds.RENAME,
    kinds.BUDGET,
    kinds.QUOTA,
    kinds.RESERVE,
)  # kinds of rows that a clock must be right for
_Ledger = TypeVar("_Ledger", bound="Connection")


class Connection:
    """A ledger in a database: what it tells, and what writing to it takes. See `BudgetLedger`.

    Args and errors: as of `BudgetLedger`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        anchors: str | AnchorSink | Anchoring | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise LedgerError(
                f"no ledger is given: give its URL (--ledger) or set {URL_VARIABLE}, for example "
                "sqlite:///privacy.db"
            )
        self._store = RowStore(url)
        self._store.check()
        self._named_anchors = open_anchors(anchors)
        self._clock = clock
        self._writer = Writer.this()
        self._balances: Balances | None = None
        self._state = LedgerState()
        self._alone = threading.RLock()  # threads may share a ledger

    @classmethod
    def create(
        cls: type[_Ledger],
        url: str,
        *,
        mlflow_uri: str | None = None,
        anchors: str | AnchorSink | Anchoring | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> _Ledger:
        """Make a ledger, or open the one that is there.

        Args:
            url, anchors, clock: as of the class.
            mlflow_uri: MLflow's store, or its server, where every run is logged that is charged to
                this ledger and names no other. It is named with the ledger, for good.

        Raises:
            LedgerError: if the ledger that is there names another one, or none.
            ValueError: if it is no short text, or holds a password, which a ledger would keep.
        """
        named = {} if mlflow_uri is None else {MLFLOW_URI: checked_uri(mlflow_uri)}
        store = RowStore(url)
        store.make()
        with store.writing() as appender:
            rows = appender.row(0)
            if not rows:
                body = {"ledger_id": uuid.uuid4().hex, **named}
                appender.append(next_row(ChainHead(), kinds.GENESIS, body))
            elif named and rows[0].body.get(MLFLOW_URI) != named[MLFLOW_URI]:
                raise LedgerError(
                    f"{store.shown_url} holds a ledger that names "
                    f"{rows[0].body.get(MLFLOW_URI) or 'no store of MLflow'}, which is named when "
                    "a ledger is made. For runs of this one, set MLFLOW_TRACKING_URI or give "
                    "--mlflow-uri"
                )
        store.close()
        made = cls(url, anchors=anchors, clock=clock)
        if made.balances.head.count == 1:
            made._check_anchors()  # leaves the first one
        return made

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a BudgetLedger cannot be pickled: pass its URL, and open it where it is used"
        )

    @property
    def url(self) -> str:
        """The database, without a password."""
        return self._store.shown_url

    @property
    def ledger_id(self) -> str:
        """Its name, which no other ledger has."""
        return (self._balances or self.balances).ledger_id

    @cached_property
    def mlflow_uri(self) -> str | None:
        """MLflow's store that its runs share; None if none was named with it."""
        return next((row.body.get(MLFLOW_URI) for row in self._store.row(0)), None)

    @property
    def balances(self) -> Balances:
        """Where every population stands, as of now: from the last checkpoint on.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone, self._store.reading() as reader:
            return self._current(reader)

    @property
    def state(self) -> LedgerState:
        """Everything, as of now, read and checked from the first row on: for audits and reports.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone, self._store.reading() as reader:
            self._state.apply(after(self._state.head, reader))
            return self._state

    def rows(self) -> list[Row]:
        """All rows as they stand, for audits: unchecked."""
        return self._store.rows()

    def has_run(self, run_id: str) -> bool:
        """Whether there is a charge of this name."""
        with self._store.reading() as reader:
            return bool(reader.rows_of_run(run_id))

    def charge(self, run_id: str, part: str = "") -> Charge:
        """The charge of a run; of a block, what is left of it, or one part that has ended.

        Raises:
            LedgerError: if there is none.
        """
        with self._store.reading() as reader:
            return charge_of(reader, run_id, part)

    def published(self, identity: ReleaseIdentity) -> Charge | None:
        """The charge under which this very release was published; None if not. For reports that
        stay the same: of memoized noise, or from devices."""
        equal = self._equal(identity)
        return next((c for c in equal if c.status == "settled" and not c.is_block), None)

    def open_charge(self, identity: ReleaseIdentity) -> Charge | None:
        """The open charge of this very release, under which another start of it goes on; None
        without one. For reports that stay the same: of memoized noise, or from devices."""
        equal = self._equal(identity)
        return next((c for c in equal if c.status == "reserved" and c.memoized), None)

    def ended_block(self, identity: ReleaseIdentity) -> Charge | None:
        """A block of this very release of which every part has ended; None without one. For
        reports that stay the same: of memoized noise, or from devices."""
        equal = self._equal(identity)
        return next((c for c in equal if c.status == "settled" and c.is_block and c.memoized), None)

    def _equal(self, identity: ReleaseIdentity) -> list[Charge]:
        with self._store.reading() as reader:
            return equal_releases(reader, identity)

    def population(self, dataset: str) -> str:
        """Name of the population of a dataset.

        Raises:
            LedgerError: for an unknown dataset.
        """
        return population_of(self.balances, dataset).name

    def status(self, dataset: str) -> BudgetStatus:
        """Where the population of a dataset stands."""
        population, now = self._standing(dataset)
        period = budget_of(population, dataset).period_of(now)
        return status_of(population, period, lambda: self._charges(dataset, period))

    def _standing(self, dataset: str) -> tuple[Population, str]:
        """The population of a dataset, and what time it is for it."""
        with self._alone, self._store.reading() as reader:
            balances = self._current(reader)
            now = self._time(reader)[0]
        now = balances.time if jumps(now, balances.time) else max(now, balances.time)
        return population_of(balances, dataset), now

    def _charges(self, dataset: str, period: int) -> tuple[Charge, ...]:
        return tuple(self.state.population_of(dataset).charges_of(period))

    # For `BudgetLedger` ----------------------------------------------------------------------

    @contextmanager
    def _writing(
        self, run_id: str | None = None, attempt: str | None = None, *, spends: bool = False
    ) -> Iterator[Writing]:
        """The balances as of now, and a way to append; nobody else writes until it is committed.

        Args:
            run_id, attempt: of the charge, for errors.
            spends: whether people may be asked afterwards: refused if no anchor can be read.

        Raises:
            AnchorError: if the ledger lacks anchored rows; nothing is written.
        """
        with self._alone:
            it: Writing | None = None
            anchoring, anchor = self._anchoring, None
            if anchoring is not None:  # read before the lock is taken: then no row of it is newer
                anchor = self._check_anchors() if spends else anchoring.newest(self.ledger_id)
            try:
                with self._store.writing() as appender:
                    it = Writing(self, self._current(appender), appender)
                    if anchoring is not None and anchor is not None:
                        anchoring.check(anchor, it.balances.head, appender.row)
                    yield it
                    if it.rows and it.balances.since_checkpoint >= CHECKPOINT_EVERY:
                        it.append(kinds.CHECKPOINT, {"books": it.balances.to_json()})
            except BaseException as error:
                if it is not None and it.rows:
                    self._balances = None  # what was appended may not be there
                if isinstance(error, LedgerUnavailableError) and run_id is not None:
                    raise error.about(run_id, attempt) from None
                raise
            if it.rows and anchoring is not None:
                anchoring.after_append(it.balances.ledger_id, it.balances.head, self._store.row)

    @cached_property
    def _anchoring(self) -> Anchoring | None:
        return self._named_anchors or usual_anchors(self.ledger_id)

    @property
    def anchored_in(self) -> str | None:
        """Where its heads are kept that show that a backup was put back; None: nowhere."""
        return None if self._anchoring is None else self._anchoring.sink.name

    def _check_goes_on(self) -> None:
        """An AnchorError if the ledger was set back; writes nothing."""
        anchoring = self._anchoring
        if anchoring is not None and (anchor := anchoring.newest(self.ledger_id)) is not None:
            anchoring.check(anchor, self.balances.head, self._store.row)

    def _check_anchors(self) -> Anchor | None:
        """The newest anchor; an AnchorError if the ledger was set back, or nobody can tell."""
        if self._anchoring is None:
            return None
        balances = self.balances
        return self._anchoring.check_before_reserve(
            balances.ledger_id, balances.head, self._store.row
        )

    def _opened(self, dataset: str) -> Balances:
        """The balances as they were last read: for what does not change, such as orders.

        A dataset that others have made since is looked for anew.
        """
        if self._balances is not None and dataset in self._balances.datasets:
            return self._balances
        return self.balances

    def _current(self, reader: Reader) -> Balances:
        """The balances as of now. The last row that we know must still be there."""
        if self._balances is None:
            checkpoint = reader.last_checkpoint()
            balances = Balances() if checkpoint is None else Balances.from_checkpoint(checkpoint)
            balances.apply(reader.rows(balances.head.count))
            self._balances = balances
        else:
            self._balances.apply(after(self._balances.head, reader))
        return self._balances

    def _time(self, reader: Reader) -> tuple[str, bool]:
        """The time, and whether it is the database's."""
        if self._clock is not None:
            return as_text(self._clock()), False
        found = reader.now()
        return (as_text(datetime.now(timezone.utc)), False) if found is None else (
            as_text(found), True
        )  # fmt: skip


class Writing:
    """One transaction: the balances as of now, and what is appended to them."""

    def __init__(self, ledger: Connection, balances: Balances, appender: Appender) -> None:
        self.balances, self.appender, self.rows = balances, appender, list[Row]()
        self._ledger = ledger
        self._now: tuple[str, bool] | None = None

    def time(self, kind: str) -> str:
        """The time of the next row of a kind.

        Raises:
            LedgerError: if the clock has jumped.
        """
        if self._now is None:
            self._now = self._ledger._time(self.appender)
        now, trusted = self._now
        return row_time(now, self.balances.time, decides=kind in _DECIDES, trusted=trusted)

    def append(self, kind: str, body: dict[str, Any]) -> None:
        """Add a row."""
        head = self.balances.head
        body = {"time": self.time(kind) if kind != kinds.TIME else body["time"], **body}
        told = self._ledger._writer.told(head, kind, body)
        row = next_row(head, kind, {**body, "writer": told})
        if kind != kinds.CHECKPOINT:
            check_size(row)
        self.rows.append(row)
        self.balances.apply([row])
        self.appender.append(row)

    def follow(
        self, charge: Charge, kind: str, ended: Charge | None = None, part: str = "", **told: Any
    ) -> Charge:
        """Add a row with which a charge goes on; the charge after it.

        Args:
            charge: of the run.
            kind: of the row.
            ended: what goes on where that is a part of a block, or has ended.
            part: of a block.
            told: what else the row says.
        """
        self.append(kind, {**place(charge, part), "left": charge.count, **told})
        return followed(ended or charge, self.rows[-1])


def after(head: ChainHead, reader: Reader) -> list[Row]:
    """What others appended; the last row we know must still be there."""
    found = reader.rows(max(0, head.count - 1))
    last = found.pop(0).hash if head.count and found else NO_HASH
    if head.count and last != head.hash:
        raise LedgerCorruptedError("rows that were there are gone or changed")
    return found


# What became of runs, looked up -----------------------------------------------------------


def charge_of(reader: Reader, run_id: str, part: str = "") -> Charge:
    """The charge of a run, or of a part of a block that has ended; a LedgerError if none is."""
    rows = reader.rows_of_run(run_id, part)
    if not rows:
        raise LedgerError(f"the ledger holds no reservation of run {run_id!r}")
    whole = of_run(rows)
    if not part:
        return whole
    found = ended_part(reader, whole, part)
    if found is None:
        raise LedgerError(f"part {part!r} of run {run_id!r} has not ended")
    return found


def ended_part(reader: Reader, charge: Charge, part: str) -> Charge | None:
    """What has ended: a part of a block, or the charge itself; None while it is open."""
    if not charge.is_block:
        return None if charge.status == "reserved" else charge
    if not part:
        return None
    rows = [row for row in reader.rows_of_run(charge.run_id, part) if row.body["part"] == part]
    if not rows:
        return None
    first, *others = rows
    before = reader.rows_of_run(charge.run_id)[0]
    found = part_of(of_run([before]), first)
    for row in others:
        found = followed(found, row)
    return found


def equal_releases(reader: Reader, identity: ReleaseIdentity, but: str = "") -> list[Charge]:
    """Charges of an equal identity, by whatever run."""
    found = []
    for row in reader.rows_of_identity(identity.digest.hex()):
        run_id, part = row.body["run_id"], row.body["part"]
        if run_id != but:
            found.append(charge_of(reader, run_id, part))
    return found


def charges_of_release(reader: Reader, key: str, but: str = "") -> list[Charge]:
    """The charges of a release id (`release_key`) as they stand now, but for that of run `but`."""
    runs = (str(row.body["run_id"]) for row in reader.rows_of_release(key))
    return [charge_of(reader, run_id) for run_id in runs if run_id != but]
