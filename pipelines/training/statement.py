"""The statement about a training, in plain words, written from its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_ldp.accounting.reconstruction_audit import at_least, at_most
from beam_ldp.pipelines.records.forging import (
    ONE_WAY,
    forged_in_rounds,
    forged_list,
    mechanism_of,
)
from beam_ldp.pipelines.records.statement import _code, _mechanism, checkable, trusted_alone
from beam_ldp.pipelines.usage.train import ADAPED, CLDP_SGD, LOCAL_CENTRAL, SHUFFLED_EPOCHS
from beam_ldp.wording import factor, many, number, rounded_down, verb

if TYPE_CHECKING:
    from beam_ldp.pipelines.training.record import TrainRecord


def training_statement(record: TrainRecord) -> str:
    """Markdown, for people who decide whether the model may be released."""
    made = f"Written {record.created} by beam-ldp {record.version}." if record.created else ""
    sections = [
        f"# Privacy statement: {_code(record.model)} trained on {_code(record.dataset)}",
        *trusted_alone(
            record,
            record.report_epsilon,
            "a client's report",
            "the server" if record.algorithm == LOCAL_CENTRAL else "the shuffler",
        ),
        _in_short(record),
        _who(record),
        _what_leaves(record),
        _what_is_public(record),
        _how(record),
        _rests_on(record),
        *_own_models(record),
        *_audit(record),
        made,
    ]
    if record.warnings:
        sections.insert(-1, "## Warnings\n\n" + "\n".join(f"* {w}" for w in record.warnings))
    return "\n\n".join(sections).rstrip() + "\n"


def _in_short(record: TrainRecord) -> str:
    at = f"at delta = {record.delta:g}"
    rows = [
        "| against whom | privacy cost | of what |",
        "|---|---|---|",
        *_local_rows(record),
        f"| {_models_reader(record)} | epsilon = {number(record.epsilon)} {at} | the whole "
        "training |",
    ]
    if record.epsilon_seen is not None:
        rows.append(
            f"| the same, and who took part | epsilon = {number(record.epsilon_seen)} {at} | "
            + (
                "whoever was in every epoch |"
                if record.sampling == SHUFFLED_EPOCHS
                else "whoever was drawn most often (but for a chance of one in a million) |"
            )
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
    return "## In short\n\n" + "\n".join(rows) + f"\n\n{text}\n\n{checkable(record)}"


def _local_rows(record: TrainRecord) -> list[str]:
    """What holds against whoever sees what clients send."""
    if record.report_epsilon is None:
        who = "the server" if record.preset == "safe" else "pure epsilons, against everybody"
        return [f"| {who} | no local epsilon | what a client sends |"]
    often, of = "came in every round", many(record.rounds, "round")
    if record.sampling == SHUFFLED_EPOCHS:
        often = "was in every epoch"
    if record.most_messages is not None:
        often, of = "sent most", many(record.most_messages, "message")
    return [
        f"| everybody who sees one report | local epsilon = {number(record.report_epsilon)} "
        f"| one report of {_protected(record)} |",
        f"| everybody who sees all reports of a client that {often} | local epsilon = "
        f"{number(record.local_epsilon)} | {of} |",
    ]


def _models_reader(record: TrainRecord) -> str:
    if record.algorithm == ADAPED:
        return record.reader
    if record.algorithm == LOCAL_CENTRAL:
        return f"everybody who sees the models of all rounds: {record.reader}"
    return "everybody who sees the models of all rounds, and not who took part"


def _protected(record: TrainRecord) -> str:
    if record.unit == "user":
        return "a client's value" if record.algorithm == CLDP_SGD else "a client's data, all of it"
    return "one data point of a client"


_SHUFFLED = (
    "* **The client** sees its own data, clips and randomizes.\n"
    "* **The shuffler**, that is the runtime that adds up or permutes reports, sees each report "
    "and whose it is: against it, only the local epsilon protects.\n"
    "* **The server**, and everybody who reads models, sees sums of reports, round after round. "
    "Against them the central epsilon holds, if the shuffler does its job and nobody but the "
    "sampler knows who was drawn."
)
_ROLES = {
    "safe": (
        "* **The client** sees its own data, and keeps a model of its own that it never sends.\n"
        "* **The server** sees how far every client's copy of the shared model and of psi moved, "
        "clipped but without any noise: **it is trusted**. It adds the noise to the sum.\n"
        "* **Everybody else**, other clients included, sees the shared model and psi after each "
        "round. Against them the central epsilon holds, if nobody but the sampler knows who was "
        "drawn."
    ),
    "printed": (
        "* **The client** sees its own data, keeps a model of its own that it never sends, and "
        "clips and adds noise to every step of what it sends.\n"
        "* **The server**, and everybody else, sees what clients send, with the sender. Against "
        "them the central epsilon holds for somebody who was drawn in every round."
    ),
    LOCAL_CENTRAL: (
        "* **The client** sees its own data, clips and randomizes with a large local epsilon.\n"
        "* **The server** sees each message and whose it is: against it, only the local epsilon "
        "protects, and what that still hides is in the audit below. It clips messages, adds noise "
        "to their sum, and is trusted with both.\n"
        "* **Everybody else** sees models. Against them the central epsilon holds, if nobody sees "
        "who joined a round."
    ),
}


def _who(record: TrainRecord) -> str:
    unit = (
        "What is protected is **all data of a client**: replacing it by any other changes the "
        "probability of anything that is seen by at most what the stated epsilon allows "
        "(replace-one)."
        if record.unit == "user"
        else f"What is protected is **one of the {record.points_per_client:,} data points of a "
        "client**: replacing it by any other changes the probability of anything that is seen by "
        "at most what the stated epsilon allows (replace-one). For a client as a whole, the cost "
        "adds up over its data points."
    )
    return "\n\n".join(
        [
            "## Who is protected, and against whom",
            f"{unit} **That a client took part is not protected.**",
            _ROLES.get(record.preset or record.algorithm, _SHUFFLED),
            "This run was a simulation of clients on one machine, which therefore saw all data. "
            "Its noise came from TensorFlow's generator, which is not cryptographic "
            "(docs/federated.md).",
        ]
    )


def _what_leaves(record: TrainRecord) -> str:
    lines = [
        "Taken from the computation that ran; nothing else goes from a client to the server.",
        "",
        "| flow | of type | what protects it |",
        "|---|---|---|",
    ]
    for flow in record.flows:
        kind = flow["type"].replace("|", "\\|")
        lines.append(f"| {flow['name']} | `{kind}` | {flow['verdict']}: {flow['protection']} |")
    return "## What leaves a client\n\n" + "\n".join(lines)


def _what_is_public(record: TrainRecord) -> str:
    lines = [
        "the architecture, the initial weights, all settings of the training, the test data",
        f"the number of clients, {record.num_clients:,}, and that each has at least "
        f"{many(record.points_per_client, 'data point')}",
        "how many clients join a round on average (the actual number is not revealed, which "
        "Poisson sampling assumes)"
        if record.algorithm == LOCAL_CENTRAL
        else "how many reports came in each round",
        "the model after each round, and all that follows from it (loss and accuracy on public "
        "data)",
    ]
    return "## What is public\n\n" + "\n".join(f"* {line};" for line in lines)


def _how(record: TrainRecord) -> str:
    drawn = {
        "fixed": f"a random set of {record.clients_per_round:,} in each round",
        "full": "everybody in every round",
        "self": "each by a coin of its own in each round (Poisson sampling of clients), "
        f"{record.clients_per_round:,} on average",
        SHUFFLED_EPOCHS: f"everybody once in each epoch, {record.clients_per_round:,} in a round, "
        "in random order",
    }[record.sampling]
    if 0 < record.least_clients < record.clients_per_round:
        drawn += f", of whom at least {record.least_clients:,} came"
    points = (
        f", each with {record.points_sampled:,} of {many(record.points_per_client, 'data point')}"
        if record.algorithm == CLDP_SGD
        else ", each with all its data"
    )
    lines = [
        f"algorithm: {record.algorithm}, {many(record.rounds, 'round')} of "
        f"{record.planned_rounds:,} planned ({_ended(record)})",
        f"model: {record.model}, {many(record.dimension, 'parameter')}",
        f"clients: {record.num_clients:,}; {drawn}{points}",
        _clipping(record),
        f"mechanism: {_mechanism(record.mechanism)}",
    ]
    return "## How\n\n" + "\n".join(f"* {line}" for line in lines)


def _clipping(record: TrainRecord) -> str:
    if record.adaptive_clip:
        return (
            f"clipping: {record.norm} norm, starting at {record.clip:g} and following the median "
            "of the norms, per report, before the noise; for this, every report carries a bit, "
            f"whether its norm was below, of local epsilon {number(record.bit_epsilon)} out of "
            f"{number(record.report_epsilon)}"
        )
    if record.preset == "printed":
        return f"clipping: {record.norm} norm at most {record.clip:g}, of every step's gradient"
    how = "each coordinate of a report" if record.norm == "linf" else "per report"
    return f"clipping: {record.norm} norm at most {record.clip:g}, {how}, before the noise"


def _ended(record: TrainRecord) -> str:
    if record.stopped == "target":
        return f"one more would have exceeded the target of {record.target_epsilon:g}"
    done = record.rounds - record.lost_rounds - record.withheld_rounds
    if record.stopped == "too few":
        return f"too few clients came to one; the model is that after {done:,} of them"
    if record.stopped in ("interrupted", "failed"):
        return f"the training was interrupted or failed; the model is that after {done:,} of them"
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
        "settings (clipping, rates, model) that were not tuned on the clients' data; the cost of "
        "every training that was run to choose them is to be added",
    ]
    if record.noise_multiplier is None:
        lines.append(
            f"{many(record.honest_reports, 'honest report')} in each round: fake ones hide nobody"
        )
    clip = None if record.adaptive_clip else record.clip
    forger = mechanism_of(record.mechanism) if record.forged else None
    if said := forged_in_rounds(forger, record.norm, clip):
        lines.append(
            "no privacy cost covers what clients do who send what they like. A report that its "
            f"mechanism does not make is dropped and counted; with others, {said}"
        )
    if record.forged_checked:
        lines.append(
            f"{ONE_WAY}, {record.colluding_reports:,} in the last round. Whichever of its others "
            "were forged, that many moved its mean by up to "
            f"{forged_list(record.forged_checked)}"
        )
    if 0 < record.least_clients < record.clients_per_round:
        lines.append(
            "whether a client that was drawn came depends neither on its data nor on who else was "
            "drawn; of all clients, at least as large a share could have come as did of those drawn"
        )
    local: Any = (record.round_event or {}).get("event", {}).get("local_event", {})
    if record.sampling != "full" and (record.adaptive_clip or local.get("messages", 1) > 1):
        what = " and the bit about its norm" if record.adaptive_clip else "'s messages"
        lines.append(
            f"a report{what} as made from one sample: composed among those drawn, and then sampled"
            if local.get("columns")
            else "the sum of the local epsilons of a report and of the bit about its norm: nothing "
            "better is proved for two messages of different kinds from one sample"
        )
    lines.append(
        f"odds about anybody change by at most a factor of {factor(record.epsilon)} (e^epsilon)"
    )
    return "## What the privacy cost rests on\n\n" + "\n".join(f"* {line}" for line in lines)


def _own_models(record: TrainRecord) -> list[str]:
    if record.algorithm != ADAPED:
        return []
    text = (
        "Personal models were not measured: their accuracy depends on the data of their clients, "
        "and no budget covers it."
    )
    if record.personal_accuracy is not None:
        alone = record.local_only_accuracy
        beside = "" if alone is None else f"; every client alone reached {alone:.3f} in as many"
        text = (
            f"Accuracy of the personal models, on average: {record.personal_accuracy:.3f}{beside} "
            "rounds. These figures were read from the clients' models, which only public data "
            "allows: no budget covers them."
        )
    return [f"## Personal models\n\n{text}"]


def _audit(record: TrainRecord) -> list[str]:
    """What somebody who sees messages can rebuild."""
    if record.reconstruction is None:
        return []
    lines = [
        "| reconstructed if | blind guess | at most | 1 % from | 10 % from | one message |",
        "|---|---|---|---|---|---|",
    ]
    for row in record.reconstruction["rows"]:
        attack = "not known" if row["attack"] is None else f"{row['attack']['worst']:.2g}"
        cells = [row["target"], f"{row['prior']:.2g}", at_most(row["bound"]),
                 *map(at_least, row["bound_reaches"]), attack]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    sent = record.most_messages or 0
    told = (
        f"Chances that somebody who sees {verb(sent, 'the', 'all')} {many(sent, 'message')} of the "
        "client that sent most, and little else, reconstructs what they were made from; bounds for "
        "every attack, at this training's local epsilon of "
        f"{number(record.reconstruction['local_epsilon'])}, and the local epsilon of all messages "
        "from which the bound exceeds 1 % and 10 %. The last column is what guessing one message "
        "achieves, exactly, where it is PrivUnit's (docs/federated.md):"
    )
    return ["## What messages hide", told, "\n".join(lines)]
