"""The wire: packed reports, the envelope, and the steps at which an envelope is refused."""
import zlib
from itertools import accumulate
from typing import Any

from spec.frequency import Spec, Word
from spec.names import identity_digest

def bits_for(count: int) -> int:
    return max(1, (count - 1).bit_length())

def num_bits(mechanism: Spec) -> int:
    return sum(map(bits_for, mechanism.counts))

def places(mechanism: Spec, whole_bytes: bool) -> list[list[int]]:
    """Of each number those of its bits; the least significant ones of bytes are 0, 8, 16, ..."""
    counts, ends = mechanism.counts, accumulate(map(bits_for, mechanism.counts))
    if mechanism.as_bits or whole_bytes:  # whole numbers, of 1, 2, 4 or 8 bytes each
        size = 1 if mechanism.as_bits else next(8 * n for n in (1, 2, 4, 8) if counts[0] <= 256**n)
        return [[*range(i * size, (i + 1) * size)] for i in range(len(counts))]
    return [[i ^ 7 for i in range(end - 1, end - 1 - bits_for(n), -1)]  # a byte's top bit is first
            for end, n in zip(ends, counts)]

def pack(mechanism: Spec, report: list[int], whole_bytes: bool = False) -> bytes:
    """Zeros where nothing has its place. An answer among others takes whole bytes."""
    found = places(mechanism, whole_bytes)
    whole = sum((n >> j & 1) << i for bits, n in zip(found, report) for j, i in enumerate(bits))
    return whole.to_bytes(1 + max(map(max, found)) // 8, "little")

def unpack(mechanism: Spec, packed: bytes, whole_bytes: bool = False) -> list[int] | None:
    """The report; None if a device that follows the mechanism cannot have sent it."""
    whole, found = int.from_bytes(packed, "little"), places(mechanism, whole_bytes)
    report = [sum((whole >> i & 1) << j for j, i in enumerate(bits)) for bits in found]
    sound = all(map(int.__lt__, report, mechanism.counts)) and mechanism.sound(report)
    again = pack(mechanism, report, whole_bytes).ljust(len(packed), b"\0")
    return report if sound and again == packed else None

def seal(content: bytes) -> bytes:
    return content + zlib.crc32(content).to_bytes(4, "big")

def envelope(identity: Any, packed: list[bytes], envelope_id: bytes, simulated: bool) -> bytes:
    head = b"\x89LDP" + bytes([2, simulated, 0, 0]) + identity_digest(identity)[:16]
    return seal(head + envelope_id + len(packed).to_bytes(4, "big") + b"".join(packed))

def refusal(mechanism: Spec, identity: Any, simulated: bool, data: bytes) -> tuple[str, str] | None:
    """The first step that fails, and the reason; None for an envelope of the release."""
    each, count = -(-num_bits(mechanism) // 8), int.from_bytes(data[40:44], "big")
    most = min(identity["reports_per_envelope"], ((1 << 24) - 48) // each)
    length, flags, release = 48 + count * each, data[5:6] or b"\0", identity_digest(identity)[:16]
    reports = [data[at : at + each] for at in range(44, len(data) - 4, each)]
    steps = [
        ("magic", not data or data[:4] != b"\x89LDP"[: len(data)], "not an envelope"),
        ("version", data[4:5] not in (b"", b"\2"), "unknown format version"),
        ("prefix", len(data) < 24, "cut short"),
        ("flags", flags > b"\1", "unknown flags"),
        ("column", data[6:8] != b"\0\0", "unknown message column"),
        ("release", data[8:24] != release, "another release, question or mechanism"),
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

def length(oracle: Spec) -> int:
    return len(pack(oracle, [0] * len(oracle.counts), True))

def OneQuestion(oracles: list[Spec]) -> Spec:
    """Which question, by 56 bits of a word; its answer; zeros. `read(report, i)` answers it."""
    words, longest = 1 + max(o.words for o in oracles), max(map(length, oracles))
    def randomize(values: list[int], word: Word) -> list[int]:
        i = (word(0) >> 8) * len(oracles) >> 56
        own = oracles[i].words
        answer = oracles[i].randomize(values[i], lambda at: word(at + (1 if at < own else words)))
        return [i, *pack(oracles[i], answer, True).ljust(longest, b"\0")]
    def read(report: list[int], i: int) -> Any:
        return unpack(oracles[i], bytes(report[1:]), True) if report[0] == i else None
    def sound(report: list[int]) -> bool:
        return report[0] < len(oracles) and read(report, report[0]) is not None
    return Spec(words, [256] * (1 + longest), randomize, read, sound=sound)

def EveryQuestion(oracles: list[Spec]) -> Spec:
    """The answers of all questions, each in its own length."""
    n, words, lengths = len(oracles), [o.words for o in oracles], list(map(length, oracles))
    def randomize(values: list[int], word: Word) -> list[int]:
        def own(i: int) -> Word:
            first, more = sum(words[:i]), sum(words) + i
            return lambda at: word(first + at if at < words[i] else more + n * at)
        answers = [oracle.randomize(values[i], own(i)) for i, oracle in enumerate(oracles)]
        return [byte for o, answer in zip(oracles, answers) for byte in pack(o, answer, True)]
    def read(report: list[int], i: int) -> Any:
        start = sum(lengths[:i])
        return unpack(oracles[i], bytes(report[start : start + lengths[i]]), True)
    def sound(report: list[int]) -> bool:
        return all(read(report, i) is not None for i in range(n))
    return Spec(sum(words), [256] * sum(lengths), randomize, read, sound=sound)
