"""What a training goes on from after its program was killed: `beam-ldp train --resume OUTPUT`.

A checkpoint is written in the staging folder after each round, before anybody sees its result: the
state of the process, what was measured, how the program was started. Only its owner reads it. It
holds no data, no person's id and no randomness: later rounds draw afresh. Of `local-central` it
holds how many messages each client has sent, by its position; of `adaped`, whose clients are
simulated here, their own models: on devices those are files of the devices, and nobody else's. That
positions are still those of the same clients is told by 32 bits of a hash of all their names.

Of shuffled epochs it is written where an epoch ends. Who is left of one that is under way is in no
file: a training goes on with another epoch, everybody in a new order, charged as such, and nobody
reports twice in one.

How many rounds are charged is not for the checkpoint to say. Each is counted before it begins, in
the ledger and in a file of its own, and the largest count of the three is charged: a round whose
result the checkpoint lacks is lost, or was withheld, as the file says, and one fewer is run. So an
older copy of a file makes nothing cheaper. Where no ledger counts and the file cannot be what was
written last, nothing goes on.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.launcher import Launcher
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import outputs, reserving
from beam_ldp.release.charging import NoCharge, RunCharge
from beam_ldp.release.interrupted_runs import (
    BEGUN,
    WITHHELD,
    BegunRounds,
    Note,
    UnderWayError,
    lost_stagings,
    replace_file,
    was_put_back,
)
from beam_ldp.release.job_files import job_content, jobs_of
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.training.usage import USAGE
from beam_ldp.wording import many

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, Charge
    from beam_ldp.training.settings import TrainSettings

CHECKPOINT = "checkpoint.npz"
_VERSION = 2
_STATE, _TOLD, _CLIENTS = "state", "told", "clients_"
# What a program is told anew where it goes on: a password may stand in it, or it changes nothing.
_ANEW = {"release": ("ledger", "no_ledger"), "output": ("format", "mlflow_uri", "folder")}


class CheckpointError(SettingError):
    """There is nothing to go on from, or it must not be."""


@dataclass(frozen=True)
class Checkpoint:
    """A training after a round.

    Attributes:
        identity: of the training, as `ReleaseIdentity.to_json` tells it.
        job: how it was started, as a job file holds it; without what is told anew.
        charged: whether a ledger holds it: "yes", or why not.
        launcher: who ran it.
        planned: rounds that were reserved.
        begun: rounds that had begun.
        counter: inode of the file that counts them, and when it was changed last.
        rounds: whose results are in the state.
        rounds_per_event: that the file counts as one; 1 but for shuffled epochs.
        curve: measurements so far, as JSON.
        state: arrays, in the order of the process's own state.
        clients: what the host keeps of them, by name.
        order: of whose clients that is (`order_of`); "" where nothing is kept of them, or files do
            not name them.
        tracking: address of MLflow's store, without a password; "" where nothing is logged.
    """

    identity: dict[str, Any]
    job: dict[str, Any]
    charged: str
    launcher: Launcher
    planned: int
    begun: int
    counter: tuple[int, int]
    rounds: int
    curve: list[list[Any]]
    state: list[np.ndarray] = field(default_factory=list)
    clients: dict[str, np.ndarray] = field(default_factory=dict)
    rounds_per_event: int = 1
    order: str = ""
    tracking: str = ""

    def write(self, staging: str) -> None:
        """In one step, so that there always is one that is whole. Raises OSError."""
        told = {n: v for n, v in self.__dict__.items() if n not in ("state", "clients")}
        told |= {"launcher": asdict(self.launcher), "version": _VERSION}
        arrays = {f"{_STATE}{i:05d}": array for i, array in enumerate(self.state)}
        arrays |= {f"{_CLIENTS}{name}": array for name, array in self.clients.items()}
        stream = io.BytesIO()
        np.savez(stream, **arrays, **{_TOLD: np.array(json.dumps(told))})  # type: ignore[arg-type]
        replace_file(_path(staging, CHECKPOINT), stream.getvalue())

    @classmethod
    def read(cls, staging: str) -> Checkpoint | None:
        """What was written; None where there is none.

        Raises:
            CheckpointError: if it cannot be read.
        """
        path = _path(staging, CHECKPOINT)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as found:
                told = json.loads(found[_TOLD].item())
                state = [found[name] for name in sorted(found) if name.startswith(_STATE)]
                clients = {
                    name.removeprefix(_CLIENTS): found[name]
                    for name in found
                    if name.startswith(_CLIENTS)
                }
            if told.pop("version") != _VERSION:
                raise ValueError
            told["launcher"] = Launcher(**told["launcher"])
            told["counter"] = tuple(told["counter"])
            return cls(**told, state=state, clients=clients)
        except Exception:
            raise CheckpointError(
                f"{path} is no checkpoint of this version, or was damaged. `beam-ldp finalize` "
                "ends the charge of its training"
            ) from None


def _path(staging: str, name: str) -> Path:
    return Path(staging.removeprefix("file://")) / name


def has_checkpoint(staging: str) -> bool:
    """Whether somebody could go on from here."""
    return outputs.is_local(staging) and _path(staging, CHECKPOINT).exists()


def order_of(names: Sequence[str], key: str = "") -> str:
    """What tells another order of clients, or others of them, but once in four billion times.

    Keyed anew by each training, and so short that it confirms next to no guess about anybody.

    Args:
        names: of all clients; none give "".
        key: of another one that is to be compared; default: a fresh one.
    """
    if not names:
        return ""
    key = key or secrets.token_hex(16)
    told = json.dumps(list(names)).encode()
    return f"{key}:{hashlib.blake2b(told, key=bytes.fromhex(key), digest_size=4).hexdigest()}"


def counted(staging: str) -> tuple[int, tuple[int, int]]:
    """Rounds, or epochs, that began; inode of the file that counts them, when it was changed."""
    found = _path(staging, BEGUN).stat()
    return found.st_size, (found.st_ino, found.st_ctime_ns)


def rounds_lost(
    checkpoint: Checkpoint, staging: str, in_ledger: int | None = None
) -> tuple[int, int]:
    """Rounds that began and whose results are not in the state: they stay charged.

    Args:
        checkpoint: of the state.
        staging: the folder with the count of rounds.
        in_ledger: how many began as the ledger knows; None where it does not.

    Returns:
        Those that were lost, and those that were withheld because too few clients came.

    Raises:
        CheckpointError: if no ledger counts and the files were put back, so that nobody knows how
            many rounds began; or if the state has results of more.
    """
    begun, counter = counted(staging)
    file = _path(staging, BEGUN).stat()
    most = max(begun, checkpoint.begun, in_ledger or 0)
    withheld = _path(staging, BEGUN).read_bytes().count(WITHHELD)
    lost = most * checkpoint.rounds_per_event - withheld - checkpoint.rounds
    restored = in_ledger is None and (
        begun < checkpoint.begun
        or counter[0] != checkpoint.counter[0]
        or file.st_mtime_ns != file.st_ctime_ns
        or (begun == checkpoint.begun and counter != checkpoint.counter)
        or was_put_back(_path(staging, CHECKPOINT))
    )
    if restored or lost < 0:
        raise CheckpointError(
            f"{staging} was copied, or restored from a backup: how many rounds began is not known, "
            "and no ledger counts them. Start another training"
        )
    return lost, withheld


def most_begun(staging: str, in_file: int | None, in_ledger: int | None) -> int | None:
    """The largest count of rounds that began; None where nobody knows one.

    Args:
        staging: the folder that may hold a checkpoint, which counts too.
        in_file, in_ledger: what the file and the ledger count; None where they do not.
    """
    try:
        checkpoint = Checkpoint.read(staging)
    except CheckpointError:  # nothing can be said of it
        checkpoint, in_file = None, None
    if in_file is None and in_ledger is None:
        return None
    in_checkpoint = 0 if checkpoint is None else checkpoint.begun
    return max(in_file or 0, in_ledger or 0, in_checkpoint)


@dataclass(frozen=True)
class Resumed:
    """A training that goes on, and that nobody else can go on with meanwhile.

    Attributes:
        checkpoint: where.
        given: how it was started, with what was told anew.
        token: of its output folder.
        note: its charge; None where no ledger has it.
        begun: the count of rounds, locked.
        rounds_begun: so many of them.
        withheld: of them, those to which too few clients came.
        held: the ledger and the reservation in it; None where no ledger has it.
        put_back: of the rounds, those that the file did not count: it is an older copy.
    """

    checkpoint: Checkpoint
    given: Arguments
    token: str
    note: Note | None
    begun: BegunRounds
    rounds_begun: int
    withheld: int = 0
    held: tuple[BudgetLedger, Charge] | None = None
    put_back: int = 0

    @property
    def identity(self) -> ReleaseIdentity:
        """Of the training."""
        return ReleaseIdentity.from_json(self.checkpoint.identity)

    @property
    def lost(self) -> int:
        """Rounds that began, and whose results should be in the state and are not."""
        return self.rounds_begun - self.withheld - self.checkpoint.rounds

    def check(self, identity: ReleaseIdentity, planned: int) -> None:
        """Refuses another training than the one that was reserved.

        Raises:
            CheckpointError: which says in what it differs.
        """
        if identity != self.identity:
            differs = ", ".join(self.identity.differences(identity)) or "settings"
            raise CheckpointError(f"this is another training: it differs in its {differs}")
        if planned != self.checkpoint.planned:
            raise CheckpointError(
                f"{many(self.checkpoint.planned, 'round')} reserved, and {planned:,} planned now"
            )

    def check_clients(self, names: Sequence[str]) -> None:
        """Refuses other clients, or another order, where something is kept of each by its place.

        Raises:
            CheckpointError: before anything is charged or lost: with the right ones it goes on.
        """
        order = self.checkpoint.order
        if order and order_of(names, order.partition(":")[0]) != order:
            raise CheckpointError(
                "--data: its clients must be those that the training began with: what is kept of "
                "each of them would be taken for somebody else's. Go on with the data as it was"
            )

    def charge(
        self, settings: TrainSettings, event: dict[str, Any], sent: dict[str, Any] | None = None
    ) -> NoCharge:
        """The reservation that the training began with.

        Args:
            settings: which say where the ledger is.
            event: of all rounds, as they would be reserved now.
            sent: what one person sends in them, where `event` says only what a server publishes.

        Raises:
            CheckpointError: if the ledger does not hold it any more, is another one, or holds
                a smaller price. A larger one, of an earlier version, is enough: what ran and what
                runs is settled at what is proved of it now.
        """
        charged = self.checkpoint.charged
        if self.held is None:
            if reserving.ledger_url(settings) is not None:
                raise CheckpointError(
                    f"this training is not charged ({charged}), and goes on only so: --no-ledger"
                )
            return NoCharge(charged, self.begun)
        ledger, charge = self.held
        if charge.identity != self.identity:
            raise CheckpointError("the ledger's charge of that name is of another training")
        if _costs_more(ledger, charge, event, sent):
            raise CheckpointError(
                "the rounds of this training cost more now than was reserved for them. "
                "`beam-ldp finalize` ends its charge"
            )
        return RunCharge(ledger, charge, begun=self.begun)


def _held(note: Note, settings: TrainSettings) -> tuple[BudgetLedger, Charge]:
    """The ledger that a training was charged to, and its reservation there.

    Raises:
        CheckpointError: if it is another ledger, the charge has ended, or another start took over.
    """
    url = reserving.ledger_url(settings)
    if url is None:
        raise CheckpointError("--ledger must name the ledger that holds this training")
    with reserving.ledger_errors():
        from beam_ldp.ledger import BudgetLedger

        ledger = BudgetLedger(url)
        here = ledger.ledger_id == note.ledger_id and ledger.has_run(note.run_id)
        charge = ledger.charge(note.run_id) if here else None
    if charge is None:
        raise CheckpointError("--ledger: this training was charged to another ledger")
    if charge.status != "reserved":
        raise CheckpointError(
            f"run {charge.run_id!r} is {charge.status} already: what ran of it is charged, and "
            "another round would not be. Start another training"
        )
    if charge.attempt != note.attempt_of(charge):
        raise CheckpointError(
            f"another start of run {charge.run_id!r} took over, from a copy of this folder: it "
            "continues there, or `beam-ldp finalize` ends its charge there"
        )
    return ledger, charge


def _costs_more(
    ledger: BudgetLedger, charge: Charge, event: dict[str, Any], sent: dict[str, Any] | None
) -> bool:
    """Whether an event costs more than what is reserved, at any order that the budget is read at.

    Of a committed schedule, which is charged whole, what it holds counts. An epsilon alone would
    not do: with other charges it may be another order that counts.
    """
    from beam_ldp.ledger.losses import exceeds, limit, local_loss_of, loss_of, released

    reserved = released(charge.reserved)
    if reserved == event:
        return False
    orders = ledger.status(charge.dataset).budget.orders
    local = local_loss_of(sent or event)
    return local > limit(charge.reserved_local) or exceeds(
        loss_of(event, orders), loss_of(reserved, orders)
    )


def resume(output: str, given: Arguments) -> Resumed:
    """Take up the training that was lost on its way to an output; nobody else can meanwhile.

    Args:
        output: where its output would be.
        given: flags; only those that must be told anew, and format.

    Raises:
        CheckpointError: if there is none, or it must not go on.
    """
    _check_given(given)
    output = output.rstrip("/") or "/"
    if not outputs.is_local(output):
        raise CheckpointError("--resume: a checkpoint is kept only where --output is a local disk")
    stagings = [path for path in lost_stagings(output) if _path(path, BEGUN).exists()]
    if len(stagings) != 1:
        found = "no training" if not stagings else f"{len(stagings)} trainings"
        raise CheckpointError(
            f"--resume {output}: {found} with this --output left anything to go on from"
        )
    (staging,) = stagings
    try:
        begun = BegunRounds(staging)
    except (UnderWayError, OSError):
        raise CheckpointError(f"--resume {output}: the training is under way") from None
    try:
        return _taken_up(output, staging, given, begun)
    except BaseException:
        begun.close()
        raise


def _taken_up(output: str, staging: str, given: Arguments, begun: BegunRounds) -> Resumed:
    checkpoint, note = Checkpoint.read(staging), Note.read(staging)
    note = note if note is not None and note.run_id else None  # of one that is not charged
    if checkpoint is None:
        raise CheckpointError(
            f"--resume {output}: no round of that training ended, or with shuffled-epochs no "
            "epoch: there is nothing to go on from. `beam-ldp finalize` ends its charge"
        )
    launcher = checkpoint.launcher if note is None else note.launcher
    if launcher.ended != "ended":
        raise CheckpointError(
            f"--resume {output}: process {launcher.pid} of {launcher.host} runs it, or may"
        )
    if (checkpoint.charged == "yes") != (note is not None) or (
        note is not None and note.identity != checkpoint.identity
    ):
        raise CheckpointError(f"--resume {output}: the checkpoint is that of another training")
    if Path(outputs.OutputFolder(output, token=_token(staging), checked=False).finished).exists():
        raise CheckpointError(
            f"--resume {output}: it is finished already, and `beam-ldp finalize {output}` "
            "publishes it"
        )
    from beam_ldp.training.settings import check_train

    ((_, started),) = jobs_of(checkpoint.job)
    here = Arguments({"output": {"folder": output, **_tracking(checkpoint, given)}}, [])
    told = Arguments({n: v for n, v in given.settings.items() if n != "training"}, [])
    goes_on = here.over(told).over(started)
    held = None if note is None else _held(note, check_train(goes_on))
    in_ledger = None if held is None else held[1].rounds_begun
    lost, withheld = rounds_lost(checkpoint, staging, in_ledger)
    rounds = checkpoint.rounds + lost + withheld
    put_back = max(0, rounds - begun.count * checkpoint.rounds_per_event)
    begun.raise_to(rounds // checkpoint.rounds_per_event)
    token = _token(staging)
    return Resumed(checkpoint, goes_on, token, note, begun, rounds, withheld, held, put_back)


def _tracking(checkpoint: Checkpoint, given: Arguments) -> dict[str, str]:
    """MLflow's store, which is the one that the training began to log to.

    Raises:
        CheckpointError: if another one is named, or its password is not known any more.
    """
    kept, named = checkpoint.tracking, given["output"].get("mlflow_uri")
    if named is not None and address_of(named) != kept:
        raise CheckpointError(
            f"--mlflow-uri: this training is logged to {kept or 'no store'}, and goes on there"
        )
    if named is None and "***" in kept:
        raise CheckpointError(f"--mlflow-uri must name {kept} with its password, which is not kept")
    return {"mlflow_uri": named or kept} if kept else {}


def address_of(uri: str) -> str:
    """The address of MLflow's store as a checkpoint keeps it: absolute, without a password."""
    from beam_ldp.ledger.connection import absolute_uri
    from mlflow_ldp.runs import shown_uri

    return shown_uri(absolute_uri(uri))


