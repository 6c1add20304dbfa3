"""All wire vectors: `make wire-vectors` writes those that are missing.

They come from the specification, not from the product. `wire_inputs.json` has what was made up or
drawn, once: configurations, names, values, random words; all that follows from it is worked out by
`spec`. Vectors of a published format are kept for ever: one that exists is never written again.
Of each envelope that must be refused they name the step that refuses it: those of the first format
in `refused/steps.json`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from spec import frequency, means, names, prf, wire
from spec.frequency import Spec

FOLDER = Path(__file__).parent / "wire_vectors"
INPUTS = Path(__file__).parent / "wire_inputs.json"
ROOMS = (frequency, means, wire)  # a function for each mechanism
PLAIN = {  # fields that no function of the specification takes, because it knows these alone
    "preset": None, "num_bits": None, "report_probabilities": None,
}  # fmt: skip


def mechanism_of(config: dict[str, Any]) -> Spec:
    """What a configuration stands for."""
    functions = {name: made for room in ROOMS for name, made in vars(room).items()}
    made: Any = functions[config["mechanism"]]
    if any(config.get(name, plain) != plain for name, plain in PLAIN.items()):
        raise ValueError(f"the specification knows {config['mechanism']} with {PLAIN} alone")
    if "oracles" in config:
        return made([mechanism_of(oracle) for oracle in config["oracles"]])
    return made(**{name: config[name] for name in inspect.signature(made).parameters})


def broken(sound: bytes, each: int) -> list[bytes]:
    """What a collector must not take, from an envelope of one report that it takes."""
    body = sound[:-4]
    return [
        b"",
        b"value\nred\n",
        sound[:3],
        sound[:-1],
        sound + b"\0",
        *(
            wire.seal(changed)
            for changed in (
                body[:4] + b"\3" + body[5:],
                body[:5] + b"\2" + body[6:],
                body[:5] + b"\4" + body[6:],
                body[:7] + b"\1" + body[8:],
                body[:5] + b"\1" + body[6:],
                body[:8] + bytes(16) + body[24:],
                body[:40] + bytes(4),
                body[:40] + b"\0\0\0\12" + 10 * body[44:],
                body + bytes(1),
            )
        ),
        sound[:-1] + bytes([sound[-1] ^ 1]),
        wire.seal(body[:44] + b"\xff" * each),
    ]


def draws(config: dict[str, Any], mechanism: Spec, given: list[Any]) -> dict[str, Any]:
    """The law in whole numbers, and what each word becomes: a report, or a bit (held or not)."""
    if config["mechanism"] == "UnaryEncoding":
        own, other = frequency.unary_thresholds(config["local_epsilon"], config["optimized"])
        bits = [
            {"held": x, "word": w, "bit": int(int(w) < (own if x else other))} for x, w in given
        ]
        return {"law": {"own": str(own), "other": str(other)}, "draws": bits}
    reports = [
        {"value": x, "word": w, "report": mechanism.randomize(x, [int(w)].__getitem__)[0]}
        for x, w in given
    ]
    return {"law": {"threshold": str(frequency.WORDS / mechanism.gain)}, "draws": reports}


def listed(mechanism: Spec, config: dict[str, Any], report: list[int]) -> Any:
    """A report as JSON: one number as such; answers to every question in rows of one length."""
    if config["mechanism"] != "EveryQuestion":
        return report if len(mechanism.counts) > 1 else report[0]
    oracles = [mechanism_of(oracle) for oracle in config["oracles"]]
    rows = [[*wire.pack(o, mechanism.read(report, i), True)] for i, o in enumerate(oracles)]
    return [row + [0] * (max(map(len, rows)) - len(row)) for row in rows]


def words_of(given: dict[str, Any], i: int, identity: Any) -> Callable[[int], int]:
    """The words of one person, by their positions."""
    if "words" in given:
        return lambda at: int(given["words"][i][str(at)])
    held = given["held"][i]
    if given["config"]["mechanism"] == "RecoverableResponse":
        held = 0  # its keys are drawn without looking at the value
    digest = bytes.fromhex(identity["mechanism"])
    secret = prf.secret(bytes.fromhex(given["key"]), b"words", identity, digest)
    tag = prf.tag(secret, given["people"][i], *(held if isinstance(held, list) else [held]))
    return cache(lambda at: prf.word(secret, tag, at))


def release_terms(config: dict[str, Any], mechanism: Spec, identity: Any) -> dict[str, Any]:
    """`release.json` of an identity that lacks its mechanism."""
    text = names.mechanism_text(config)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    identity = {**identity, "mechanism": digest}
    return {
        "terms_version": 2,
        "format_version": 2,
        "release_id": identity["release_id"],
        "identity": identity,
        "identity_digest": names.identity_digest(identity).hex(),
        "mechanism": text,
        "bits_per_report": wire.num_bits(mechanism),
        "simulated": False,
    }


def vector(given: dict[str, Any]) -> dict[str, Any]:
    """Everything about one release; people's words are given, or follow from a secret key."""
    config, mechanism = given["config"], mechanism_of(given["config"])
    key, envelope_id, identity = given.get("key"), bytes(range(1, 17)), given["identity"]
    if given.get("values"):
        identity = {**identity, "values": names.digest_of(*given["values"], "other")}
    if key:
        identity = {**identity, "key": names.key_commitment(bytes.fromhex(key))}
    terms = release_terms(config, mechanism, identity)
    identity = terms["identity"]
    found = {"terms": terms, "identity_text": names.identity_text(identity)}
    if "values" in given:
        found |= {"values": given["values"], "other": "other"}
    if "draws" in given:
        found |= draws(config, mechanism, given["draws"])
    reports = []
    for i, held in enumerate(given["held"]):
        word = words_of(given, i, identity)
        reports.append(mechanism.randomize(held, word))
    packed = [wire.pack(mechanism, report) for report in reports]
    one = wire.envelope(identity, packed[:1], bytes(16), False)
    found |= {
        "reports": [listed(mechanism, config, report) for report in reports],
        "envelope_id": envelope_id.hex(),
        "payload": b"".join(packed).hex(),
        "envelope": wire.envelope(identity, packed, envelope_id, False).hex(),
        "envelope_of_the_first_report_without_id": one.hex(),
        "refused": [],
    }
    cut = [one[:30]] if key else []  # within the header
    for data in broken(one, len(packed[0])) + cut:
        refusal = wire.refusal(mechanism, identity, False, data)
        if refusal:
            step, reason = refusal
            found["refused"].append({"step": step, "reason": reason, "envelope": data.hex()})
    return found


