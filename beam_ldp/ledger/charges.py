"""Budgets and charges, as rows tell them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from beam_ldp.ledger import kinds
from beam_ldp.ledger.losses import (
    CHANCES,
    Loss,
    exceeds,
    finite,
    is_nothing,
    limit,
    no_loss,
    read_loss,
    released,
    repetitions,
)
from beam_ldp.ledger.rows import Row, canonical
from beam_ldp.randomizers.identity import ReleaseIdentity

Status = Literal["reserved", "settled", "abandoned"]


@dataclass(frozen=True)
class Budget:
    """What people of one population may be charged.

    Attributes:
        epsilon, delta: central budget.
        local_epsilon: sum of local epsilons that one person may be charged; None: no limit.
        orders: Rényi orders that were fixed with it.
        period_days: the budget is granted anew after so many days; None: once for all time.
        since: ISO time from which periods count.
        number: row that set it.
        by, why: who set it, and why.
        chances: share of delta, fixed with the orders, for guarantees that fail with small
            probability.
    """

    epsilon: float
    delta: float
    local_epsilon: float | None
    orders: tuple[float, ...]
    period_days: int | None
    since: str
    number: int
    by: str = ""
    why: str = ""
    chances: float = CHANCES

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        told = {**asdict(self), "orders": list(self.orders)}
        if self.chances == CHANCES:  # as before there were others
            del told["chances"]
        return told

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Budget:
        """Inverse of `to_json`."""
        local = told["local_epsilon"]
        return cls(
            **{
                **told,
                "epsilon": float(told["epsilon"]),
                "delta": float(told["delta"]),
                "local_epsilon": None if local is None else float(local),
                "orders": tuple(map(float, told["orders"])),
                "chances": float(told.get("chances", CHANCES)),
            }
        )

    def period_of(self, time: str) -> int:
        """Number of the period in which a time lies."""
        if self.period_days is None:
            return 0
        return days_between(self.since, time) // self.period_days


@dataclass(frozen=True)
class Quota:
    """A share of a population's budget that is kept for a team or analyst.

    Attributes:
        name: who asks.
        share: of the divergence at the first order that fills the budget, of what delta has for
            chances, and of the budget of local epsilons.
        by, why: who set it, and why.
    """

    name: str
    share: float
    by: str = ""
    why: str = ""


@dataclass(frozen=True)
class Charge:
    """One run's spend; of a run that is charged in blocks, what is left of the block, or a part.

    Attributes:
        run_id: its name; used once.
        dataset, population: whose data.
        identity: of the release.
        reserved: event of the reservation, the worst case; JSON. Of a block: of each part.
        settled: event of what was released; None until then.
        loss: what counts, at the orders of the budget: of `reserved`, then of `settled`.
        local_epsilon: what each person may lose to whoever sees their reports, by this run.
        status: "reserved" counts at its worst case, whether or not the run still lives.
        about: what the run said of itself (question, mechanism, reports, ...).
        time, period: when it was reserved.
        number: row of the reservation; of a part of a block, the row that ended it.
        memoized: a repetition sends the same reports.
        attempt: token of the newest start; of what has ended, token of the start that ended it.
        attempts: how often the run was started.
        run_token: of the run of a pipeline, which was reserved when it was built; "" before.
        count: parts of a block that are still open; 1 of other charges.
        reserved_local: the local epsilon at its worst.
        local_event: what people send, where `reserved` prices only what a trusted server publishes.
        quota: whose share it is charged to; "" for the rest.
        certificate: room for what a later version proves of a release; None.
        report_digest: set digest of the reports that were released; None where none was told.
        tokens: what left: a token for each group's release ("" without groups).
        published: how often the same reports were released.
        overspent: what was released cost more than was reserved.
        rounds_begun: rounds of a training that have begun, as its program said before each; None of
            a charge whose rounds nobody counts here.
    """

    run_id: str
    dataset: str
    population: str
    identity: ReleaseIdentity
    reserved: dict[str, Any]
    settled: dict[str, Any] | None
    loss: Loss
    local_epsilon: float
    status: Status
    about: dict[str, Any]
    time: str
    period: int
    number: int
    memoized: bool
    attempt: str
    attempts: int = 1
    run_token: str = ""
    count: int = 1
    is_block: bool = False
    reserved_local: float = 0.0
    local_event: dict[str, Any] | None = None
    quota: str = ""
    certificate: Any = None
    report_digest: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    published: int = 0
    overspent: bool = False
    rounds_begun: int | None = None

    @property
    def group(self) -> str:
        """The run that this is a part of: long runs are charged in blocks."""
        return str(self.about.get("run", self.run_id))

    @property
    def settles(self) -> str:
        """Token of the one start that may settle."""
        return self.run_token or self.attempt

    @property
    def counts_rounds(self) -> bool:
        """Whether its rounds may be counted: of a training, neither of a graph nor of a block."""
        return not (self.is_block or self.memoized or self.run_token)

    @property
    def asked_people(self) -> bool:
        """Whether the ledger knows that people were asked. Of the windows of a block only its
        launcher does, as long as it was started once."""
        began = self.least_begun > 0 or (bool(self.run_token) and not self.is_block)
        return began or self.attempts > 1

    @property
    def least_begun(self) -> int:
        """Rounds that have begun, as far as the ledger knows."""
        return self.rounds_begun or 0

    @property
    def event(self) -> dict[str, Any] | None:
        """The event that counts; None where nothing was released."""
        if self.status == "abandoned" or not self.count:
            return None
        return self.reserved if self.settled is None else self.settled

    @property
    def pays(self) -> bool:
        """Whether it is charged at a price, open or settled: it pays for parts that are free."""
        return self.event is not None and not is_nothing(self.event)

    @property
    def local_total(self) -> float:
        """What one person may lose locally by all that is still open of it, or by what it was."""
        return self.count * self.local_epsilon if self.count else 0.0

    def to_row(self, first_name: str) -> dict[str, Any]:
        """The body of the row that reserves it; inverse of `reservation`.

        Args:
            first_name: what the dataset was called when it was new.
        """
        return {
            "time": self.time,
            "run_id": self.run_id,
            "part": "",
            "dataset": self.dataset,
            "population": self.population,
            "period": self.period,
            "quota": self.quota,
            "release_key": release_key(self.population, first_name, self.identity),
            "identity": self.identity.to_json(),
            "identity_digest": self.identity.digest.hex(),
            "memoized": self.memoized,
            "attempt": self.attempt,
            "event": self.reserved,
            "loss": self.loss.to_json(),
            "local_event": self.local_event,
            "local_epsilon": finite(self.local_epsilon),
            "count": self.count,
            "is_block": self.is_block,
            "left": self.count,
            "about": self.about,
            "certificate": self.certificate,
        }


def days_between(start: str, end: str) -> int:
    """Whole days between two ISO times, rounded down."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).days


