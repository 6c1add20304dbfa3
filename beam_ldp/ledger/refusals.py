"""What a ledger refuses though the budget has room, and what it says then: functions of values.

A charge is one run's and of one release; it ends once, by the start that may end it; a release id
stands for one question; reports that stay the same are not charged as if they were drawn anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from beam_ldp.ledger import kinds
from beam_ldp.ledger.admission import same
from beam_ldp.ledger.balances import NEIGHBOURS, UNIT, Balances, Population
from beam_ldp.ledger.charges import Charge, leaves_rounds_out
from beam_ldp.ledger.losses import CHANCES, is_nothing, orders_for
from beam_ldp.ledger.rows import BlockUsedUpError, LedgerError, ReleasedBeforeError, check_name
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import OLD_DIGEST, is_old

# Granting --------------------------------------------------------------------------------


def granted(
    state: Balances,
    dataset: str,
    privacy_unit: str,
    neighbours: str,
    population: str | None,
    terms: dict[str, Any],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a new budget: of the dataset if it is new, and of the budget.

    Args:
        state: as of now.
        dataset, privacy_unit, neighbours, population: as for `BudgetLedger.set_budget`.
        terms: of the budget, as its row holds them; `orders` and `chances` None for the usual ones.

    Raises:
        LedgerError: if they contradict what the ledger holds.
    """
    known = dataset in state.datasets
    name = population
    if name is None:
        name = state.population_of(dataset).name if known else dataset
    check_name("population", name)
    found = state.populations.get(name)
    if population is None and not known and found is not None:
        raise LedgerError(
            f"there is a population {name!r} with other datasets: name it as population "
            f"if {dataset!r} is about its people, or another one"
        )
    if known and state.population_of(dataset).name != name:
        raise LedgerError(
            f"dataset {dataset!r} belongs to population "
            f"{state.population_of(dataset).name!r}; its people cannot change"
        )
    if found is not None and found.privacy_unit != privacy_unit:
        raise LedgerError(
            f"population {name!r} has the privacy unit {found.privacy_unit!r}, not {privacy_unit!r}"
        )
    if dataset in state.former_names:
        raise LedgerError(f"{dataset!r} is what {state.renamed(dataset)!r} was called: it is taken")
    terms = _with_filter(found, terms)
    if not known:
        about = {UNIT: privacy_unit, NEIGHBOURS: neighbours}
        yield kinds.DATASET, {"dataset": dataset, "population": name, **about}
    yield kinds.BUDGET, {**terms, "population": name}


def _with_filter(found: Population | None, terms: dict[str, Any]) -> dict[str, Any]:
    """The terms with their orders, and the share of chances where it is not the usual one.

    Both, and the periods, stay as they are once something is charged.
    """
    terms = dict(terms)
    if found is not None and found.budget is not None and found.charged:
        fixed = {"orders": list(found.budget.orders), "chances": found.budget.chances}
        for what, value in fixed.items():
            if terms[what] not in (None, value):
                raise LedgerError(
                    f"{what} were fixed with the first budget and something was charged since: "
                    "chosen later they would prove nothing"
                )
        terms |= fixed
        days = found.budget.period_days
        if terms["period_days"] != days:
            said = "none" if days is None else f"of {days} days"
            raise LedgerError(
                f"the periods of population {found.name!r} ({said}) were fixed with the first "
                "charge: changing them would grant anew what is spent"
            )
    chances = terms.pop("chances")
    share = CHANCES if chances is None else chances
    orders = terms["orders"] or list(orders_for(terms["epsilon"], terms["delta"], share))
    return {**terms, "orders": orders, **({} if share == CHANCES else {"chances": share})}


# Reserving, and beginning ----------------------------------------------------------------


def check_release(dataset: str, identity: ReleaseIdentity, memoized: bool, is_block: bool) -> None:
    """A ValueError unless an identity is one of the run that asks for its charge."""
    if is_block and identity.part:
        raise ValueError("identity must be of the whole release where a block is reserved")
    if identity.dataset != dataset:
        raise ValueError(f"identity must be of dataset {dataset!r}, got {identity.dataset!r}")
    if identity.key and not memoized:
        raise ValueError("identity must commit to a key only where memoized is true")


def check_unit(population: Population, dataset: str, unit: str, neighbours: str) -> None:
    """A LedgerError unless a run protects what the population's budget counts."""
    if (unit, neighbours) != (population.privacy_unit, population.neighbours):
        raise LedgerError(
            f"dataset {dataset!r} protects one {population.privacy_unit} "
            f"({population.neighbours}); this run protects one {unit} ({neighbours})"
        )