def memoized(given: dict[str, Any]) -> dict[str, Any]:
    """The same of people whose noise follows from a secret key, and what is read from them."""
    found, config = vector(given), given["config"]
    mechanism = mechanism_of(config)
    reports = [r if isinstance(r, list) else [r] for r in found["reports"]]
    key, identity = bytes.fromhex(given["key"]), found["terms"]["identity"]
    of = range(min(20, config.get("domain_size", config.get("dimension", 0))))
    return {
        **{name: given[name] for name in ("key", "people", "held")},
        "envelope_ids": [
            prf.of_person(key, b"envelope", identity, person).hex() for person in given["people"]
        ],
        **found,
        "estimate": [float(frequency.estimate(mechanism, reports, x)) for x in of],
    }


def identities(given: dict[str, Any]) -> list[Any]:
    """Releases, their canonical texts and digests; the commitment to a key."""
    listed = [
        {
            "identity": one,
            "text": names.identity_text(one),
            "digest": names.identity_digest(one).hex(),
        }
        for one in given["identities"]
    ]
    key = bytes.fromhex(given["key"])
    return [*listed, {"key": key.hex(), "commitment": names.key_commitment(key)}]


def everything() -> dict[str, str]:
    """The text of every file of vectors, by its path in the folder."""
    makers = {"": vector, "identities/": identities, "questions/": vector, "memoized/": memoized}
    texts, steps = {}, {}
    for folder, given in json.loads(INPUTS.read_text("utf-8")).items():
        indented = folder in ("", "identities/")
        for name, inputs in given.items():
            made = makers[folder](inputs)
            if makers[folder] is vector:  # published without the steps
                steps[f"{folder}{name}"] = [refused.pop("step") for refused in made["refused"]]
            text = json.dumps(made, indent=1 if indented else None, ensure_ascii=not indented)
            texts[f"{folder}{name}.json"] = text + "\n"
    return {**texts, "refused/steps.json": json.dumps(steps, indent=1) + "\n"}


def main() -> None:
    for name, text in everything().items():
        path = FOLDER / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
