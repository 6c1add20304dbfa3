"""The audit of a log: who was asked how often, at what cost, and what may have depended on what.

It trusts what the log says of itself: that all answers stand in it, and that a person has one name.
Against a log that lies it says nothing. What one transcript cannot tell is said to be unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.protocols.interaction import NANO, ROUNDING, nano_of
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.research.interactivity.kernels import kernel_delta, kernel_epsilon
from beam_ldp.research.interactivity.log_files import MalformedLogError
from beam_ldp.research.interactivity.records import FEMTO, Declared, RecordBlock
from beam_ldp.research.interactivity.replaying import (
    Contracted,
    Replay,
    contract_logs,
    epsilon_of_plans,
    replay_logs,
)
from beam_ldp.research.interactivity.sequential import SequentialPrice
from beam_ldp.research.interactivity.tallies import (
    Claim,
    LogTally,
    Tally,
    tally,
    tally_logs,
)

UNKNOWN_PROVENANCE = "unknown (no provenance)"
SEVERAL_RUNS = "unknown (several runs)"
UNKNOWN_PEOPLE = "unknown (envelopes name nobody)"
QUANTILES = (0.5, 0.9, 0.99)
MOST_EPSILON_ASKED_ONCE = 8.0
"""Above it, asking fresh people takes thousands of them for each question."""


@dataclass(frozen=True)
class AuditFinding:
    """Something about a log that somebody should look at.

    Attributes:
        name: one of `over budget`, `re-randomized on retry`, `declared below minimal`, `not in the
            plan`, which are faults, and `over budget in sum`, `declared above minimal`, `repeated
            without output`, `refused`.
        count: records, people or randomizers.
        text: what was found.
        fault: whether the audit fails by it.
    """

    name: str
    count: int
    text: str
    fault: bool


@dataclass(frozen=True, eq=False)
class InteractivityReport:
    """What an audit found.

    Attributes:
        epsilon, delta: what everybody was promised.
        log: the sums.
        minimal: minimal epsilon by name of the randomizer, of those whose kernels were given.
        contracted: the graph of who depends on whom, where the log has `depends_on`.
        replay: what everybody's likelihood filter says, where all kernels and answers are known.
        plan_epsilon: what one person's answers to the questions of the plan tell at most, exactly,
            where their kernels are known.
        short_of_delta: randomizers whose declared delta is not enough for their declared epsilon.
    """

    epsilon: float
    delta: float
    log: LogTally
    minimal: Mapping[str, float]
    contracted: Contracted | None = None
    replay: Replay | None = None
    plan_epsilon: float | None = None
    short_of_delta: frozenset[str] = frozenset()

    @property
    def people(self) -> Tally:
        """The sums of all people."""
        return self.log.people

    @property
    def who(self) -> str:
        """What people are called: envelopes name nobody."""
        return "ids of envelopes" if self.log.anonymous else "people"

    @property
    def max_queries(self) -> int:
        """Most queries of one person."""
        return max(self.people.by_queries, default=0)

    @property
    def mean_queries(self) -> float:
        """Queries per person; NaN of nobody."""
        return self.people.queries / self.people.people if self.people.people else math.nan

    @property
    def max_epsilon(self) -> float:
        """Most that one person's epsilons sum to."""
        return self.people.most_nano / NANO

    @property
    def k_hat(self) -> float:
        """Compositionality that this transcript shows: a lower bound of the protocol's k."""
        return self.max_epsilon / self.epsilon

    @property
    def k_mean(self) -> float:
        """The same on average over people; NaN of nobody."""
        people = self.people.people
        return self.people.nano / NANO / (people * self.epsilon) if people else math.nan

    @property
    def k_plan(self) -> float | None:
        """The protocol's k, which a committed plan tells exactly; None without one."""
        plan = self.log.plan
        return None if plan is None else plan.most_nano / NANO / self.epsilon

    @property
    def interactivity(self) -> str:
        """The class as far as repeated people tell it."""
        if self.log.anonymous:
            return UNKNOWN_PEOPLE
        return "sequentially interactive" if self.max_queries <= 1 else "fully interactive"

    @property
    def planned(self) -> bool:
        """Whether all questions were committed to before anybody was asked."""
        return self.log.plan is not None and self.people.unplanned == 0

    @property
    def unknown(self) -> str | None:
        """Why it is not known what questions depended on; None where it is."""
        if self.planned:
            return None
        if self.log.runs > 1:
            return SEVERAL_RUNS
        known = self.people.records and not self.people.provenance.unknown
        return None if known else UNKNOWN_PROVENANCE

    @property
    def depth(self) -> int | None:
        """Depth of adaptivity in waves (at least, where provenance was cut); None: not known."""
        if self.unknown is not None:
            return None
        return 1 if self.planned else self.people.provenance.depth

    @property
    def noninteractive(self) -> bool | None:
        """Whether no question depended on an answer; None where nobody can tell."""
        return None if self.depth is None else self.depth <= 1

    @property
    def mergeable(self) -> int | None:
        """People whose several questions are one: all were fixed before their first answer."""
        if self.planned:
            return self.people.repeated
        return None if self.log.runs > 1 or self.log.anonymous else self.people.mergeable

    @property
    def price_of_asking_once(self) -> SequentialPrice | None:
        """What it takes in people to ask everybody at most once, by this log and its promise.

        `None` where nobody was asked again, for several runs, for a delta, and above an epsilon
        of 8. It holds if the promise is the epsilon of the protocol, and its k that of the log.
        """
        people = self.people
        pure = not self.delta and not people.most_femto
        single = self.log.runs <= 1 and not self.log.anonymous
        single = single and people.repeated > 0 and self.k_mean > 0
        if not pure or not single or self.epsilon > MOST_EPSILON_ASKED_ONCE:
            return None
        return SequentialPrice(people.people, people.queries, self.k_mean, self.epsilon)

    def quantiles(self) -> dict[float, float]:
        """Of people's sums of epsilons, rounded up to four digits."""
        total, found = self.people.people, {}
        for share in QUANTILES if total else ():
            seen = 0
            for nano, count in sorted(self.people.by_total.items()):
                seen += count
                if seen >= share * total:
                    found[share] = nano / NANO
                    break
        return found

    @property
    def over(self) -> int:
        """People above the promise: by their answers, or else by their questions, or by sums."""
        people = self.people
        if self.replay is not None:
            return self.replay.over
        drawn_once = not people.rerandomized and not people.unlogged
        if self.plan_epsilon is not None and self.planned and drawn_once:
            return 0 if self.plan_epsilon <= self.epsilon + ROUNDING else people.over
        return people.over

    @property
    def findings(self) -> tuple[AuditFinding, ...]:
        """What is wrong, or wasteful."""
        people = self.people
        below, above = self._declared_wrong()
        promise = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")
        over, only_in_sum = self.over, max(0, people.over - self.over)
        found = (
            AuditFinding("over budget", over, f"{self.who} above {promise}", True),
            AuditFinding("over budget in sum", only_in_sum,
                    f"people whose epsilons sum to more than {promise}, and whose answers do not "
                    "tell more, by their kernels", False),
            AuditFinding("re-randomized on retry", people.rerandomized,
                    "answers to a question that its person had answered otherwise", True),
            AuditFinding("declared below minimal", len(below),
                    f"randomizers that cost more than the log says: {_list(below)}", True),
            AuditFinding("not in the plan", people.unplanned,
                    "answers to questions of no plan", True),
            AuditFinding("declared above minimal", len(above),
                    f"randomizers that cost less than the log says: {_list(above)}", False),
            AuditFinding("repeated without output", people.unlogged,
                    "answers that may be retries, counted as queries: outputs are not logged",
                    False),
            AuditFinding("refused", self.log.refused,
                    "bytes that are in no envelope of the release: collect lists them", False),
        )  # fmt: skip
        return tuple(one for one in found if one.count)

    def _declared_wrong(self) -> tuple[list[str], list[str]]:
        """Randomizers declared below and above their minimal epsilon, each by a unit of 1e-9."""
        below, above = [], []
        for name, one in sorted((self.log.declared or {}).items()):
            if name in self.minimal and one.femto:
                below += [name] if name in self.short_of_delta else []
            elif name in self.minimal:
                exact = self.minimal[name] * NANO
                below += [name] if one.least + 1 < exact else []
                above += [name] if one.most > exact + 1 + 1e-6 * exact else []
        return below, above

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(one.fault for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        people, price = self.people, self.price_of_asking_once
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "clean": self.clean,
            "findings": [vars(one) for one in self.findings],
            "anonymous": self.log.anonymous,
            "num_people": people.people,
            "num_records": people.records,
            "num_queries": people.queries,
            "num_retries": people.retries,
            "queries_per_person": {
                "max": self.max_queries,
                "mean": _or_none(self.mean_queries),
                "histogram": sorted(map(list, people.by_queries.items())),
            },
            "epsilon_per_person": {
                "max": self.max_epsilon,
                "mean": _or_none(self.k_mean * self.epsilon),
                "quantiles": [[share, value] for share, value in self.quantiles().items()],
            },
            "delta_per_person_max": people.most_femto / FEMTO,
            "num_over_budget": self.over,
            "num_over_in_sum": people.over,
            "likelihood_range_max": None if self.replay is None else self.replay.most,
            "k_hat": self.k_hat,
            "k_mean": _or_none(self.k_mean),
            "k_plan": self.k_plan,
            "plan_epsilon": self.plan_epsilon,
            "class": self.interactivity,
            "noninteractive": self.noninteractive if self.unknown is None else self.unknown,
            "waves": self.depth,
            "waves_are_at_least": people.provenance.cut,
            "num_repeated": people.repeated,
            "num_mergeable": self.mergeable,
            "asked_once": None if price is None else price.to_json(),
            "graph": None if self.contracted is None else self.contracted.to_json(),
            "randomizers": {
                name: {"records": one.records, "epsilon": [one.least / NANO, one.most / NANO],
                       "minimal_epsilon": self.minimal.get(name)}
                for name, one in sorted((self.log.declared or {}).items())
            },
        }  # fmt: skip


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def minimal_epsilons(kernels: Mapping[str, Any]) -> dict[str, float]:
    """The minimal epsilon of each kernel: the largest log-ratio of two inputs' probabilities.

    Args:
        kernels: by name, `(inputs, outputs)` probabilities with rows that sum to one.

    Raises:
        ValueError: for what is no kernel.

    >>> round(minimal_epsilons({"rr": [[0.75, 0.25], [0.25, 0.75]]})["rr"], 6)
    1.098612
    """
    with np.errstate(divide="ignore"):
        return {name: kernel_epsilon(kernel) for name, kernel in _sound(kernels).items()}


