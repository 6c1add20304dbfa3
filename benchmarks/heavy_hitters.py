"""Searches for words that nobody listed, beside PEM, at the same people and the same local epsilon.

    python -m benchmarks.heavy_hitters [--seeds 20] [--people 1e5 --people 1e6] [--no-peer]
        [--output FOLDER]

Three populations: English words at their real counts, addresses of web pages by Zipf's law, and a
million random names by Zipf's law. PEM (Wang, Li and Jha 2018) is run as published, on padded
characters and with optimized local hashing, and once more on our code of strings. It returns as
many words as it is asked for: as many as ours found for the same people. Its hash functions are
ideal here: each report supports each candidate independently, which is their law. The package
pure-ldp runs its own PEM on the least population, in an environment of its own.

What cannot run here is computed by the formula that plans all of ours (`frequency_found`), with
the levels, oracle and people of each published protocol. Writes heavy_hitters.json and
heavy_hitters.md. With the defaults about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_ldp.pipelines.demos.corpus import load_corpus
from beam_ldp.protocols.heavy_hitters import HeavyHitters, fano_threshold
from beam_ldp.protocols.heavy_hitters_plan import frequency_found, plan_heavy_hitters
from beam_ldp.protocols.string_code import StringCode
from benchmarks.measure import run_peers

EPSILONS = (4.0, 8.0)
FREQUENT = 1.5  # times f*: the words that have to be found
MISS, FALSE = 0.05, 10.0
MANY_SEEDS = 2  # of ten million people
PEM_STEP = 8  # bits of a level of PEM: a character
PEERS = ("pure-ldp==1.2.0", "xxhash==3.4.1", "scikit-learn", "statsmodels")
PEER_PEOPLE, PEER_LENGTH = 2000, 3  # the package: half a minute a thousand people


@dataclass(frozen=True)
class Population:
    """Words and how many of the people hold each."""

    name: str
    words: list[bytes]
    shares: np.ndarray
    code: StringCode

    def drawn(self, users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many of so many people hold each word."""
        return rng.multinomial(users, self.shares)


def zipf(count: int, power: float = 1.0) -> np.ndarray:
    """Shares of so many words by Zipf's law."""
    shares = 1 / np.arange(1, count + 1) ** power
    return np.asarray(shares / shares.sum())


def addresses() -> list[bytes]:
    """Pages that the installed packages name."""
    found = set()
    for package in metadata.distributions():
        for line in package.metadata.get_all("Project-URL") or []:
            found.add(line.rsplit(", ", 1)[-1].strip().encode())
    return sorted(url for url in found if url.startswith(b"http") and len(url) <= 64)


def populations() -> list[Population]:
    """English words, addresses and random names."""
    corpus = load_corpus()
    pages = addresses()
    digits = np.random.default_rng(0).permutation(1_000_000)
    names = [b"user%06d" % i for i in digits]
    return [
        Population(
            f"{len(corpus.words):,} English words",
            [word.encode() for word in corpus.words],
            corpus.shares,
            StringCode(64, 32),
        ),
        Population(f"{len(pages):,} addresses", pages, zipf(len(pages)), StringCode(256, 64)),
        Population("1,000,000 names", names, zipf(len(names)), StringCode(96, 32)),
    ]


# Ours, and PEM -----------------------------------------------------------------------------------


def found_by_us(
    plan: HeavyHitters, bits: NDArray[np.uint64], counts: NDArray[np.int64], rng: Any
) -> list[bytes]:
    """What one release finds; every report is made and counted."""
    held = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return list(plan.run(bits[held], rng=rng).texts)


