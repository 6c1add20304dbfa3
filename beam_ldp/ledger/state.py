"""The whole ledger, read from its first row: every charge with what became of it, checked.

A fold over rows, without a database. Where `Balances` believe what a row says that it adds, this
recomputes it from the charge: what is given back is what was reserved, local epsilons are those of
the events, a checkpoint holds what the rows before it amount to. Divergences alone are not priced
anew: audits do that, once per distinct event (`recomputing`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from beam_ldp.ledger import kinds
from beam_ldp.ledger.accounts import PeopleCount, covered_local
from beam_ldp.ledger.balances import Balances
from beam_ldp.ledger.charges import (
    Charge,
    followed,
    least_local,
    leaves_rounds_out,
    part_of,
    release_key,
    reservation,
)
from beam_ldp.ledger.losses import finite, limit, local_loss_of, read_loss
from beam_ldp.ledger.rows import Row, Signed, canonical

# An auditor accepts a change of a budget: signed, so that nobody else can -----------------
#
# A budget that is raised after something was charged is a finding of every audit, for ever. Where
# the raise is justified, whoever holds the auditor's key says so in a row of its own. It names
# the row that it accepts by number and hash and is signed over both, so it fits no other row and
# no other ledger; without the auditor's public key an audit does not believe it.


_PURPOSE = "beam-ldp: acceptance of a budget's change"


@dataclass(frozen=True)
class Acceptance(Signed):
    """What an auditor has accepted.

    Attributes:
        ledger_id: of the ledger.
        row, hash: number and hash of the budget's row.
        by, why: who accepts it, and the reason.
        signature: of all of the above, hexadecimal; "" if nobody signed.
    """

    ledger_id: str
    row: int
    hash: str
    by: str
    why: str
    signature: str = ""

    @property
    def signed_bytes(self) -> bytes:
        """What the signature covers; the purpose keeps it apart from those of anchors."""
        told = {k: v for k, v in vars(self).items() if k != "signature"}
        return canonical({**told, "purpose": _PURPOSE})

    def to_json(self) -> dict[str, Any]:
        """As a row holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Acceptance:
        """Inverse of `to_json`; a row holds its time too."""
        names = ("ledger_id", "row", "hash", "by", "why", "signature")
        found = cls(**{name: told[name] for name in names})
        if not isinstance(found.row, int) or not all(isinstance(told[n], str) for n in names[2:]):
            raise ValueError("an acceptance names a row, its hash, who and why")
        return found

    def fault(self, row: Row, ledger_id: str, key: Ed25519PublicKey | None) -> str | None:
        """Why this does not accept the row; None if it does."""
        if (self.ledger_id, self.row, self.hash) != (ledger_id, row.number, row.hash):
            return "an acceptance of it is of another row or another ledger"
        if key is None:
            return (
                f"{self.by} is said to have accepted it ({self.why}); the auditor's public key "
                "would show whether that is so"
            )
        if not self.is_signed_by(key):
            return "an acceptance of it is not signed with the auditor's key"
        return None