def _token(staging: str) -> str:
    return staging.rpartition("-")[2]


def _check_given(given: Arguments) -> None:
    for home, section in given.settings.items():
        for name in section:
            anew = name in _ANEW.get(home, ()) and name != "folder"  # --resume itself names that
            if (home, name) != ("training", "resume") and not anew:
                raise CheckpointError(
                    f"--resume takes no {USAGE.flag_of(f'{home}.{name}')}: a training goes on as "
                    "it was started"
                )


def job_of(given: Arguments) -> dict[str, Any]:
    """How a program was started, as a checkpoint keeps it."""
    kept = {
        home: {name: v for name, v in section.items() if name not in _ANEW.get(home, ())}
        for home, section in given.settings.items()
    }
    return job_content(USAGE, Arguments({h: s for h, s in kept.items() if s}, []))


@dataclass(frozen=True)
class Keeper:
    """Writes a checkpoint after each round of one training.

    Attributes:
        staging: where; on a store nothing is written.
        identity, job, charged, planned, rounds_per_event, order, tracking: as in each checkpoint.
    """

    staging: str
    identity: ReleaseIdentity
    job: dict[str, Any]
    charged: str
    planned: int
    rounds_per_event: int = 1
    order: str = ""
    tracking: str = ""

    def keep(
        self,
        rounds: int,
        state: Sequence[np.ndarray],
        curve: Sequence[tuple[Any, float]],
        clients: dict[str, np.ndarray],
    ) -> None:
        """After a round, before anybody sees its result; nothing amid an epoch."""
        if rounds % self.rounds_per_event or not outputs.is_local(self.staging):
            return
        begun, counter = counted(self.staging)
        points = [[asdict(score), epsilon] for score, epsilon in curve]
        Checkpoint(
            self.identity.to_json(), self.job, self.charged, Launcher.this(), self.planned, begun,
            counter, rounds, points, list(state), clients, self.rounds_per_event, self.order,
            self.tracking,
        ).write(self.staging)  # fmt: skip


def plain_leaves(leaves: Sequence[Any]) -> list[np.ndarray]:
    """Values of a state as arrays that a file holds without pickling."""
    found = [np.asarray(leaf) for leaf in leaves]
    return [np.asarray(leaf.item()) if leaf.dtype == object else leaf for leaf in found]


def leaves_like(like: Sequence[Any], kept: Sequence[np.ndarray]) -> list[Any]:
    """Values of a state from arrays.

    Raises:
        CheckpointError: if they are those of another process.
    """
    if len(like) != len(kept) or any(
        np.asarray(one).ndim != array.ndim for one, array in zip(like, kept)
    ):
        raise CheckpointError("the checkpoint holds the state of another training")
    return [
        array.item() if isinstance(one, (str, bytes, int, float)) else array
        for one, array in zip(like, kept)
    ]