def check_covered(others: Iterable[Charge], release_id: str) -> None:
    """A LedgerError unless a part of the release is charged, so that its other parts are free.

    An abandoned charge pays for nothing.
    """
    if not any(charge.pays for charge in others):
        raise LedgerError(
            f"no part of release {release_id!r} is charged here, and this part says that another "
            "one was charged for it. An abandoned charge pays for no part: reserve this one at its "
            "own price"
        )


def check_same_run(charge: Charge, again: Charge) -> None:
    """A LedgerError unless this is the run of the open charge, started again with equal reports."""
    said = f"run {charge.run_id!r} already has its charge ({charge.status}): "
    differing = charge.identity.differences(again.identity)
    resumable = charge.memoized and again.memoized and charge.rounds_begun is None
    if not (resumable and charge.status == "reserved") or differing:
        differs = f" (its release differs in its {', '.join(differing)})" if differing else ""
        raise LedgerError(
            f"{said}a repetition draws new noise and needs a new name and a new charge{differs}"
        )
    equal = {
        "worst case": same(charge.reserved, again.reserved)
        and same(charge.local_event, again.local_event),
        "quota": charge.quota == again.quota,
        "kind of charge": charge.is_block == again.is_block,
    }
    others = [name for name, is_equal in equal.items() if not is_equal]
    if others:
        raise LedgerError(
            f"{said}a start with another {' and '.join(others)} cannot go on under it. Start it "
            "with the settings that it was reserved with, or return what it reserved "
            "(`beam-ldp finalize`)"
        )


def check_question(identity: ReleaseIdentity, first: Charge) -> None:
    """A LedgerError if the release id stands for another question, or has another key.

    Args:
        identity: what is to be released.
        first: the first charge of the same release id; all others agree with it.
    """
    differs = _whole(first.identity).differences(_whole(identity))
    if differs:
        names = ["secret key" if name == "key" else name for name in differs]
        raise LedgerError(
            f"release id {identity.release_id!r} of dataset {identity.dataset!r} already stands "
            f"for another question (run {first.run_id!r}): it differs in its {', '.join(names)}. "
            "Use a new release id for another question"
        )


def _whole(identity: ReleaseIdentity) -> ReleaseIdentity:
    return replace(identity, part="", group="")


def check_not_again(identity: ReleaseIdentity, equal: Iterable[Charge]) -> None:
    """A LedgerError if the same reports are being released, or were.

    Fresh noise may be drawn again, and is charged again: this is for reports that stay the same.

    Args:
        identity: what is to be released.
        equal: charges of the equal identity, by whatever run.
    """
    for charge in equal:
        if charge.status == "reserved":
            raise LedgerError(
                f"run {charge.run_id!r} is releasing this very release ({identity.release_id!r}): "
                "resume it under its own name (of a program: with --run-id, or without it), or "
                "wait for it to end"
            )
        if charge.status == "settled" and not charge.is_block:
            raise LedgerError(
                f"this very release ({identity.release_id!r}) was published by run "
                f"{charge.run_id!r}: a second publication of the same reports is charged together "
                "with the first (`republish`) where that has a price, or is a release with an id "
                "of its own"
            )


def overtaken(charge: Charge) -> LedgerError:
    """What a start is told that another one took over from."""
    return LedgerError(f"another start of run {charge.run_id!r} took over: this one ends here")


def check_may_begin(charge: Charge) -> None:
    """A LedgerError unless a run of a pipeline may begin under an open charge."""
    is_open = charge.status == "reserved"
    if charge.rounds_begun is not None:
        raise LedgerError(f"run {charge.run_id!r} is a training, whose rounds are counted")
    if not is_open or (charge.run_token and not charge.memoized):
        raise LedgerError(
            f"run {charge.run_id!r} {'began before' if is_open else f'is {charge.status}'}, and "
            "its charge covers one run of its pipeline. To ask people again, with new "
            "noise, build the pipeline anew, with a new run_id: that is a new charge"
        )


def check_may_count(charge: Charge, rounds: int) -> None:
    """A LedgerError unless so many rounds of a training may have begun under an open charge."""
    if not charge.counts_rounds:
        raise LedgerError(
            f"run {charge.run_id!r} is a block, a pipeline's, or of reports that stay the same: "
            "no rounds of it are counted"
        )
    if rounds < charge.least_begun:
        raise LedgerError(
            f"{charge.least_begun:,} rounds of run {charge.run_id!r} have begun: the count cannot "
            f"fall to {rounds:,}"
        )