def supports(
    held: NDArray[np.int64], answers: int, local_epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Supports of optimized local hashing with an ideal hash: its law, candidate by candidate."""
    cells = round(math.exp(local_epsilon)) + 1
    p = math.exp(local_epsilon) / (math.exp(local_epsilon) + cells - 1)
    found = rng.binomial(held, p) + rng.binomial(answers - held, 1 / cells)
    return np.asarray((found - answers / cells) / (p - 1 / cells))


def found_by_pem(
    strings: NDArray[np.bytes_],
    counts: NDArray[np.int64],
    wanted: int,
    local_epsilon: float,
    rng: np.random.Generator,
    step: int = PEM_STEP,
) -> list[int]:
    """Places of the words that PEM returns: the `wanted` most frequent at the last level.

    Args:
        strings: `(words, length)` bytes, padded; each level reads `step` bits more of them.
        counts: people with each word.
        wanted: how many prefixes survive each level.
        local_epsilon: of a report.
        rng: of groups and noise.
        step: bits of a level.
    """
    kept = np.flatnonzero(counts)  # the words that anybody holds; later, whose prefix survived
    levels = 8 * strings.shape[1] // step
    groups = rng.multinomial(counts[kept], np.full(levels, 1 / levels))
    node = np.zeros(len(kept), dtype=np.int64)  # place among the candidates
    answers, alive = groups.sum(axis=0), 1
    for level in range(levels):
        bits = np.unpackbits(strings[kept], axis=1)[:, level * step : (level + 1) * step]
        child = (node << step) + bits @ (1 << np.arange(step)[::-1])
        children = alive << step
        held = np.bincount(child, groups[:, level], children).astype(np.int64)
        seen = supports(held, int(answers[level]), local_epsilon, rng)
        best = np.argsort(-seen)[:wanted]
        place = np.full(children, -1)
        place[best] = np.arange(len(best))
        node, alive = place[child], len(best)
        kept, groups, node = kept[node >= 0], groups[node >= 0], node[node >= 0]
    return kept.tolist()


# What is compared --------------------------------------------------------------------------------


@dataclass
class Score:
    """What several releases found."""

    asked: int = 0
    right: int = 0
    found: int = 0
    false: int = 0
    rarest: float = math.inf
    seconds: float = 0.0

    def count(self, found: Sequence[bytes], truth: dict[bytes, float], least: float) -> None:
        """Adds one release."""
        asked = {word for word, share in truth.items() if share >= least}
        hits = [truth.get(word, 0.0) for word in found]
        self.asked += len(asked)
        self.right += len(asked & set(found))
        self.found += len(found)
        self.false += sum(share == 0 for share in hits)
        self.rarest = min([self.rarest, *(share for share in hits if share > 0)])

    def to_json(self, seeds: int) -> dict[str, Any]:
        """For the file: recall of the words asked for, precision, means of a release."""
        return {
            "words_asked": self.asked / seeds,
            "recall": self.right / self.asked if self.asked else None,
            "found": self.found / seeds,
            "false": float(self.false) / seeds,
            "rarest_found": None if math.isinf(self.rarest) else float(self.rarest),
            "seconds": self.seconds / seeds,
        }


def compare(population: Population, users: int, local_epsilon: float, seeds: int) -> dict[str, Any]:
    """One row: the plan, and what ours and both ways of PEM find over all seeds."""
    plan = plan_heavy_hitters(
        users, local_epsilon, code=population.code, beta=MISS, false_words=FALSE
    )
    least = FREQUENT * plan.threshold
    coded = population.code.encode(population.words).bits
    padded = _padded(population.words, population.code.max_bytes)
    in_code = coded.astype(">u8").view(np.uint8).reshape(len(coded), -1)
    scores = {name: Score() for name in ("ours", "PEM", "PEM on our code")}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        counts = population.drawn(users, rng)
        truth = {population.words[i]: counts[i] / users for i in np.flatnonzero(counts).tolist()}
        wanted = 1
        for name, score in scores.items():
            begin = time.perf_counter()
            if name == "ours":
                found = found_by_us(plan, coded, counts, rng)
                wanted = max(1, len(found))
            else:
                strings = padded if name == "PEM" else in_code
                places = found_by_pem(strings, counts, wanted, local_epsilon, rng)
                found = [population.words[i] for i in places]
            score.seconds += time.perf_counter() - begin
            score.count(found, truth, least)
            if name != "ours":  # prefixes of nobody's words survive, too
                score.found += max(0, wanted - len(found))
                score.false += max(0, wanted - len(found))
    return {
        "population": population.name,
        "people": users,
        "seeds": seeds,
        "local_epsilon": local_epsilon,
        "threshold": plan.threshold,
        "fano": plan.fano,
        "levels": len(plan.levels),
        "bits": plan.bits_per_report,
        "epsilon": float(plan.price(1e-8)),
        **{name: score.to_json(seeds) for name, score in scores.items()},
    }


def _padded(words: Sequence[bytes], length: int) -> NDArray[np.uint8]:
    return (
        np.array([word.ljust(length, b"\0") for word in words], f"S{length}")
        .view(np.uint8)
        .reshape(len(words), length)
    )


# What cannot run here ----------------------------------------------------------------------------


def on_paper(users: int, local_epsilon: float, candidates: int = 200) -> list[dict[str, Any]]:
    """f* of published protocols by the formula that plans ours; strings of 32 bytes."""
    e = math.exp(local_epsilon)
    best = 4 * e / (e - 1) ** 2  # optimized local hashing, and the like
    sign = ((e + 1) / (e - 1)) ** 2  # one bit: Hadamard rows, count sketches
    half = math.exp(local_epsilon / 2)
    split = 4 * half / (half - 1) ** 2
    of = {
        "PEM, 8 bits a level": (32, best, 8, 1.0, "6 bits, and a public hash function"),
        "TreeHist, 1 bit a level": (256, sign, 1, 0.5, "1 bit, and a public row"),
        "Bitstogram, each bit of the string": (256, sign, 1, 0.5, "1 bit, and a public row"),
        "Apple's SFP, 2 letters and a hash": (16, split, 16, 1.0, "two reports of half the budget"),
    }
    rows = []
    for name, (levels, variance, bits, share, sent) in of.items():
        children = [candidates * 2.0**bits] * levels
        found, _ = frequency_found(
            round(share * users), [variance] * levels, children, [FALSE] * levels, MISS
        )
        rows.append({"protocol": name, "levels": levels, "threshold": found, "sends": sent})
    ours = plan_heavy_hitters(users, local_epsilon, false_words=FALSE)
    rows.append(
        {"protocol": "ours, code of 64 bits", "levels": len(ours.levels),
         "threshold": ours.threshold, "sends": f"{ours.bits_per_report} bits"}
    )  # fmt: skip
    least = fano_threshold(users, local_epsilon, 256, MISS)
    rows.append({"protocol": "nothing below (Fano)", "levels": 0, "threshold": least, "sends": ""})
    return rows


# The package, and the page -----------------------------------------------------------------------


def package(population: Population, local_epsilon: float) -> dict[str, Any]:
    """PEM of pure-ldp and ours, for the same people."""
    rng = np.random.default_rng(1)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    fits = [len(w) <= PEER_LENGTH and not w.strip(letters) for w in population.words]
    kept = np.flatnonzero(fits)
    words = [population.words[i] for i in kept.tolist()]
    shares = population.shares[kept] / population.shares[kept].sum()
    counts = rng.multinomial(PEER_PEOPLE, shares)
    plan = plan_heavy_hitters(
        PEER_PEOPLE, local_epsilon, code=population.code, beta=MISS, false_words=FALSE
    )
    truth = {words[i]: counts[i] / PEER_PEOPLE for i in np.flatnonzero(counts).tolist()}
    least = FREQUENT * plan.threshold
    asked = {word for word, share in truth.items() if share >= least}
    begin = time.perf_counter()
    ours = found_by_us(plan, population.code.encode(words).bits, counts, rng)
    seconds = time.perf_counter() - begin
    people = rng.permutation(np.repeat(np.arange(len(words)), counts))
    given = {
        "people": [words[i].decode() for i in people.tolist()],
        "local_epsilon": local_epsilon,
        "wanted": len(asked),
        "length": PEER_LENGTH,
    }
    theirs = run_peers("heavy_hitters_peers.py", PEERS, given)
    found = {word.encode() for word in theirs["found"]}
    return {
        "people": PEER_PEOPLE,
        "local_epsilon": local_epsilon,
        "library": theirs["library"],
        "words_asked": len(asked),
        "their_hits": len(asked & found),
        "their_seconds": theirs["randomize_seconds"] + theirs["search_seconds"],
        "our_hits": len(asked & set(ours)),
        "our_seconds": seconds,
    }


def page(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    lines = [
        "# Words that nobody listed: what is found",
        "",
        f"`python -m benchmarks.heavy_hitters` writes this page ({result['machine']}).",
        "",
        "Words to find are those held by at least 1.5 f\\* of the people, f\\* being the plan's "
        f"promise (found with {1 - MISS:.0%}, at most {FALSE:g} false words on average). PEM "
        "keeps, at each level, as many as ours found. Bits are those of one person's report; "
        "seconds are one release, all parties in one process. The rarest found is that of all "
        "seeds.",
        "",
        "| population | people | seeds | eps0 | f\\* | Fano | bits | eps of readers | words "
        "| recall | found | false | rarest found | s "
        "| PEM: recall | false | rarest found | PEM on our code: recall | false | rarest found |",
        "|" + "---|" * 20,
    ]
    for row in result["rows"]:
        ours, pem, code = row["ours"], row["PEM"], row["PEM on our code"]
        lines.append(
            f"| {row['population']} | {row['people']:,} | {row['seeds']} "
            f"| {row['local_epsilon']:g} | {row['threshold']:.3%} | {row['fano']:.3%} "
            f"| {row['bits']} | {row['epsilon']:.2g} | {ours['words_asked']:.1f} "
            f"| {_percent(ours['recall'])} | {ours['found']:.1f} "
            f"| {ours['false']:.2f} | {_percent(ours['rarest_found'], 3)} | {ours['seconds']:.1f} "
            f"| {_percent(pem['recall'])} | {pem['false']:.1f} "
            f"| {_percent(pem['rarest_found'], 3)} "
            f"| {_percent(code['recall'])} | {code['false']:.1f} "
            f"| {_percent(code['rarest_found'], 3)} |"
        )
    if result["package"]:
        lines += ["", "The package, on the same people:", ""]
        lines += ["| people | eps0 | words | pure-ldp finds | s | ours finds | s |"]
        lines += ["|---|---|---|---|---|---|---|"]
    for row in result["package"]:
        lines.append(
            f"| {row['people']:,} | {row['local_epsilon']:g} | {row['words_asked']} "
            f"| {row['their_hits']} ({row['library']}) | {row['their_seconds']:.0f} "
            f"| {row['our_hits']} | {row['our_seconds']:.1f} |"
        )
    lines += [
        "",
        "On paper: f\\* of published protocols by the formula that plans ours, for strings of 32 "
        "bytes, 200 candidates kept, 1,000,000 people at a local epsilon of 4:",
        "",
        "| protocol | levels | f\\* | a person sends |",
        "|---|---|---|---|",
    ]
    for row in result["paper"]:
        levels = row["levels"] or ""
        lines.append(f"| {row['protocol']} | {levels} | {row['threshold']:.2%} | {row['sends']} |")
    lines += [
        "",
        "TrieHH has no local randomizer: people vote for the next letter in the clear, and only "
        "the sample and a threshold hide them from a reader, so whoever collects has to be "
        "trusted. Poplar1 keeps values from each of two servers that do not collude, sends 16.7 kB "
        "for a string of 256 bits, and adds no noise of its own.",
    ]
    return "\n".join(lines) + "\n"


def _percent(share: float | None, digits: int = 1) -> str:
    return "-" if share is None else f"{share:.{digits}%}"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, write both files, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--people", type=float, action="append")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    rows, everybody = [], populations()
    cases = [(p, n, options.seeds) for n in options.people or (1e5, 1e6) for p in everybody]
    if not options.people:
        cases.append((everybody[0], 1e7, MANY_SEEDS))
    for population, users, seeds in cases:
        for local_epsilon in EPSILONS:
            rows.append(compare(population, int(users), local_epsilon, seeds))
            print(json.dumps(rows[-1]), flush=True)
    result = {
        "schema_version": 1,
        "machine": f"{os.cpu_count()} processors, {platform.machine()}",
        "rows": rows,
        "package": [] if options.no_peer else [package(everybody[0], EPSILONS[-1])],
        "paper": on_paper(10**6, 4.0),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "heavy_hitters.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "heavy_hitters.md").write_text(page(result))
    print(page(result))
    return result


if __name__ == "__main__":
    main()
