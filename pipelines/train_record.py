"""What a training cost: the record of privacy.json, and the statement that is written from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from beam_ldp.pipelines.record import PrivacyRecord
from beam_ldp.pipelines.statement import _code, _mechanism, number, rounded_down


@dataclass(frozen=True)
class TrainRecord(PrivacyRecord):
    """The record of a training.

    `local_epsilon` is what a client that was drawn in every round lost to whoever saw all its
    reports; `num_reports` and `priced_reports` are those of one round.

    Attributes:
        statistic: "model".
        algorithm: "cldp-sgd" or "fedavg".
        model, dimension: name, and how many parameters.
        unit: what is protected: "user", or "example" where a client has several.
        report_epsilon: what one report promises against everybody.
        norm, clip: of the clipping.
        num_clients, clients_per_round, sampling: who took part in a round.
        points_per_client, points_sampled: and with which of their data points.
        rounds, planned_rounds: that ran, and that were planned.
        stopped: why it ended: "finished" or "target".
        epsilon_any_mechanism: the price that holds for every mechanism of this local epsilon.
        epsilon_thesis: the price by the theorem of the thesis; None where it does not apply.
        epsilon_seen: the price against a reader who sees who takes part.
        test_accuracy, test_loss: of the model that is released, on public data.
        bits_per_client: what a client sent per round, measured.
    """

    statistic: str = "model"
    algorithm: str = ""
    model: str = ""
    dimension: int = 0
    unit: str = "user"
    report_epsilon: float | None = None
    norm: str = ""
    clip: float = 0.0
    num_clients: int = 0
    clients_per_round: int = 0
    sampling: str = "fixed"
    points_per_client: int = 1
    points_sampled: int = 1
    rounds: int = 0
    planned_rounds: int = 0
    stopped: str = "finished"
    epsilon_any_mechanism: float | None = None
    epsilon_thesis: float | None = None
    epsilon_seen: float | None = None
    test_accuracy: float | None = None
    test_loss: float | None = None
    bits_per_client: int | None = None


def training_statement(record: TrainRecord) -> str:
    """Markdown, for people who decide whether the model may be released."""
    made = f"Written {record.created} by beam-ldp {record.version}." if record.created else ""
    sections = [
        f"# Privacy statement: {_code(record.model)} trained on {_code(record.dataset)}",
        _in_short(record),
        _who(record),
        _what_is_public(record),
        _how(record),
        _rests_on(record),
        made,
    ]
    if record.warnings:
        sections.insert(-1, "## Warnings\n\n" + "\n".join(f"* {w}" for w in record.warnings))
    return "\n\n".join(sections).rstrip() + "\n"


def _in_short(record: TrainRecord) -> str:
    at = f"at delta = {record.delta:g}"
    rows = [
        "| against whom | price | of what |",
        "|---|---|---|",
        f"| everybody who sees one report | local epsilon = {number(record.report_epsilon)} "
        f"| one report of {_protected(record)} |",
        f"| everybody who sees all reports of a client that came in every round | local epsilon = "
        f"{number(record.local_epsilon)} | {record.rounds:,} rounds |",
        f"| everybody who sees the models of all rounds, and not who took part | epsilon = "
        f"{number(record.epsilon)} {at} | the whole training |",
    ]
    if record.epsilon_seen is not None:
        rows.append(
            f"| the same, who sees who took part | epsilon = {number(record.epsilon_seen)} {at} | "
            "whoever was drawn most often (but for a chance of one in a million) |"
        )
    below = ""
    if record.epsilon_lower is not None:
        below = (
            f" No analysis of this mechanism can prove less than "
            f"{rounded_down(record.epsilon_lower)}."
        )
    text = f"Method: {record.method}, {record.proof_status}.{below}"
    if record.epsilon_thesis is not None:
        text += (
            f" By the theorem of the thesis the same training costs "
            f"{number(record.epsilon_thesis)}: a larger bound of the same quantity."
        )
    return "## In short\n\n" + "\n".join(rows) + "\n\n" + text


def _protected(record: TrainRecord) -> str:
    if record.unit == "user":
        return "a client's data, all of it" if record.algorithm == "fedavg" else "a client's value"
    return "one data point of a client"


def _who(record: TrainRecord) -> str:
    unit = (
        "What is protected is **all data of a client**: replacing it by any other changes the "
        "probability of anything that is seen by at most the stated price (replace-one)."
        if record.unit == "user"
        else f"What is protected is **one of the {record.points_per_client:,} data points of a "
        "client**: replacing it by any other changes the probability of anything that is seen by "
        "at most the stated price (replace-one). A client that is to be protected as a whole pays "
        "for each of its data points."
    )
    return "\n\n".join(
        [
            "## Who is protected, and against whom",
            f"{unit} **That a client took part is not protected.**",
            "* **The client** sees its own data, clips and randomizes.\n"
            "* **The shuffler**, that is the runtime that adds up or permutes reports, sees each "
            "report and whose it is: there only the local epsilon protects.\n"
            "* **The server**, and everybody who reads models, sees sums of reports, round after "
            "round. There the central epsilon holds, if the shuffler does its job and nobody but "
            "the sampler knows who was drawn.",
            "This run was a simulation of clients on one machine, which therefore saw all data. "
            "Its noise came from TensorFlow's generator, which is not cryptographic "
            "(docs/federated.md).",
        ]
    )


def _what_is_public(record: TrainRecord) -> str:
    lines = [
        "the architecture, the initial weights, all settings of the training, the test data",
        f"the number of clients, {record.num_clients:,}, and that each has at least "
        f"{record.points_per_client:,} data points",
        "how many reports came in each round",
        "the model after each round, and all that follows from it (loss and accuracy on public "
        "data)",
    ]
    return "## What is public\n\n" + "\n".join(f"* {line};" for line in lines)


def _how(record: TrainRecord) -> str:
    drawn = {
        "fixed": f"a random set of {record.clients_per_round:,} in each round",
        "full": "everybody in every round",
        "self": f"each by a coin of its own in each round, {record.clients_per_round:,} on average",
    }[record.sampling]
    points = (
        f", each with {record.points_sampled:,} of {record.points_per_client:,} data points"
        if record.algorithm == "cldp-sgd"
        else ", each with all its data"
    )
    lines = [
        f"algorithm: {record.algorithm}, {record.rounds:,} rounds of {record.planned_rounds:,} "
        f"planned ({_ended(record)})",
        f"model: {record.model}, {record.dimension:,} parameters",
        f"clients: {record.num_clients:,}; {drawn}{points}",
        f"clipping: {record.norm} norm at most {record.clip:g}, per report, before the noise",
        f"mechanism: {_mechanism(record.mechanism)}",
    ]
    return "## How\n\n" + "\n".join(f"* {line}" for line in lines)


def _ended(record: TrainRecord) -> str:
    if record.stopped == "target":
        return f"one more would have exceeded the target of {record.target_epsilon:g}"
    return "all of them"


def _rests_on(record: TrainRecord) -> str:
    why = record.charged.removeprefix("no: ")
    charged = (
        f"this training alone, **which was not charged to any budget** ({why}): several releases "
        "about the same people add up"
        if record.run_id is None
        else f"this training alone. It was charged to the budget of {_code(record.dataset)} as run "
        f"{_code(record.run_id)}"
    )
    lines = [
        charged,
        "a schedule that was fixed before the first round: nothing that was seen changed it",
        "settings (clipping, rates, model) that were not tuned on the clients' data; every "
        "training that was run to choose them is to be priced too",
        f"{record.priced_reports:,} honest reports in each round: fake ones hide nobody",
    ]
    odds = "without bound"
    if record.epsilon is not None and record.epsilon < 700:
        odds = f"{math.exp(record.epsilon):,.3g}"
    lines.append(f"odds about anybody change at most by a factor of {odds} (e^epsilon)")
    return "## What the price rests on\n\n" + "\n".join(f"* {line}" for line in lines)
