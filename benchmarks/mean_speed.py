"""Cost of every mean mechanism on one core: per vector, per message, per report, per decode.

    python -m benchmarks.mean_speed [--repeat 9] [--output benchmarks/results]

Each figure is the least processor time of several runs, secure words included. Targets are our
own. The library
that mechanisms like PrivUnit can be compared with, ml-projunit, is not in a package registry: its
figures are quoted (measured on another machine of this kind). Writes mean_speed.json and
mean_speed.md; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    MeanRandomizer,
    MinimalRandomCoding,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ProjectedPrivUnit,
    RandomCodebookMean,
    ScalarMean,
    SeedCompressedMean,
    SeparatedMean,
)
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.two_response import respond
from beam_ldp.randomizers.normals import spare_words, standard_normals
from beam_ldp.randomizers.randomness import FreshWords

EPSILON = 8.0


class Case(NamedTuple):
    """A mechanism, which takes its time to make, how many vectors at a time, the most microseconds
    per vector, and a peer's."""

    name: str
    make: Callable[[], MeanRandomizer]
    users: int
    target_us: float | None = None
    peer_us: float | None = None


CASES = (
    Case("PrivUnit", lambda: PrivUnit(1000, EPSILON), 640, 12, 59),
    Case("PrivUnit", lambda: PrivUnit(16_384, EPSILON), 64, 200, 8200),
    Case("PrivUnit", lambda: PrivUnit(10**6, EPSILON), 2, 25_000),
    Case("PrivUnitGaussian", lambda: PrivUnitGaussian(1000, EPSILON), 640, None, 59),
    Case("PrivUnitInf", lambda: PrivUnitInf(1000, EPSILON), 640),
    Case("SeparatedMean", lambda: SeparatedMean(1000, EPSILON), 640),
    Case(
        "ProjectedPrivUnit, shared",
        lambda: ProjectedPrivUnit(16_384, EPSILON, projected=1024),
        64,
        120,
    ),
    Case(
        "ProjectedPrivUnit, own",
        lambda: ProjectedPrivUnit(16_384, EPSILON, projected=1024, projection="own"),
        64,
    ),
    Case(
        "ProjectedPrivUnit, haar",
        lambda: ProjectedPrivUnit(1024, EPSILON, projected=64, projection="haar"),
        4,
    ),
    Case("RandomCodebookMean, 8 bits", lambda: RandomCodebookMean(1000, EPSILON, index_bits=8), 64),
    Case(
        "MinimalRandomCoding, 8 bits", lambda: MinimalRandomCoding(1000, EPSILON, index_bits=8), 64
    ),
    Case("SeedCompressedMean, eps 4", lambda: SeedCompressedMean(1000, 4.0), 256),
    Case("KashinMean", lambda: KashinMean(1000, EPSILON), 64),
    Case("ScalarMean", lambda: ScalarMean(1, EPSILON), 100_000),
)
MESSAGE_TARGET_NS = 30.0
CACHED_COORDINATES = 1 << 15  # the mechanism encodes so many at a time
MESSAGE_CASES: tuple[tuple[str, Callable[[], BlockMean], int], ...] = (
    ("BinaryVectorMean, local", lambda: BinaryVectorMean(1000, 50.0), 4000),
    ("LInfMean, local", lambda: LInfMean(1000, 50.0), 4000),
    ("L1Mean, local", lambda: L1Mean(1000, 50.0), 2000),
    ("L2Mean, local", lambda: L2Mean(784, 50.0), 2000),
    ("LInfMean, shuffled", lambda: LInfMean.for_shuffle(1000, 1.0, 1e-8, 100_000), 1000),
    ("L2Mean, shuffled", lambda: L2Mean.for_shuffle(784, 1.0, 1e-8, 100_000), 500),
)


def least_seconds(action: Callable[[], object], repeat: int) -> float:
    """The least processor time of several runs; one run before compiles and warms up."""
    action()
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


def vectors_for(mechanism: MeanRandomizer, users: int) -> np.ndarray:
    """Inputs on the ball of the mechanism."""
    rng = np.random.default_rng(1)
    if mechanism.norm == "binary":
        return rng.integers(0, 2, (users, mechanism.dimension)).astype(float)
    vectors = rng.standard_normal((users, mechanism.dimension))
    order = {"l1": 1, "l2": 2, "linf": np.inf}[mechanism.norm]
    return np.asarray(vectors / np.linalg.norm(vectors, ord=order, axis=1, keepdims=True))


def measure(case: Case, repeat: int) -> dict[str, Any]:
    """Microseconds per vector to randomize and to accumulate; milliseconds to decode."""
    mechanism = case.make()
    vectors = vectors_for(mechanism, case.users)
    reports = mechanism.randomize(vectors)
    statistic = mechanism.accumulate(reports)
    send = least_seconds(lambda: mechanism.randomize(vectors), repeat)
    read = least_seconds(lambda: mechanism.accumulate(reports), repeat)
    decode = least_seconds(lambda: mechanism.estimate(statistic, case.users), repeat)
    return {
        "name": case.name, "dimension": mechanism.dimension, "epsilon": mechanism.local_epsilon,
        "bits": mechanism.bits_per_report, "randomize_us": send / case.users * 1e6,
        "target_us": case.target_us, "peer_us": case.peer_us,
        "accumulate_us": read / case.users * 1e6, "decode_ms": decode * 1e3,
    }  # fmt: skip


