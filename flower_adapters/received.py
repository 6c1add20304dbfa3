"""What came in a round, judged: reports that can be honest, each node's once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from secrets import SystemRandom

import numpy as np
from flwr.app import Message
from flwr.common.constant import ErrorCode

from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.randomizers.mean.base import MeanRandomizer
from flower_adapters.messages import Report

# Other errors are the SuperLink's, about nodes that it cannot reach and replies that expired.
_OF_THE_APP = {
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION,
    ErrorCode.MOD_FAILED_PRECONDITION,
    ErrorCode.INVALID_FAB,
    ErrorCode.CLIENT_APP_CRASHED,
}


LEFT_OUT = ("missing", "refused", "impossible", "repeated", "colluding", "spare")


@dataclass(frozen=True)
class Received:
    """The reports of a round that count, and how many others there were.

    Attributes:
        reports: as the mechanism reads them, `(n, ...)`.
        asked: nodes.
        missing: of them, who did not answer in time, or are gone as far as the SuperLink knows.
        refused: whose app answered that it does not, or failed.
        impossible: who sent what no honest client sends.
        repeated: who sent the report that another node had sent too.
        colluding: whose reports were left out because they point one way together.
        agreement: of the others, before any were spare (`Examined`); None where nobody looked.
        spare: who were not needed.
    """

    reports: np.ndarray
    asked: int
    missing: int = 0
    refused: int = 0
    impossible: int = 0
    repeated: int = 0
    colluding: int = 0
    agreement: float | None = None
    spare: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """All numbers but that of the reports."""
        return {name: getattr(self, name) for name in ("asked", *LEFT_OUT)}

    def without_colluders(self, check: CollusionCheck) -> Received:
        """The reports that do not point one way together."""
        kept, agreement = check.examine(self.reports)
        colluding = int((~kept).sum())
        return replace(self, reports=self.reports[kept], colluding=colluding, agreement=agreement)

    def at_most(self, number: int) -> Received:
        """So many of the reports, kept at random; the others are spare."""
        spare = len(self.reports) - number
        if spare <= 0:
            return self
        kept = sorted(SystemRandom().sample(range(len(self.reports)), number))
        return replace(self, reports=self.reports[kept], spare=spare)


def read_replies(
    mechanism: MeanRandomizer, asked: Sequence[int], replies: Iterable[Message], group: str
) -> Received:
    """Reads the replies to a round's messages, whose group is `group`.

    What comes of another round, or of a node that was not asked, is impossible. A node is counted
    once. Two different reports of one node, or of one identity, are impossible,
    both; equal ones of two nodes are one report, and repeated.
    """
    found: dict[int, list[Report | None]] = {node: [] for node in asked}
    refused, strangers = set(), 0
    for reply in replies:
        node = reply.metadata.src_node_id
        ours = node in found and reply.metadata.group_id == group
        if reply.has_error():
            if ours and reply.error.code in _OF_THE_APP:
                refused.add(node)
        elif not ours:
            strangers += 1
        else:
            found[node].append(Report.of(reply))
    answered = {node: set(sent) for node, sent in found.items() if sent}
    refused = {node for node in refused if node not in answered}
    single = {node: next(iter(s)) for node, s in answered.items() if len(s) == 1}
    payloads: dict[bytes, set[bytes]] = {}
    for report in single.values():
        if report is not None:
            payloads.setdefault(report.identity, set()).add(report.payload)
    kept: dict[bytes, bytes] = {}
    repeated = 0
    for report in single.values():
        if report is None or len(payloads[report.identity]) > 1:
            continue
        repeated += report.identity in kept
        kept[report.identity] = report.payload
    reports = _reports(mechanism, list(kept.values()))
    impossible = len(answered) - repeated - len(reports) + strangers
    missing = max(0, len(asked) - len(answered) - len(refused))
    return Received(reports, len(asked), missing, len(refused), impossible, repeated)


def _reports(mechanism: MeanRandomizer, payloads: list[bytes]) -> np.ndarray:
    """Those that a device which follows the mechanism can have sent."""
    width = -(-mechanism.bits_per_report // 8)
    rows = [np.frombuffer(p, dtype=np.uint8) for p in payloads if len(p) == width]
    if not rows:
        return np.empty((0, *mechanism.report_shape), dtype=mechanism.report_dtype)
    reports, possible = mechanism.unpack_each(np.stack(rows))
    return reports[possible]