# What became of a run: its charge, folded from the rows that name it ----------------------


def reservation(row: Row) -> Charge:
    """The charge that a row reserves.

    Raises:
        ValueError, KeyError, TypeError: if the row is no reservation.
    """
    body = row.body
    local = read_loss(body["local_epsilon"])
    count, is_block = int(body["count"]), bool(body["is_block"])
    if row.kind != kinds.RESERVE or count < 1 or (count > 1 and not is_block):
        raise ValueError("a run begins with its reservation")
    return Charge(
        run_id=_name(body["run_id"]),
        dataset=_name(body["dataset"]),
        population=_name(body["population"]),
        identity=ReleaseIdentity.from_json(body["identity"]),
        reserved=dict(body["event"]),
        settled=None,
        loss=Loss.from_json(body["loss"]),
        local_epsilon=local,
        status="reserved",
        about=dict(body["about"]),
        time=body["time"],
        period=int(body["period"]),
        number=row.number,
        memoized=bool(body["memoized"]),
        attempt=_name(body["attempt"]),
        count=count,
        is_block=is_block,
        reserved_local=local,
        local_event=body["local_event"],
        quota=str(body["quota"]),
        certificate=body["certificate"],
    )


def followed(charge: Charge, row: Row) -> Charge:
    """The charge after a further row of its run, a part's rows excepted.

    Raises:
        ValueError: if the row cannot follow.
    """
    if row.kind in _GOING_ON:
        return _GOING_ON[row.kind](charge, row.body)
    if charge.status != "reserved" or row.kind not in (kinds.SETTLE, kinds.ABANDON):
        raise ValueError("a charge ends once")
    if charge.is_block:
        if row.body["part"] or row.kind == kinds.ABANDON:
            return _rest(charge, int(row.body["count"]))
        raise ValueError("a block is settled part by part")
    return _ended(charge, row)


def _started(charge: Charge, body: dict[str, Any]) -> Charge:
    """After a further start, or the first of its graph."""
    began = str(body.get("began", ""))
    first = began != "" and not charge.run_token
    if charge.status != "reserved" or not (charge.memoized or first):
        raise ValueError("only an open charge of reports that stay the same can be resumed")
    if charge.rounds_begun is not None or (began and body["attempt"] != charge.attempt):
        raise ValueError("rounds are counted by one program, and a graph begins as reserved")
    attempts = charge.attempts + (not first)
    about = {**charge.about, **body["about"]}
    attempt = _name(body["attempt"])
    return replace(charge, attempt=attempt, attempts=attempts, run_token=began, about=about)


def _counted(charge: Charge, body: dict[str, Any]) -> Charge:
    """After one more round, or a start of a training."""
    if charge.status != "reserved" or not charge.counts_rounds:
        raise ValueError("rounds are counted of an open charge that one program settles whole")
    if int(body["begun"]) < charge.least_begun:
        raise ValueError("the count of rounds that have begun never falls")
    return replace(charge, attempt=_name(body["attempt"]), rounds_begun=int(body["begun"]))