# Ending ----------------------------------------------------------------------------------


def check_identity(charge: Charge, identity: ReleaseIdentity) -> None:
    """A LedgerError unless a charge was reserved for this release; a block, for its whole."""
    told = replace(identity, part="") if charge.is_block else identity
    if told != charge.identity:
        differs = ", ".join(charge.identity.differences(told))
        raise LedgerError(
            f"run {charge.run_id!r} was reserved for another release: it differs in its {differs}"
        )


def check_open(charge: Charge) -> None:
    """A LedgerError if the charge has ended."""
    if charge.status != "reserved" and charge.is_block:
        raise BlockUsedUpError(f"all parts of run {charge.run_id!r} that were reserved have ended")
    if charge.status != "reserved":
        raise LedgerError(f"run {charge.run_id!r} is {charge.status} already")


def check_attempt(charge: Charge, attempt: str | None, *may: str) -> None:
    """A LedgerError unless this start may end the charge, or go on with it."""
    if attempt is None and (charge.attempts > 1 or charge.attempt not in may):
        raise LedgerError(
            f"run {charge.run_id!r} was started {charge.attempts} times: name the attempt that ends"
            if charge.attempts > 1
            else f"run {charge.run_id!r} is a pipeline's: name the run of it that ends (attempt)"
        )
    if attempt is not None and attempt not in may:
        raise LedgerError(
            f"another start of run {charge.run_id!r} took over: this one may not end it, and "
            "nothing of it may be published"
        )


def check_rounds(charge: Charge, event: dict[str, Any]) -> None:
    """A LedgerError for an event of fewer rounds than have begun."""
    if leaves_rounds_out(charge, event):
        raise LedgerError(
            f"{charge.least_begun:,} rounds of run {charge.run_id!r} have begun, as the ledger "
            "knows, and the event is of fewer"
        )


def check_same(ended: Charge, attempt: str | None, facts: Mapping[str, Any]) -> None:
    """A ReleasedBeforeError unless the start that settled settles the very same thing again.

    Without tokens all of it must be the same; with them, of each group that was released. Another
    start has the same tokens only where they are digests.
    """
    tokens, about = facts["tokens"], facts["about"]
    proved = ended.memoized and 0 < len(tokens.keys() & ended.tokens.keys()) == len(tokens)
    if (
        ended.status != "settled"
        or attempt is None
        or (attempt != ended.attempt and not proved)
        or bool(tokens) != bool(ended.tokens)
        or any(ended.tokens.get(name, token) != token for name, token in tokens.items())
        or not same(ended.settled, facts["event"])
        or ended.report_digest != facts["report_digest"]
        or not same(about, {name: ended.about.get(name) for name in about})
    ):
        raise ReleasedBeforeError(
            f"run {ended.run_id!r} is {ended.status} already, and this is not known to be the same "
            "release: a repetition with new noise needs a new name and a new charge"
        )


def check_pays_for_none(charge: Charge, others: Iterable[Charge]) -> None:
    """A LedgerError where parts of the release were free beside this charge alone, and settled."""
    others = list(others)
    free = [other for other in others if other.settled and is_nothing(other.settled)]
    if free and not any(other.pays for other in others):
        raise LedgerError(
            f"run {charge.run_id!r} pays for run {free[0].run_id!r}, which is settled as a free "
            "part of its release: settle it instead of abandoning it"
        )


# Publishing the same reports once more ---------------------------------------------------


def check_exchange(reason: str, report_digest: str | None) -> None:
    """A LedgerError unless people alone were exchanged, and reports can be told apart."""
    if reason != "people":
        raise LedgerError(
            f"reason must be 'people', got {str(reason)[:40]!r}: memoized reports about other "
            "values, beside the first ones, have no finite epsilon"
        )
    if is_old(report_digest):
        raise LedgerError(OLD_DIGEST)
    if report_digest is not None:
        check_name("report_digest", report_digest)


def check_covering(charge: Charge, run_id: str, event: Any, published: int | None) -> None:
    """A LedgerError unless an event is given that covers all that was published."""
    if published is not None and published != charge.published:
        raise LedgerError(
            f"run {run_id!r} was published once more in the meantime: start again, so that "
            "the cost covers that publication too"
        )
    if event is None:
        if is_old(charge.report_digest):
            raise LedgerError(f"run {run_id!r}: {OLD_DIGEST}")
        raise LedgerError(
            f"the reports of run {run_id!r} differ from those published: give what both "
            "publications cost together (event), if only people were exchanged"
        )
