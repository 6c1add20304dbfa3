"""The wire: packed reports, the envelope, and the steps at which an envelope is refused."""
import zlib
from typing import Any

from spec.frequency import Extra, Spec, Words
from spec.names import identity_digest

def bits_for(count: int) -> int:
    return max(1, (count - 1).bit_length())

def num_bits(mechanism: Spec) -> int:
    return len(mechanism.counts) if mechanism.as_bits else sum(map(bits_for, mechanism.counts))

def pack(mechanism: Spec, report: list[int]) -> bytes:
    """Symbols one after the other, the most significant bit first, and zeros to a whole byte; bits
    fill bytes from their least significant bit on."""
    size, whole = -(-num_bits(mechanism) // 8), 0
    if mechanism.as_bits:
        return sum(bit << i for i, bit in enumerate(report)).to_bytes(size, "little")
    for symbol, count in zip(report, mechanism.counts):
        whole = whole << bits_for(count) | symbol
    return (whole << -num_bits(mechanism) % 8).to_bytes(size, "big")

def unpack(mechanism: Spec, packed: bytes) -> list[int] | None:
    """The report; None if a device that follows the mechanism cannot have sent it."""
    whole = int.from_bytes(packed, "big") >> -num_bits(mechanism) % 8
    report: list[int] = []
    for count in reversed(mechanism.counts):
        report.insert(0, whole & (1 << bits_for(count)) - 1)
        whole >>= bits_for(count)
    if mechanism.as_bits:
        report = [packed[i // 8] >> i % 8 & 1 for i in range(len(mechanism.counts))]
    return report if possible(mechanism, report) and pack(mechanism, report) == packed else None

def possible(mechanism: Spec, report: list[int]) -> bool:
    return all(map(int.__lt__, report, mechanism.counts)) and mechanism.sound(report)

def seal(content: bytes) -> bytes:
    return content + zlib.crc32(content).to_bytes(4, "big")

def envelope(identity: Any, packed: list[bytes], envelope_id: bytes, simulated: bool) -> bytes:
    head = b"\x89LDP" + bytes([2, simulated, 0, 0]) + identity_digest(identity)[:16]
    return seal(head + envelope_id + len(packed).to_bytes(4, "big") + b"".join(packed))

def refusal(mechanism: Spec, identity: Any, simulated: bool, data: bytes) -> tuple[str, str] | None:
    """The first step that fails, and the reason; None for an envelope of the release."""
    each, count = -(-num_bits(mechanism) // 8), int.from_bytes(data[40:44], "big")
    most = min(identity["reports_per_envelope"], ((1 << 24) - 48) // each)
    length, flags = 48 + count * each, data[5:6] or b"\0"
    reports = [data[at : at + each] for at in range(44, len(data) - 4, each)]
    steps = [
        ("magic", not data or data[:4] != b"\x89LDP"[: len(data)], "not an envelope"),
        ("version", data[4:5] not in (b"", b"\2"), "unknown format version"),
        ("prefix", len(data) < 24, "cut short"),
        ("flags", flags > b"\1", "unknown flags"),
        ("column", data[6:8] != b"\0\0", "unknown message column"),
        ("release", data[8:24] != identity_digest(identity)[:16],
         "another release, question or mechanism"),
        ("simulation", flags[0] > simulated, "simulated, among reports of people"),
        ("simulation", flags[0] < simulated, "of people, in a simulation"),
        ("header", len(data) < 44, "cut short"),
        ("count", count == 0, "no reports"),
        ("grant", count > most, "reports of more people than an envelope of this release may hold"),
        ("length", len(data) < length, "cut short"),
        ("length", len(data) > length, "followed by other bytes"),
        ("checksum", data != seal(data[:-4]), "wrong checksum"),
        ("reports", len(data) == length and None in [unpack(mechanism, r) for r in reports],
         "reports that the mechanism cannot send"),
    ]
    return next(((step, reason) for step, fails, reason in steps if fails), None)

def answer_bytes(oracle: Spec, answer: list[int]) -> bytes:
    """Bits as they are packed; each symbol in 1, 2, 4 or 8 bytes, the least significant first."""
    if oracle.as_bits:
        return pack(oracle, answer)
    size = next(n for n in (1, 2, 4, 8) if oracle.counts[0] <= 256**n)
    return b"".join(number.to_bytes(size, "little") for number in answer)

def length(oracle: Spec) -> int:
    return len(answer_bytes(oracle, [0] * len(oracle.counts)))

def answer_in(oracle: Spec, data: bytes) -> list[int] | None:
    """The answer of these bytes, behind which nothing but zeros may come; else None."""
    size, each = length(oracle), length(oracle) // len(oracle.counts) or 1
    own = [int.from_bytes(data[at : at + each], "little") for at in range(0, size, each)]
    found = unpack(oracle, data[:size]) if oracle.as_bits else own
    return found if found and possible(oracle, found) and not any(data[size:]) else None

def OneQuestion(oracles: list[Spec]) -> Spec:
    """Which question, by the top 56 bits of the first word; the answer; zeros to one length.
    `read(report, i)` is the answer to question i."""
    words, longest = 1 + max(o.words for o in oracles), max(map(length, oracles))
    def randomize(values: list[int], drawn: Words, extra: Extra) -> list[int]:
        i = (drawn[0] >> 8) * len(oracles) >> 56
        answer = oracles[i].randomize(values[i], drawn[1:], lambda at: extra(words + at))
        return [i, *answer_bytes(oracles[i], answer).ljust(longest, b"\0")]
    def read(report: list[int], i: int) -> Any:
        return answer_in(oracles[i], bytes(report[1:])) if report[0] == i else None
    def sound(report: list[int]) -> bool:
        return report[0] < len(oracles) and read(report, report[0]) is not None
    return Spec(words, [256] * (1 + longest), randomize, read, sound=sound)

def EveryQuestion(oracles: list[Spec]) -> Spec:
    """The answers of all questions, each in its own length."""
    n, words, lengths = len(oracles), [o.words for o in oracles], list(map(length, oracles))
    def randomize(values: list[int], drawn: Words, extra: Extra) -> list[int]:
        report: list[int] = []
        for i, oracle in enumerate(oracles):
            def more(at: int, i: int = i) -> int:
                return extra(sum(words) + i + n * at)
            answer = oracle.randomize(values[i], drawn[sum(words[:i]) :], more)
            report += answer_bytes(oracle, answer)
        return report
    def read(report: list[int], i: int) -> Any:
        return answer_in(oracles[i], bytes(report[sum(lengths[:i]) : sum(lengths[: i + 1])]))
    def sound(report: list[int]) -> bool:
        return all(read(report, i) is not None for i in range(n))
    return Spec(sum(words), [256] * sum(lengths), randomize, read, sound=sound)
