"""The privacy record of one release: what privacy.json holds and the statement is written from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from beam_ldp.accounting.certificates import certified
from beam_ldp.wording import number

SCHEMA_VERSION = 1
NOT_WRITTEN = ("kind", "collected", "details")  # fields that privacy.json has not, by their names


@dataclass(frozen=True)
class PrivacyRecord:
    """What one release cost, to whom, and what that rests on.

    Attributes:
        question: public name of what was asked.
        dataset: name of the data.
        mechanism: configuration of the randomizer.
        local_epsilon: budget of one person's report against everybody who sees it.
        epsilon: proven upper bound of the price against readers of the output, rounded up to
            what `certificate` confirms; None in a simulation.
        epsilon_lower: no analysis of this mechanism can go below it; None where none is known.
        epsilon_class_lower: no analysis that knows only the local budget can go below it.
        delta: of `epsilon`.
        method, proof_status: how `epsilon` was computed, and whether that is proved.
        exactness: "exact", "real-arithmetic" or "computational", see the randomizer.
        bits_per_report: bits that one report takes.
        num_reports: reports received.
        num_bad_rows: rows that could not be used; None where they leave no trace.
        min_reports: below it nothing would have been released.
        honest_fraction: share of the reports that hide a person.
        honest_reports: reports that the price counts: honest ones of the smallest crowd.
        smallest_batch: the least number of reports that were permuted together.
        output: "statistic" or "reports": what left the shuffler.
        scope: "batch" or "global".
        user_id: the column that says whose row it is; None where every row is counted as a person.
        one_row_per_person: whether it was declared that no person has two rows.
        bad_rows: "dead-letter" or "other".
        memoized: whether noise is a function of a secret key.
        release_id: name of the release; that of the run, where it was not given one.
        identity: what was released, as `ReleaseIdentity.to_json` tells it, and
        identity_digest: its digest, hexadecimal. None where a program has none.
        report_digest: set digest of envelopes, or of keyed hashes of who sent which report where
            noise is memoized: equal in two publications exactly where the reports are the same.
        publication: the number of this publication of the same reports; `epsilon` is then the price
            of all of them together.
        one_shuffle: whether all reports (of each public group) went out together, or as one sum.
        frozen_values: whether it was declared that nobody's value changed between publications.
        simulated: drawn with a seed: protects nobody.
        target_epsilon: what was asked for, if anything.
        trust_shuffler: whether it was declared that the shuffler alone may protect people.
        expected_users: what was expected, if anything.
        charged: whether a budget was charged: "yes", or "no" and why.
        ledger, ledger_id, run_id: which ledger, and the name of the charge in it.
        untracked: why the run is not in MLflow; None if it was to be logged.
        postprocess: what was done to the unbiased frequencies before they were shown: "none",
            "clip" or "norm-sub". Intervals are those of the unbiased ones.
        event: the privacy event that was priced, as ledgers store it; None in a simulation.
        created: time of writing, ISO 8601, UTC.
        version: of beam-ldp.
        certificate: what confirms `epsilon` without the accountant, or why nothing does.
        kind: names the template of its statement (beam_ldp/release/statement.py).
        collected: whether reports were randomized elsewhere, and came in.
        details: what only releases of its kind tell, as `Asked.facts` and `part_facts` say it.
    """

    question: str
    dataset: str
    mechanism: dict[str, Any]
    local_epsilon: float | None
    epsilon: float | None
    epsilon_lower: float | None
    epsilon_class_lower: float | None
    delta: float
    method: str
    proof_status: str
    num_reports: int
    num_bad_rows: int | None
    min_reports: int
    honest_fraction: float
    honest_reports: int
    smallest_batch: int
    output: str
    scope: str
    user_id: str | None
    bad_rows: str
    exactness: str = "exact"
    bits_per_report: int | None = None
    one_row_per_person: bool = False
    memoized: bool = False
    release_id: str | None = None
    identity: dict[str, Any] | None = None
    identity_digest: str | None = None
    report_digest: str | None = None
    publication: int = 1
    one_shuffle: bool | None = None
    frozen_values: bool = False
    simulated: bool = False
    target_epsilon: float | None = None
    trust_shuffler: bool = False
    expected_users: int | None = None
    charged: str = "no: no ledger was named"
    ledger: str | None = None
    ledger_id: str | None = None
    run_id: str | None = None
    untracked: str | None = None
    postprocess: str = "none"
    event: dict[str, Any] | None = None
    created: str = ""
    version: str = ""
    warnings: tuple[str, ...] = field(default=())
    kind: str = "statement"
    collected: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.simulated and (self.epsilon is not None or self.local_epsilon is not None):
            raise ValueError("local_epsilon and epsilon must be None in a simulated release")
        price, stated = self.epsilon, certified({**self.details, **vars(self)})
        object.__setattr__(self, "certificate", stated["certificate"])
        if price is None:
            return
        for item in fields(self):
            told = _restated(getattr(self, item.name), item.name, price, stated["epsilon"])
            object.__setattr__(self, item.name, told)
        details = {
            name: _restated(told, name, price, stated["epsilon"])
            for name, told in self.details.items()
        }
        object.__setattr__(self, "details", details)

    def told(self) -> dict[str, Any]:
        """What its statement is written from."""
        return {**self.to_json(), "kind": self.kind, "collected": self.collected}

    def to_json(self) -> dict[str, Any]:
        """JSON-able, with a schema version; infinities become null and a word in `method`."""
        found: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in {**told, **self.details}.items():
            if isinstance(value, float) and not math.isfinite(value):
                value = None
            if name not in NOT_WRITTEN:
                found[name] = list(value) if isinstance(value, tuple) else value
        found["neighbours"] = "replace-one"
        found["participation_protected"] = False
        found["interval_level"] = 0.95
        found["intervals"] = "pointwise"
        return found


_PRICES = frozenset({"epsilon", "epsilon_if_known", "epsilon_if_visible"})


def _restated(told: Any, name: str, price: float, stated: float) -> Any:
    """A field in which prices, also of parts, are rounded up, and that price is what is stated."""
    if isinstance(told, tuple):
        return tuple(_restated(part, "", price, stated) for part in told)
    if isinstance(told, dict) and not name:  # of one part, level or round
        return {key: _restated(x, key, price, stated) for key, x in told.items()}
    if name not in _PRICES or told is None:
        return told
    return stated if told == price else float(number(told))