def _sound(kernels: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Kernels without the answers that nobody gives; raises ValueError for what is none."""
    found = {}
    for name, rows in kernels.items():
        try:
            kernel = np.asarray(rows, dtype=np.float64)
        except (TypeError, ValueError):
            kernel = np.empty(0)
        sound = kernel.ndim == 2 and kernel.size and np.all(kernel >= 0)
        if not sound or not np.allclose(kernel.sum(axis=1), 1, rtol=0, atol=1e-9):
            raise ValueError(f"kernel {name!r} must have rows of probabilities that sum to 1")
        found[name] = kernel[:, kernel.max(axis=0) > 0]
    return found


def _short_of_delta(
    kernels: Mapping[str, Any], declared: Mapping[str, Declared] | None
) -> frozenset[str]:
    """Of the randomizers that declare a delta those that need more, by more than rounding."""
    sound = _sound(kernels)
    return frozenset(
        name
        for name, one in (declared or {}).items()
        if one.femto and name in sound
        and kernel_delta(sound[name], one.least / NANO) * FEMTO > one.femto + 1 + ROUNDING * FEMTO
    )  # fmt: skip


def claim_of(epsilon: float, delta: float = 0.0) -> Claim:
    """A promise in the units of the sums, rounded up as they are.

    Raises:
        ValueError: for no epsilon or delta.
    """
    promised = nano_of(epsilon)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be in [0, 1), got {delta}")
    return Claim(promised, math.ceil(delta * FEMTO))


def audit_records(
    block: RecordBlock,
    epsilon: float,
    *,
    delta: float = 0.0,
    plan: RecordBlock | None = None,
    kernels: Mapping[str, Any] | None = None,
) -> InteractivityReport:
    """The audit of records in memory; as `audit_logs`.

    >>> import pyarrow as pa
    >>> from beam_ldp.research.interactivity.records import records_of
    >>> asked = {"seq": [0, 1, 2], "user": ["ada", "bob", "ada"], "round": [0, 0, 1]}
    >>> how = {"randomizer": ["a", "a", "b"], "epsilon": [0.5] * 3, "output": [1, 0, 1]}
    >>> report = audit_records(records_of(pa.table(asked | how)), epsilon=1)
    >>> report.clean, report.max_epsilon, report.interactivity, report.unknown
    (True, 1.0, 'fully interactive', 'unknown (no provenance)')
    """
    claim = claim_of(epsilon, delta)
    planned = None if plan is None else plan.rows
    people = tally(block.rows, claim, planned)
    committed = None if planned is None else tally(planned, claim)
    log = LogTally(people, block.about.declared, len(block.about.runs), committed)
    short = _short_of_delta(kernels or {}, log.declared)
    minimal = minimal_epsilons(kernels or {})
    return InteractivityReport(epsilon, delta, log, minimal, short_of_delta=short)


def audit_logs(
    paths: Sequence[Path],
    epsilon: float,
    *,
    delta: float = 0.0,
    plan: Sequence[Path] = (),
    kernels: Mapping[str, Any] | None = None,
    memory: int = 1 << 30,
    releases: Mapping[Path, ReleaseTerms] | None = None,
) -> InteractivityReport:
    """Audit logs of one protocol, or of several about the same people.

    Args:
        paths: files with records: Parquet, or JSON lines.
        epsilon, delta: what everybody was promised.
        plan: files with questions that were committed to: the same columns, without answers.
        kernels: probabilities of the randomizers, by name.
        memory: bytes for records; more of them go to files.
        releases: by path, the release of each file, where all are files of envelopes.

    Raises:
        MalformedLogError, OSError, ValueError: as `tally_logs`; for kernels as `minimal_epsilons`;
            for a file that somebody writes to meanwhile.
    """
    minimal = minimal_epsilons(kernels or {})
    found = {path: _stamp(path) for path in (*paths, *plan)}
    log = tally_logs(paths, claim_of(epsilon, delta), memory=memory, plan=plan, releases=releases)
    contracted, replayed, planned = None, None, None
    if not log.anonymous:
        contracted = contract_logs(paths)
        pure = not delta and not log.people.most_femto
        if kernels and pure and log.runs <= 1:
            replayed = replay_logs(paths, kernels, epsilon)
        if kernels and pure and log.plan is not None and not log.plan.most_femto:
            planned = epsilon_of_plans(plan, kernels)
    for path, stamp in found.items():
        if _stamp(path) != stamp:
            raise MalformedLogError(f"{path}: was written to while it was read")
    short = _short_of_delta(kernels or {}, log.declared)
    return InteractivityReport(epsilon, delta, log, minimal, contracted, replayed, planned, short)


def _stamp(path: Path) -> tuple[int, int]:
    told = path.stat()
    return told.st_size, told.st_mtime_ns