def _published(charge: Charge, body: dict[str, Any]) -> Charge:
    """After a further publication, or further groups of the first."""
    if charge.status != "settled":
        raise ValueError("only what was released can be released again")
    event, more = body["event"] or charge.settled, body.get("tokens") or {}
    if charge.tokens.keys() & more.keys():
        raise ValueError("a group is released once")
    if (more and not charge.tokens) or (more and "" in {*charge.tokens, *more}):
        raise ValueError("groups are added to a release that has groups")
    if not more and not charge.memoized:
        raise ValueError("only reports that stay the same are published again")
    return replace(
        charge,
        settled=dict(event) if event else None,
        loss=Loss.from_json(body["loss"]),
        report_digest=body["report_digest"],
        tokens={**charge.tokens, **more},
        published=charge.published + (not more),
        about={**charge.about, **body["about"]},
    )


_GOING_ON = {kinds.RESUME: _started, kinds.BEGIN: _counted, kinds.REPLACE: _published}


def part_of(block: Charge, row: Row) -> Charge:
    """The charge of a part of a block, from the row that ended it."""
    name = str(row.body["part"])
    about = {"run": block.run_id, **block.about}
    one = replace(
        block,
        run_id=f"{block.run_id}/{name or f'rest at row {row.number}'}",
        identity=replace(block.identity, part=name),
        about=about,
        number=row.number,
        run_token="",
        count=int(row.body["count"]),
        is_block=False,
    )
    return _ended(one, row)


def _rest(block: Charge, count: int) -> Charge:
    left = block.count - count
    if left < 0:
        raise ValueError("a block has no more parts than were reserved")
    if left:
        return replace(block, count=left)
    zero = no_loss(block.loss.divergences)
    return replace(block, count=0, status="settled", loss=zero, local_epsilon=0.0)


def _ended(charge: Charge, row: Row) -> Charge:
    body = row.body
    about = {**charge.about, **body["about"]}
    local = read_loss(body["local_epsilon"])
    charge = replace(charge, attempt=str(body.get("attempt", "")), rounds_begun=body.get("begun"))
    if row.kind == kinds.ABANDON:
        loss = no_loss(charge.loss.divergences)
        return replace(charge, status="abandoned", about=about, local_epsilon=local, loss=loss)
    loss = Loss.from_json(body["loss"])
    return replace(
        charge,
        status="settled",
        settled=dict(body["event"]),
        loss=loss,
        about=about,
        local_epsilon=local,
        report_digest=body["report_digest"],
        tokens=dict(body.get("tokens") or {}),
        published=1,
        # Worked out anew: what the row says of itself is what a forger would change.
        overspent=overspends(charge, loss, local),
    )


def overspends(charge: Charge, real: Loss, local: float) -> bool:
    """Whether what was released costs more than its reservation."""
    return exceeds(real, charge.loss) or local > limit(charge.reserved_local)


def of_run(rows: Sequence[Row]) -> Charge:
    """The charge of a run from its rows, those of a block's parts left out, and its last row."""
    charge = reservation(rows[0])
    for row in rows[1:]:
        if row.body["part"] == "":
            charge = followed(charge, row)
    left = int(rows[-1].body["left"])
    return _rest(charge, charge.count - left) if charge.is_block and charge.count else charge


def leaves_rounds_out(charge: Charge, event: dict[str, Any]) -> bool:
    """Whether an event is of fewer rounds than have begun, all of the reserved kind."""
    (reserved, most), (kind, times) = repetitions(released(charge.reserved)), repetitions(event)
    return kind["event"] == reserved["event"] and times < min(charge.least_begun, most)


def least_local(charge: Charge, body: dict[str, Any], told: float) -> float:
    """What an end of a charge may at least say that each person lost locally.

    Args:
        charge: as it was reserved.
        body: of the row that ends it.
        told: the local epsilon of the event that ends it.

    A run that began again may have asked people in every start, so nothing is given back then.
    """
    if charge.attempts > 1 or not body["proof"]:
        return max(charge.reserved_local, told)
    return 0.0 if body["num_randomized"] == 0 and not charge.asked_people else told


def _name(told: Any) -> str:
    if not isinstance(told, str) or not told:
        raise ValueError("a name is text")
    return told


def place(charge: Charge, part: str = "") -> dict[str, Any]:
    """Where a row of a charge counts, and how it is found."""
    return {
        "run_id": charge.run_id,
        "part": part,
        "population": charge.population,
        "period": charge.period,
        "quota": charge.quota,
        "release_key": None,
        "identity_digest": None,
    }


def release_key(population: str, dataset: str, identity: ReleaseIdentity) -> str:
    """What all charges of one release id have in common, and no other: 32 hexadecimal digits.

    Args:
        population: whose data.
        dataset: its first name, which renaming does not change.
        identity: of the release.
    """
    told = canonical(["beam-ldp release", population, dataset, identity.release_id])
    return hashlib.sha256(told).hexdigest()[:32]