class LedgerState(Balances):
    """The fold. `apply` checks each row against the chain and against what came before.

    Attributes:
        acceptances: what auditors have accepted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.acceptances: list[Acceptance] = []
        self._of_run: dict[str, str] = {}

    def _take(self, row: Row) -> None:
        if row.kind in kinds.CHARGES:
            self._take_charge(row)
        elif row.kind == kinds.ACCEPT:
            self.acceptances.append(Acceptance.from_json(row.body))
        elif row.kind == kinds.CHECKPOINT and not _equal(row.body["books"], self.to_json()):
            raise ValueError("a checkpoint holds what the rows before it amount to")
        elif row.kind == kinds.PEOPLE:
            self._check_people(row.body)
        super()._take(row)

    def _take_charge(self, row: Row) -> None:
        run_id = row.body["run_id"]
        if row.kind == kinds.RESERVE:
            if run_id in self._of_run:
                raise ValueError("a name is used once")
            self._put(self._reserved(row))
            return
        name = (
            f"{run_id}/{row.body['part']}"
            if row.kind == kinds.REPLACE and row.body["part"]
            else run_id
        )
        charge = self.charge(name)
        self._check_place(charge, row.body)
        is_part = charge.is_block and row.kind in (kinds.SETTLE, kinds.ABANDON)
        after = followed(charge, row)
        if is_part:
            ended = part_of(charge, row)
            if ended.run_id in self._of_run:
                raise ValueError("a part of a block ends once")
            self._check_end(charge, ended, row)
            self._put(ended)
        elif row.kind in (kinds.SETTLE, kinds.ABANDON):
            self._check_end(charge, after, row)
        elif row.kind == kinds.REPLACE:
            _check_replaced(charge, after, row.body)
        self._put(after)

    def _reserved(self, row: Row) -> Charge:
        charge = reservation(row)
        population = self.population_of(charge.dataset)
        budget = population.granted
        if charge.population != population.name:
            raise ValueError("a charge is of its dataset's population")
        if charge.period != budget.period_of(charge.time):
            raise ValueError("a charge counts in the period of its time")
        if len(charge.loss.divergences) != len(budget.orders):
            raise ValueError("a charge must have its losses at the orders of the budget")
        local = local_loss_of(charge.local_event or charge.reserved)
        if charge.local_epsilon < local / limit(1.0):
            raise ValueError("the local epsilon is that of the event")
        key = release_key(population.name, self.first_name_of(charge.dataset), charge.identity)
        if row.body["release_key"] != key:
            raise ValueError("a charge is found by its release")
        return charge

    def _check_place(self, charge: Charge, body: dict[str, Any]) -> None:
        told = (body["population"], body["period"], body["quota"])
        if told != (charge.population, charge.period, charge.quota):
            raise ValueError("a charge counts where it was reserved")

    def _check_end(self, charge: Charge, ended: Charge, row: Row) -> None:
        """What the end of a charge gives back is what was reserved, and it loses nothing."""
        body = row.body
        given = (body["gives_back"], body["gives_back_local"])
        told = (charge.loss.to_json(), finite(charge.reserved_local))
        if not _equal(given, told) or (not charge.is_block and body["count"] != 1):
            raise ValueError("what is given back is what was reserved")
        may = {charge.settles} | ({charge.attempt} if row.kind == kinds.ABANDON else set())
        if ended.attempt not in may or ended.rounds_begun != charge.rounds_begun:
            raise ValueError("what ends is the newest start, after all rounds that have begun")
        local = read_loss(body["local_epsilon"])
        if row.kind == kinds.ABANDON:
            least = charge.reserved_local if charge.asked_people else 0.0
            if local not in (least, charge.reserved_local):
                raise ValueError("what was randomized is spent")
            return
        if leaves_rounds_out(charge, body["event"]):
            raise ValueError("an event is of all rounds that have begun")
        said = local_loss_of(body["local_event"] or body["event"])
        if local < least_local(charge, body, said) / limit(1.0):
            raise ValueError("a settlement never lowers what was spent locally")

    def _put(self, charge: Charge) -> None:
        self.populations[charge.population].charges[charge.run_id] = charge
        self._of_run[charge.run_id] = charge.population

    def _check_people(self, body: dict[str, Any]) -> None:
        population = self.populations[body["population"]]
        ended = {charge.number: charge for charge in population.ended(body["period"])}
        counted = PeopleCount.from_json(body)
        counted.check(ended)
        if body["covered_local"] != covered_local(counted, ended).to_json():
            raise ValueError("what is covered is the local epsilons of the charges counted")

    def charge(self, run_id: str) -> Charge:
        """The charge of a run (KeyError if there is none)."""
        return self.populations[self._of_run[run_id]].charges[run_id]

    def has_run(self, run_id: str) -> bool:
        return run_id in self._of_run


def _check_replaced(before: Charge, after: Charge, body: dict[str, Any]) -> None:
    """A second publication never costs less than the first."""
    if not _equal(body["gives_back"], before.loss.to_json()):
        raise ValueError("what is replaced is what was charged")
    if after.loss != after.loss.at_least(before.loss):
        raise ValueError("a second publication gives nothing back")


def _equal(one: Any, other: Any) -> bool:
    return canonical(one) == canonical(other)