def measure_messages(
    name: str, make: Callable[[], BlockMean], users: int, repeat: int
) -> dict[str, Any]:
    """Nanoseconds per message: the bits with their words, all of randomize, accumulate."""
    mechanism = make()
    vectors, columns = vectors_for(mechanism, users), mechanism.layout.columns
    chunk = max(1, CACHED_COORDINATES // mechanism.num_coordinates)
    rotated = np.ascontiguousarray(mechanism._rotate(vectors[:chunk]))  # as if just encoded
    reports = mechanism.randomize(vectors)
    messages = users * mechanism.messages_per_user

    def bits() -> None:
        words = FreshWords().words(0, users, mechanism.words_per_user)
        for start in range(0, users, chunk):
            part = slice(start, min(start + chunk, users))
            respond(
                rotated[: part.stop - start], *mechanism._affine, words[part], columns.level,
                columns.start, columns.size, columns.low, columns.span, columns.scale,
                mechanism.layout.num_levels, reports[part],
            )  # fmt: skip

    statistic = mechanism.accumulate(reports)
    return {
        "name": name, "dimension": mechanism.dimension, "messages": mechanism.messages_per_user,
        "bits_ns": least_seconds(bits, repeat) / messages * 1e9, "target_ns": MESSAGE_TARGET_NS,
        "randomize_ns": least_seconds(lambda: mechanism.randomize(vectors), repeat)
        / messages * 1e9,
        "accumulate_ns": least_seconds(lambda: mechanism.accumulate(reports), repeat)
        / messages * 1e9,
        "decode_ms": least_seconds(lambda: mechanism.estimate(statistic, users), repeat) * 1e3,
    }  # fmt: skip


def measure_normals(repeat: int, count: int = 60, length: int = 1000) -> dict[str, float]:
    """Nanoseconds per normal in several ways, words included except for NumPy's generator."""
    source = FreshWords()

    def uniforms() -> np.ndarray:
        return np.asarray((source.words(0, count, length) >> np.uint64(11)) * 2.0**-53 + 2.0**-54)

    def box_muller() -> np.ndarray:
        first, second = np.split(uniforms(), 2, axis=1)
        radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    ways: dict[str, Callable[[], object]] = {
        "AES-CTR words alone": lambda: source.words(0, count, length),
        "ziggurat on words (ours)": lambda: standard_normals(
            source.words(0, count, spare_words(length)), length, source.extra
        ),
        "Box-Muller on words": box_muller,
        "inverse normal law on words": lambda: special.ndtri(uniforms()),
        "NumPy's generator (not secure)": lambda: np.random.default_rng(0).standard_normal(
            (count, length)
        ),
    }
    return {k: least_seconds(way, repeat) / (count * length) * 1e9 for k, way in ways.items()}


def page(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    lines = [
        "# Cost of the mean mechanisms",
        "",
        f"{result['machine']}; processor time on one core, secure words included. "
        "`python -m benchmarks.mean_speed` writes this page. Figures of ml-projunit (PrivUnitG, "
        "NumPy) are quoted, not measured here.",
        "",
        "| mechanism | d | eps | bits | randomize us (target) | ml-projunit us | accumulate us "
        "| decode ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in result["mechanisms"]:
        target = f" ({r['target_us']:,g})" if r["target_us"] else ""
        peer = f"{r['peer_us']:,g}" if r["peer_us"] else "-"
        lines.append(
            f"| {r['name']} | {r['dimension']:,} | {r['epsilon']:g} | {r['bits']:,} "
            f"| {r['randomize_us']:,.2f}{target} | {peer} | {r['accumulate_us']:,.2f} "
            f"| {r['decode_ms']:.3f} |"
        )
    lines += [
        "",
        f"Two-response messages (target: {MESSAGE_TARGET_NS:g} ns each for the bits; all of "
        "`randomize` also checks and rotates whole vectors, however few messages they send):",
        "",
        "| mechanism | d | messages | bits ns | all of randomize ns | accumulate ns | decode ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in result["messages"]:
        lines.append(
            f"| {r['name']} | {r['dimension']} | {r['messages']:,} | {r['bits_ns']:.1f} "
            f"| {r['randomize_ns']:.1f} | {r['accumulate_ns']:.1f} | {r['decode_ms']:.3f} |"
        )
    lines += ["", "Normals:", "", "| way | ns each |", "|---|---|"]
    lines += [f"| {name} | {ns:.2f} |" for name, ns in result["normals"].items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, write both files, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "schema_version": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}",
        "normals": measure_normals(options.repeat),
        "mechanisms": [],
        "messages": [],
    }
    for case in CASES:
        print(f"{case.name} ...", flush=True)
        result["mechanisms"].append(measure(case, options.repeat))
    for name, make, users in MESSAGE_CASES:
        print(f"{name} ...", flush=True)
        result["messages"].append(measure_messages(name, make, users, options.repeat))
    (options.output / "mean_speed.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.output / "mean_speed.md").write_text(page(result))
    print(page(result))
    return result


if __name__ == "__main__":
    main()
