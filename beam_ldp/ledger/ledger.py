"""The budget: reserve before anything is read, settle what was released, audit what was spent.

`BudgetLedger` is the one class that writes. Each of its verbs checks what it is given, prices it
before the lock is taken, so that others need not wait, and then decides and appends in one
transaction. What is refused, and why, is decided by functions of values alone: whether the budget
has room in `admission`, all else in `refusals`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.ledger import kinds, refusals
from beam_ldp.ledger.accounts import PeopleCount, count_people, covered_local
from beam_ldp.ledger.admission import (
    BudgetStatus,
    budget_of,
    epsilon_of,
    population_of,
    quota_refusal,
    same,
    status_of,
)
from beam_ldp.ledger.auditing import AuditReport, audit
from beam_ldp.ledger.balances import REPLACE_ONE, Population
from beam_ldp.ledger.charges import (
    Charge,
    Quota,
    followed,
    least_local,
    of_run,
    overspends,
    part_of,
    place,
    release_key,
)
from beam_ldp.ledger.connection import (
    Connection,
    Writing,
    after,
    charge_of,
    charges_of_release,
    ended_part,
    equal_releases,
)
from beam_ldp.ledger.losses import (
    Loss,
    as_json,
    check_commitment,
    committed,
    exceeds,
    finite,
    is_nothing,
    local_loss_of,
    loss_of,
    loss_of_part,
    settled_as,
    times,
)
from beam_ldp.ledger.participants import Files, LocalFiles
from beam_ldp.ledger.rows import (
    LedgerError,
    ReleasedBeforeError,
    Row,
    check_budget,
    check_name,
    check_text,
    recorded,
)
from beam_ldp.ledger.state import Acceptance
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import same_set


class BudgetLedger(Connection):
    """A ledger of privacy budgets, in SQLite or PostgreSQL, that cannot be overspent.

    Protects the people of each *population* against the sum of everything that is released about
    them, over all datasets, programs and runs that use this ledger: a run reserves its worst case
    before it reads anything, and is refused if that does not fit beside all that was spent and
    reserved. It cannot protect against runs that do not use it.

    Opening reads from the last checkpoint on. A run's row, its settlement and a status take a few
    milliseconds, however long the ledger is; `state` and audits read all of it.

    Args:
        url: of the database; default: the environment variable BEAM_LDP_LEDGER.
        anchors: where heads are kept that a restore of the database does not reach, and looked for
            before each reservation: a sink, or its URL; default: the environment variable
            BEAM_LDP_ANCHORS (see `sinks`).
        clock: gives the time; for tests. Default: the database's, or this machine's with SQLite.

    Raises:
        LedgerError: if no URL is known.
        LedgerMissingError: if there is no ledger. A mistyped URL never makes one.

    >>> import tempfile
    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> from beam_ldp.randomizers.identity import ReleaseIdentity
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = BudgetLedger.create(f"sqlite:///{folder.name}/privacy.db")
    >>> _ = ledger.set_budget("telemetry", epsilon=1.0, delta=1e-8, local_epsilon=8.0, why="2026")
    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(4.0), 100_000)
    >>> monday = ReleaseIdentity("telemetry", "monday", columns=("url",))
    >>> charge = ledger.reserve("telemetry", "run 1", event, identity=monday)
    >>> _ = ledger.settle("run 1", event, identity=monday, attempt=charge.attempt)
    >>> ledger.status("telemetry").local_spent
    4.0
    """

    def would_grant(
        self,
        dataset: str,
        event: Any,
        *,
        count: int | None = None,
        local_event: Any = None,
        quota: str = "",
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        resumed: Charge | None = None,
        identity: ReleaseIdentity | None = None,
    ) -> float:
        """Whether `reserve` would pass this now; nothing is written, and nothing is kept for it.

        Args: as of `reserve`, and
            resumed: the charge that the run has already; it is not counted twice.
            identity: of the release; needed with `resumed`.

        Returns:
            Epsilon, at the delta of the budget, that would be committed with it.

        Raises:
            BudgetExceededError, LedgerError, LedgerUnavailableError: as `reserve` would.
        """
        told, sent = as_json(event), local_event and as_json(local_event)
        check_commitment(told)
        self._check_goes_on()
        population, now = self._standing(dataset)
        budget, parts = budget_of(population, dataset), count or 1
        refusals.check_unit(population, dataset, privacy_unit, neighbours)
        if resumed is not None:
            again = replace(resumed, reserved=told, local_event=sent, quota=quota,
                            is_block=count is not None,
                            identity=identity or resumed.identity)  # fmt: skip
            refusals.check_same_run(resumed, again)
            return status_of(population, resumed.period).committed
        stands = status_of(population, budget.period_of(now))
        loss = times(loss_of(told, budget.orders), parts)
        stands.check_fits(dataset, loss, parts * local_loss_of(sent or told), quota)
        return epsilon_of(stands.loss + loss, budget)

    def reserve(
        self,
        dataset: str,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        memoized: bool = False,
        count: int | None = None,
        local_event: Any = None,
        quota: str = "",
        attempt: str | None = None,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        about: Mapping[str, Any] | None = None,
        certificate: Any = None,
    ) -> Charge:
        """Set the worst case of a run aside, or refuse it. Atomic.

        What each person loses locally is derived from the event (`local_epsilon_of`).

        Args:
            dataset: its name in the ledger.
            run_id: name of the charge, used once. A memoized run that is started again before its
                first release keeps its charge; each start has an attempt of its own, and only the
                newest one may settle.
            event: the worst that the run may release, a `DpEvent`; a `CommittedDpEvent` for a
                schedule that is fixed now, charged whole.
            identity: of the release. A release id stands for one question; the same memoized
                reports are not released twice (see `republish`). While another part of the release
                is charged for all of them, a part may be reserved at no price (`NoOpDpEvent`): it
                is written down, so that other reports of it are refused.
            memoized: a repetition is of the same reports: of memoized noise, or of envelopes that
                devices sent, which stay what they are.
            count: reserve a block: so many windows or rounds that cost `event` each, in one row.
                Each is settled by itself, under the identity of its part.
            local_event: what people send, where `event` prices only what a server publishes that
                is trusted with it. A server that is sent everything has none: such a run is
                refused where the budget limits local epsilons.
            quota: whose share of the budget it is charged to.
            attempt: the token of a start whose reservation may be written already, because the
                answer was lost; default: a new start.
            privacy_unit, neighbours: what the run protects; must be the population's.
            about: JSON-able values for the record; never data.
            certificate: room for what later versions prove.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, a name that was used, a
                release id of another question.
            LedgerUnavailableError: if the ledger is away; names run and attempt where it is not
                known whether the reservation is written.
        """
        check_name("run_id", run_id)
        check_name("attempt", token := attempt or uuid.uuid4().hex)
        if count is not None:
            check_integer("count", count, 1)
        refusals.check_release(dataset, identity, memoized, is_block=count is not None)
        told, sent = as_json(event), local_event and as_json(local_event)
        check_commitment(told)
        covered = bool(identity.part) and is_nothing(told)  # by another part's charge
        price, local = loss_of_part if covered else loss_of, local_loss_of(sent or told)
        known = population_of(self._opened(dataset), dataset)
        price(told, budget_of(known, dataset).orders)  # kept, so that nobody waits for it below
        with self._writing(run_id, token, spends=True) as it:
            population = population_of(it.balances, dataset)
            budget = budget_of(population, dataset)
            refusals.check_unit(population, dataset, privacy_unit, neighbours)
            time = it.time(kinds.RESERVE)
            asked = Charge(
                run_id=run_id,
                dataset=dataset,
                population=population.name,
                identity=identity,
                reserved=told,
                settled=None,
                loss=price(told, budget.orders),
                local_epsilon=local,
                status="reserved",
                about=dict(about or {}),
                time=time,
                period=budget.period_of(time),
                number=it.balances.head.count,
                memoized=memoized,
                attempt=token,
                count=count or 1,
                is_block=count is not None,
                reserved_local=local,
                local_event=sent,
                quota=quota,
                certificate=certificate,
            )
            body = asked.to_row(it.balances.first_name_of(dataset))
            if covered:
                paying = charges_of_release(it.appender, body["release_key"])
                refusals.check_covered(paying, identity.release_id)
            earlier = it.appender.rows_of_run(run_id)
            if earlier:
                return _started_again(it, earlier, asked, repeated=attempt is not None)
            first = it.appender.first_of_release(body["release_key"])
            if first is not None:
                refusals.check_question(identity, of_run([first]))
                if memoized:
                    refusals.check_not_again(identity, equal_releases(it.appender, identity))
            if not covered:
                stands = status_of(population, asked.period)
                loss = times(asked.loss, asked.count)
                stands.check_fits(dataset, loss, asked.local_total, quota)
            it.append(kinds.RESERVE, body)
            return of_run([it.rows[-1]])

    def begin(
        self, run_id: str, *, attempt: str, start: str | None = None, rounds: int | None = None
    ) -> Charge:
        """Write down that a run begins, or one more of its rounds, before anybody is asked.

        A graph is reserved once, where it is built, and can be run again and again: each run has a
        token of its own (`start`), and only the run that began may settle. With fresh noise the
        first run alone begins. A later one of reports that stay the same takes the charge over;
        once that is settled, it may release the same once more.

        A training, of which all rounds are reserved at once, says how many have begun (`rounds`).
        The count never falls, and the charge is settled for at least as many: no file beside the
        training, and no older copy of one, makes it cheaper.

        Args:
            run_id: of an open reservation.
            attempt: token of the start that the ledger knows: of a graph, as `reserve` gave it; of
                a training, of the start that runs it.
            start: token of the start that takes over from it: that may begin or settle nothing
                from then on. Of a graph drawn when it runs; the same one again changes nothing.
            rounds: rounds of a training in all, the one that begins now included; 0 before the
                first. None of a graph.

        Raises:
            LedgerError: if the charge has ended, another start took over, or more rounds have
                begun already.
        """
        if rounds is not None:
            check_integer("rounds", rounds, 0)
        if start is not None or rounds is None:
            check_name("start", start or "")
        named = start if rounds is None else attempt
        with self._writing(run_id, named, spends=start is not None) as it:
            charge = charge_of(it.appender, run_id)
            if rounds is not None:
                refusals.check_attempt(charge, attempt, charge.attempt)
                refusals.check_open(charge)
                refusals.check_may_count(charge, rounds)
                return it.follow(charge, kinds.BEGIN, attempt=start or attempt, begun=rounds)
            if charge.run_token == start or (charge.memoized and charge.status == "settled"):
                return charge
            refusals.check_may_begin(charge)
            rows = it.appender.rows_of_run(run_id)
            if charge.attempt != attempt or any(row.body.get("began") == start for row in rows):
                raise refusals.overtaken(charge)
            return it.follow(charge, kinds.RESUME, attempt=attempt, began=start, about={})

    def settle(
        self,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        attempt: str | None = None,
        tokens: Mapping[str, str] | None = None,
        local_event: Any = None,
        report_digest: str | None = None,
        num_randomized: int | None = None,
        proof: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Write down what is released, before it is published.

        Idempotent by what leaves, never by what it costs: the same call of the same start is free,
        and the same memoized release of any start. Any other settlement of an ended charge is
        refused: fresh noise can cost the same twice.

        More than was reserved is written down too, as an alarm that audits show. A committed
        schedule (`CommittedDpEvent`) is charged whole, wherever it ended. What people lost locally
        is never less than what was reserved, unless it is proved that fewer reports were
        made: `proof` says how, and the event says which were.

        Args:
            run_id: of an open reservation.
            event: what is released.
            identity: of the release; must be that of the reservation. Of a block: of the part.
            attempt: token of the start that settles, as `reserve` gave it or `begin` took it. It
                may be left out of a run that was started once, which then settles once.
            tokens: for each public group ("" without groups) what stands for its release: drawn
                where the release is made, anew whenever it is made anew; of memoized noise a
                digest of the release. One charge covers one release of each group: groups that are
                settled later add their tokens to it. None where one process makes one release.
            local_event: as for `reserve`.
            report_digest: set digest of the reports, by which the same ones are known again.
            num_randomized: how many values were randomized; 0 spends nothing locally, with a proof.
            proof: why fewer reports were made than was reserved, for the record.
            about: JSON-able values for the record.

        Raises:
            ReleasedBeforeError: if the charge, or this part of it, ended in any other way.
            LedgerError: if there is no such open reservation, another start of the run took over,
                the identity is another, or more rounds have begun than the event is of.
            ValueError: for a committed schedule that was not reserved.
        """
        check_text("proof", proof)
        leaving = dict(tokens or {})
        for token in leaving.values():
            check_name("tokens", token)
        if num_randomized is not None and num_randomized < 0:
            raise ValueError(f"num_randomized must be >= 0, got {num_randomized}")
        known = self.charge(run_id)
        told = settled_as(known.reserved, as_json(event))
        sent = known.local_event if local_event is None else as_json(local_event)
        local, loss = local_loss_of(sent or told), self._loss_for(known, told)
        facts = {"event": told, "report_digest": report_digest, "num_randomized": num_randomized,
                 "proof": proof, "tokens": leaving, "about": dict(about or {})}  # fmt: skip
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            label = identity.part if charge.is_block else ""
            ended = ended_part(it.appender, charge, label)
            refusals.check_identity(charge, identity)
            if ended is not None:
                refusals.check_same(ended, attempt, facts)
                more = {name: leaving[name] for name in leaving if name not in ended.tokens}
                return _with_groups(it, charge, ended, label, more) if more else ended
            refusals.check_open(charge)
            refusals.check_attempt(charge, attempt, charge.settles)
            refusals.check_rounds(charge, told)
            if is_nothing(charge.reserved):
                refusals.check_covered(_others_of_release(it, charge), identity.release_id)
            if charge.is_block:
                facts["identity_digest"] = identity.digest.hex()
                if charge.memoized:
                    refusals.check_not_again(
                        identity, equal_releases(it.appender, identity, but=run_id)
                    )
            if same(told, charge.reserved):  # whatever a later version makes of the same event
                loss = charge.loss
            elif committed(charge.reserved):
                loss = loss.at_least(charge.loss)  # of a block: of one part
            local = least_local(charge, facts, local)
            spent = {
                "loss": loss.to_json(),
                "local_event": sent,
                "local_epsilon": finite(local),
                "overspent": overspends(charge, loss, local),
            }
            return _end(it, charge, kinds.SETTLE, label, attempt, 1, {**facts, **spent})

    def abandon(
        self,
        run_id: str,
        *,
        randomized: bool,
        why: str,
        part: str = "",
        count: int | None = None,
        attempt: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Give the central price back: only for a run of which provably nothing was released.

        Args:
            run_id: of an open reservation.
            randomized: whether people may have sent reports already; the local epsilon is then
                spent. So it is where the run was started more than once, and where a round began.
            why, about: for the record.
            part: of a block, the window or round; "" for what is left of it.
            count: of what is left of a block, so many; default: all.
            attempt: token of the start that gives up; a start that was overtaken cannot. Of a
                pipeline the launcher may, which reserved.

        Raises:
            ReleasedBeforeError: if it was settled.
            LedgerError: if there is no such open reservation, or parts of the release that were
                free beside it are settled.
        """
        with self._writing(run_id, attempt) as it:
            charge = charge_of(it.appender, run_id)
            ended = ended_part(it.appender, charge, part)
            if ended is not None:
                if ended.status == "abandoned":
                    return ended
                raise ReleasedBeforeError(f"run {ended.run_id!r} is {ended.status} already")
            refusals.check_open(charge)
            refusals.check_attempt(charge, attempt, charge.settles, charge.attempt)
            number = charge.count if charge.is_block and not part and count is None else count or 1
            if not 1 <= number <= charge.count or (part and number != 1):
                raise LedgerError(f"run {run_id!r} has {charge.count:,} open parts, not {number:,}")
            if number == charge.count and charge.pays:
                refusals.check_pays_for_none(charge, _others_of_release(it, charge))
            spent = randomized or charge.asked_people
            facts = {
                "local_epsilon": finite(charge.reserved_local if spent else 0.0),
                "about": {**(about or {}), "abandoned": why},
            }
            return _end(it, charge, kinds.ABANDON, part, attempt, number, facts)

    def republish(
        self,
        run_id: str,
        event: Any = None,
        *,
        identity: ReleaseIdentity,
        report_digest: str | None,
        reason: str = "people",
        cells: Any = None,
        published: int | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Release the same memoized reports once more, in place of the first publication's charge.

        Equal reports are free, unless more of them is shown: a group that was too small before.
        Where other *people* are in them, and nobody's value has changed,
        one event covers both publications (spec "several releases", section 1): it takes the place
        of the first, and is never less. People lose nothing more locally: they send the same
        reports. Other *values* have no price: the caller refuses them.

        Args:
            run_id: of the settled charge; of a block, `identity` says which part.
            event: what all publications together cost; None where the reports are equal.
            identity: of the release.
            report_digest: set digest of the reports; None where nobody here holds the key (devices
                do), who then cannot tell equal reports. Digests of earlier versions prove nothing.
            reason: only "people".
            cells: how many people are in each set of publications, for the record.
            published: how many publications the event covers beside this one; a publication that
                came in between is then refused, for the event would leave it out.
            about: JSON-able values for the record.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: if there is no such settled release of memoized noise, or the reports are
                others and no event is given, or no key decides what they are: others have no price.
        """
        refusals.check_exchange(reason, report_digest)
        told = event and as_json(event)
        if committed(told):
            raise ValueError("event must not commit to a schedule that is over")
        asked = None if told is None else self._loss_for(self.charge(run_id), told)
        with self._writing(run_id, spends=True) as it:
            whole = charge_of(it.appender, run_id)
            label = identity.part if whole.is_block else ""
            refusals.check_identity(whole, identity)
            charge = ended_part(it.appender, whole, label)
            if charge is None or charge.status != "settled" or not charge.memoized:
                raise LedgerError(f"run {run_id!r} is not a settled release of memoized noise")
            equal = same_set(charge.report_digest, report_digest)
            if equal and (asked is None or not exceeds(asked, charge.loss)):
                return charge
            covering = told if equal or charge.identity.key else None
            refusals.check_covering(charge, run_id, covering, published)
            population = self._population_for(it, charge)
            loss = loss_of(told, population.granted.orders).at_least(charge.loss)
            stands = status_of(population, charge.period)
            stands.check_fits(charge.dataset, loss.above(charge.loss), 0.0, charge.quota)
            return it.follow(
                whole, kinds.REPLACE, charge, label, event=told, loss=loss.to_json(),
                gives_back=charge.loss.to_json(), report_digest=report_digest, reason=reason,
                cells=cells, about=dict(about or {}),
            )  # fmt: skip

    def _loss_for(self, charge: Charge, told: dict[str, Any]) -> Loss:
        """The loss of an event at the orders of the charge's budget."""
        orders = self._opened(charge.dataset).populations[charge.population].granted.orders
        return (loss_of_part if is_nothing(charge.reserved) else loss_of)(told, orders)

    def _population_for(self, it: Writing, charge: Charge) -> Population:
        """Where the people of a charge stand in its period; checkpoints forget closed ones."""
        population = it.balances.populations[charge.population]
        if charge.period == max(population.accounts):
            return population
        self._state.apply(after(self._state.head, it.appender))
        return self._state.populations[charge.population]

    # Audit -----------------------------------------------------------------------------------

    def audit(self, **evidence: Any) -> AuditReport:
        """Check everything that can be checked of this ledger.

        Args:
            evidence: what else is known of it: anchors, keys, a tracking server; as of `audit`.
        """
        return audit(self.rows(), **evidence)

    # What operators and auditors grant ---------------------------------------------------------

    def set_budget(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        local_epsilon: float | None = None,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        population: str | None = None,
        orders: tuple[float, ...] | None = None,
        chances: float | None = None,
        period_days: int | None = None,
        by: str | None = None,
        why: str = "",
    ) -> BudgetStatus:
        """Grant a budget, or change it: a row of its own that audits show.

        Args:
            dataset: its name; new names make new datasets here, and nowhere else.
            epsilon, delta: central budget.
            local_epsilon: most that the local epsilons of one person may sum to; None: no limit.
            privacy_unit: what is protected, "user" for all that a person holds.
            neighbours: only "replace-one" is accounted.
            population: the people; datasets about the same people share one. Default: the
                population that the dataset has, or one of the dataset's name.
            orders: Rényi orders that are fixed with the budget, the most important first; default:
                what suits many small releases. Each reads the total at a share of delta. Once
                something is charged they stay as they are, whatever becomes of the budget.
            chances: share of delta for guarantees that fail with small probability, fixed with the
                orders. Default: 0.05; more where schedules are committed as a whole
                (`CommittedDpEvent`), of which such a share is what their losses are read at: 0.9
                for nothing else.
            period_days: renew the budget after this number of days; stays too.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if the dataset belongs to another population or unit, or other orders,
                chances or periods are given after something was charged.
            ValueError: for numbers that make no budget.
        """
        check_name("dataset", dataset)
        check_budget(epsilon, delta, local_epsilon, orders, period_days)
        if chances is not None:
            check_fraction("chances", chances, "[)")
        check_name("privacy_unit", privacy_unit)
        record = recorded(by, why)
        if neighbours != REPLACE_ONE:
            raise ValueError(f'neighbours must be "{REPLACE_ONE}", got {neighbours!r}')
        terms = {
            "epsilon": float(epsilon),
            "delta": float(delta),
            "local_epsilon": None if local_epsilon is None else float(local_epsilon),
            "orders": None if orders is None else list(map(float, orders)),
            "chances": None if chances is None else float(chances),
            "period_days": period_days,
            **record,
        }
        with self._writing() as it:
            rows = refusals.granted(
                it.balances, dataset, privacy_unit, neighbours, population, terms
            )
            for kind, body in rows:
                it.append(kind, body)
        return self.status(dataset)

    def set_quota(
        self, dataset: str, quota: str, *, share: float, by: str | None = None, why: str = ""
    ) -> BudgetStatus:
        """Keep a share of a population's budget for a team or analyst.

        What is charged to the quota never exceeds the share, and nobody else gets at it: see
        `admission`. What no quota keeps is for charges that name none.

        Args:
            dataset: any of the population.
            quota: whose share.
            share: of the budget, in [0, 1]; all of them together at most 1.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if more than that is spent already by those whose share would become
                smaller, or the shares are more than the budget.
        """
        check_name("quota", quota)
        record = recorded(by, why)
        check_fraction("share", share, "[]")
        with self._writing() as it:
            population = population_of(it.balances, dataset)
            period = budget_of(population, dataset).period_of(it.time(kinds.QUOTA))
            refused = quota_refusal(population, period, Quota(quota, float(share)))
            if refused is not None:
                raise LedgerError(f"quota {quota!r} cannot be a share of {share:g}: {refused}")
            body = {"population": population.name, "quota": quota, "share": float(share)}
            it.append(kinds.QUOTA, {**body, **record})
        return self.status(dataset)

    def rename(self, dataset: str, to: str, *, by: str | None = None, why: str = "") -> None:
        """Give a dataset another name. Its people, its budget and its charges stay.

        The old name is not given to another dataset. Memoized noise depends on the name: what was
        released under the old one keeps its release ids.

        Raises:
            LedgerError: for an unknown dataset, or a name that is taken.
        """
        check_name("to", to)
        record = recorded(by, why)
        with self._writing() as it:
            population_of(it.balances, dataset)
            if to in it.balances.datasets or to in it.balances.former_names:
                raise LedgerError(f"there is, or was, a dataset {to!r} already")
            it.append(kinds.RENAME, {"dataset": dataset, "to": to, **record})

    def accept_time(self, *, why: str, by: str | None = None) -> str:
        """Say that this machine's clock is right, though it is far ahead of the last row.

        Returns:
            The time from which the ledger goes on.
        """
        record = recorded(by, why)
        with self._writing() as it:
            now = max(self._time(it.appender)[0], it.balances.time)
            it.append(kinds.TIME, {"before": it.balances.time, "time": now, **record})
        return now

    def accept(self, row: int, key: Ed25519PrivateKey, *, why: str, by: str | None = None) -> None:
        """The auditor accepts a change of a budget: a row of its own, signed.

        Args:
            row: number of the budget's row, as audits name it.
            key: the auditor's.
            why, by: for the record; default: the login name.

        Raises:
            LedgerError: if the row is no budget.
        """
        record = recorded(by, why)
        found = [found for found in self.rows() if found.number == row]
        acceptable = found and (found[0].kind == kinds.BUDGET or "succeeds" in found[0].body)
        if not acceptable:
            raise LedgerError(
                f"row {row} is neither a budget nor a succession, and cannot be accepted"
            )
        with self._writing() as it:
            made = Acceptance(it.balances.ledger_id, row, found[0].hash, **record).sign(key)
            it.append(kinds.ACCEPT, made.to_json())

    def count_people(self, dataset: str, store: str, *, files: Files | None = None) -> PeopleCount:
        """Count what each person was charged locally in the current period, and write it down.

        People are known by keyed hashes that runs left (see `participants`). Runs that left none,
        or not all, count as if they had asked everybody: `BudgetStatus.local_maximum` stays an
        upper bound for every person.

        Args:
            dataset: any of the population.
            store: folder of the hashes, as the runs had it.
            files: where it lies; default: this machine.

        Raises:
            DamagedTagsError: if a file of hashes is not what was written.
            LedgerError: if none can be counted, where there were some before.
        """
        period = self.status(dataset).period
        known = population_of(self.state, dataset)
        counted = count_people(store, files or LocalFiles(), known.name, known.ended(period))
        with self._writing() as it:
            ended = {charge.number: charge for charge in known.ended(period)}
            counted.check(ended)
            last = population_of(it.balances, dataset).people.get(period)
            if last is not None and last.covered and not counted.covered:
                raise LedgerError(
                    "store holds no hashes that can be counted, although people were counted "
                    "before: it may be the wrong folder"
                )
            if counted != last and (counted.covered or last is not None):
                body = {"population": known.name, "period": period, **counted.to_json()}
                covered = covered_local(counted, ended).to_json()
                it.append(kinds.PEOPLE, {**body, "covered_local": covered})
        return counted

    def checkpoint(self) -> None:
        """Write all totals into a row of their own, so that opening need not read what is before.

        Writers do it by themselves every 256 rows.
        """
        with self._writing() as it:
            it.append(kinds.CHECKPOINT, {"books": it.balances.to_json()})


def _started_again(it: Writing, rows: Sequence[Row], asked: Charge, repeated: bool) -> Charge:
    """A run that starts again under its old name: free, or a LedgerError."""
    charge = of_run(rows)
    if repeated and charge.attempt == asked.attempt and charge.status == "reserved":
        return charge  # the answer was lost, the row was not
    if any(row.body.get("attempt") == asked.attempt for row in rows):
        raise refusals.overtaken(charge)
    refusals.check_same_run(charge, asked)
    return it.follow(charge, kinds.RESUME, attempt=asked.attempt, about=asked.about)


def _with_groups(
    it: Writing, charge: Charge, ended: Charge, part: str, more: dict[str, str]
) -> Charge:
    """The charge with releases of further groups: people are in one, so it costs nothing more."""
    if "" in more or "" in ended.tokens:
        raise ValueError("tokens must name the groups")
    loss = ended.loss.to_json()
    return it.follow(
        charge, kinds.REPLACE, ended, part, event=ended.settled, loss=loss, gives_back=loss,
        report_digest=ended.report_digest, reason="groups", cells=None, tokens=more, about={},
    )  # fmt: skip


def _end(
    it: Writing,
    charge: Charge,
    kind: str,
    part: str,
    attempt: str | None,
    count: int,
    facts: dict[str, Any],
) -> Charge:
    """Write down that a charge ends, or so many parts of a block; the charge, or the part.

    Args:
        it: the transaction.
        charge: as it is.
        kind: of the row.
        part: of a block, the one that ends; "" for any.
        attempt: token of the start that ends it; None for the only one.
        count: parts.
        facts: what else the row says.
    """
    counted = {} if charge.rounds_begun is None else {"begun": charge.rounds_begun}
    body = {
        **place(charge, part),
        **counted,
        "attempt": attempt or charge.settles,
        "count": count,
        "left": charge.count - count,
        "gives_back": charge.loss.to_json(),
        "gives_back_local": finite(charge.reserved_local),
    }
    it.append(kind, {**body, **facts})
    return (part_of if charge.is_block else followed)(charge, it.rows[-1])


def _others_of_release(it: Writing, charge: Charge) -> list[Charge]:
    """The charges of the same release id, but for this one."""
    name = it.balances.first_name_of(charge.dataset)
    key = release_key(charge.population, name, charge.identity)
    return charges_of_release(it.appender, key, but=charge.run_id)
