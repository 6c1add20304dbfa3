"""What server and client tell each other: a question about one round, and a report.

Both are records of Flower's messages. Nothing here depends on anybody's data.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

ARRAYS, CONFIG, PRIVACY, REPORT = "arrays", "config", "privacy", "report"
ID_BYTES = 16


@dataclass(frozen=True)
class Question:
    """What one round of a training asks of a client.

    Attributes:
        training: its name; a client answers each of its rounds once.
        number: of the round, from 1 as Flower counts.
        mechanism: digest of the configuration that clients must have, in hex.
        content: Flower's SHA-256 of all that was sent, model and settings included; "" before.
    """

    training: str
    number: int
    mechanism: str
    content: str = ""

    def to_record(self) -> ConfigRecord:
        return ConfigRecord(
            {"training": self.training, "round": self.number, "mechanism": self.mechanism}
        )

    @classmethod
    def of(cls, message: Message) -> Question:
        """The question of a message.

        Raises:
            ValueError: if it asks none.
        """
        told = message.content.config_records.get(PRIVACY, {})
        training, number = told.get("training"), told.get("round")
        if not (isinstance(training, str) and training and isinstance(number, int) and number > 0):
            raise ValueError(
                f'message must hold a record "{PRIVACY}" with the name of a training and the number'
                " of a round, as LocallyPrivateFedAvg sends it"
            )
        return cls(training, number, str(told.get("mechanism", "")), message.content.object_id)


@dataclass(frozen=True)
class Report:
    """What a client answers.

    Attributes:
        payload: the mechanism's report, in whole bytes.
        identity: random, the same whenever this report is sent again: whoever comes twice under
            two nodes is recognised by it, and counted once.
    """

    payload: bytes
    identity: bytes

    def reply_to(self, message: Message) -> Message:
        record = ConfigRecord({"payload": self.payload, "identity": self.identity})
        return Message(RecordDict({REPORT: record}), reply_to=message)

    @classmethod
    def of(cls, message: Message) -> Report | None:
        """The report of a reply; None if it holds anything else than one."""
        content = message.content
        if list(content.keys()) != [REPORT] or REPORT not in content.config_records:
            return None
        told = content.config_records[REPORT]
        payload, identity = told.get("payload"), told.get("identity")
        if set(told) != {"payload", "identity"} or not isinstance(payload, bytes):
            return None
        if not isinstance(identity, bytes) or len(identity) != ID_BYTES:
            return None
        return cls(payload, identity)
