"""What a job costs a cluster: core seconds, bytes between workers, memory of a worker.

A linear model. Every step of a mechanism takes nanoseconds per report that are a non-negative
combination of seven sizes of the mechanism (`sizes`); the coefficients were fitted to measurements
by `python -m benchmarks.costs fit`, on the machine that `costs.json` names, and are data. A
mechanism that was not fitted, such as one from elsewhere, is timed here and now. What the model
does not know: other processors, slow disks and networks, stragglers, and a cluster's start.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal

import numpy as np

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import LocalRandomizer

Output = Literal["statistic", "batch", "global"]

SIZES = ("one", "numbers", "bytes", "domain", "set", "listed", "loose")
STEPS = ("randomize", "accumulate", "permute", "pack", "unpack")
BUNDLES_PER_WORKER = 8  # assumed; each sends one partial sum, or its leftovers
BATCH_REPORTS = 1 << 20  # as transforms.batches and transforms.exchange have them
LEFTOVER_REPORTS = 1 << 18
SHARD_BYTES = 1 << 26
BLOCK_BYTES = 1 << 23
_LEAST_TIMED, _MOST_TIMED, _TIMED_NANOSECONDS = 64, 1 << 14, 2e7  # reports, and one run of them
COPIES = 3  # of what a step holds, at worst: its input, its output, and one on the wire


@dataclass(frozen=True)
class JobCost:
    """What a job takes.

    Attributes:
        seconds: from the first worker's start to the estimate.
        core_seconds: of all workers together.
        exchanged_bytes: between workers, in all.
        worker_bytes: memory of a worker, one step at a time.
    """

    seconds: float
    core_seconds: float
    exchanged_bytes: float
    worker_bytes: float

    @property
    def core_hours(self) -> float:
        """Core seconds, in the unit of bills."""
        return self.core_seconds / 3600


def sizes(randomizer: LocalRandomizer) -> np.ndarray:
    """The sizes that costs are linear in, in the order of `SIZES`.

    `one` report; `numbers` of a value; `bytes` of a report in memory; `domain`: values of the list,
    or entries of the sum; `set`: domain / (e^eps0 + 1), the values that a report supports, and
    `listed`: the same where a report lists them, 0 where it is a row of bits; `loose`: bits on the
    wire where they are no whole bytes, which takes longer, else 0.
    """
    domain = float(getattr(randomizer, "domain_size", 0) or np.prod(randomizer.statistic_shape))
    numbers = float(getattr(randomizer, "dimension", 1))
    share = 1 / (math.exp(min(randomizer.local_epsilon, 700.0)) + 1)
    entries = math.prod(randomizer.report_shape)
    listed = domain * share if 1 < entries < domain / 8 else 0.0
    bits = randomizer.bits_per_report
    loose = float(bits) if bits % 8 else 0.0
    return np.array([1.0, numbers, report_bytes(randomizer), domain, domain * share, listed, loose])


def report_bytes(randomizer: LocalRandomizer) -> int:
    """Of one user's report, in memory."""
    return max(1, randomizer.report_dtype.itemsize * math.prod(randomizer.report_shape))


@cache
def coefficients() -> dict[str, Any]:
    """What was fitted: `steps` by mechanism, in nanoseconds; `job`, of the pipeline around them."""
    text = resources.files("beam_ldp.planning").joinpath("costs.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def step_nanoseconds(
    randomizer: LocalRandomizer, step: str, fitted: dict[str, Any] | None = None
) -> float:
    """Of one report in one step, as fitted; of a mechanism that was not, as timed here."""
    steps = (fitted or coefficients())["steps"].get(registry.name_of(type(randomizer)))
    if steps is None:
        return timed(randomizer)[step]
    return float(np.dot(steps[step], sizes(randomizer)))


def is_fitted(randomizer: LocalRandomizer) -> bool:
    """Whether there are coefficients of this mechanism."""
    return registry.name_of(type(randomizer)) in coefficients()["steps"]


@lru_cache(maxsize=64)
def timed(randomizer: LocalRandomizer) -> dict[str, float]:
    """Nanoseconds per report of every step on this machine, from a few thousand reports at most."""
    _timed(randomizer, _LEAST_TIMED)  # compiles
    rough = sum(_timed(randomizer, _LEAST_TIMED).values())
    count = int(min(_MOST_TIMED, max(_LEAST_TIMED, _TIMED_NANOSECONDS / rough)))
    runs = [_timed(randomizer, count) for _ in range(3)]
    return {step: min(run[step] for run in runs) for step in STEPS}


def _timed(randomizer: LocalRandomizer, count: int) -> dict[str, float]:
    found: dict[str, float] = {}

    def clock(step: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = work()
        found[step] = (time.perf_counter() - begin) * 1e9 / count
        return result

    values = randomizer.example_values(count)
    reports = clock("randomize", lambda: randomizer.randomize(values))
    clock("accumulate", lambda: randomizer.accumulate(reports))
    clock("permute", lambda: reports[np.random.default_rng(0).permutation(count)])
    data = clock("pack", lambda: randomizer.pack(reports))
    clock("unpack", lambda: randomizer.unpack(data, count))
    return found


def job_cost(
    randomizer: LocalRandomizer,
    num_reports: int,
    workers: int,
    output: Output = "statistic",
    fitted: dict[str, Any] | None = None,
) -> JobCost:
    """The cost of one release on so many workers of one core each.

    Args:
        randomizer: the mechanism.
        num_reports: users.
        workers: cores.
        output: what leaves the shuffler: its "statistic", or reports, permuted in a "batch" at a
            time or all together, "global".
        fitted: coefficients; default: the ones that come with the package.

    Raises:
        ValueError: for numbers below one.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(266, 4.0)
    >>> ten, hundred = (job_cost(oracle, 10**12, workers) for workers in (10, 100))
    >>> 5 < ten.seconds / hundred.seconds <= 10, hundred.exchanged_bytes < 10**8
    (True, True)
    """
    for name, number in (("num_reports", num_reports), ("workers", workers)):
        if number < 1:
            raise ValueError(f"{name} must be >= 1, got {number}")
    fitted = fitted or coefficients()
    job = fitted["job"]
    size = report_bytes(randomizer)
    statistic = 8.0 * math.prod(randomizer.statistic_shape)
    wire = min(randomizer.bits_per_report / 8, size)
    bundles = BUNDLES_PER_WORKER * workers

    def step(name: str) -> float:
        return step_nanoseconds(randomizer, name, fitted)

    per_report = step("randomize") + step("accumulate")
    per_report += job["read_ns_per_number"] * float(getattr(randomizer, "dimension", 1))
    exchanged = min(bundles, num_reports) * statistic
    held = BLOCK_BYTES * COPIES + COPIES * statistic
    if output != "statistic":
        per_report += step("permute")
    if output == "batch":
        leftovers = min(num_reports, bundles * min(LEFTOVER_REPORTS, BLOCK_BYTES // size))
        exchanged += leftovers * wire
        held += COPIES * min(2 * BATCH_REPORTS * size, 2 * BLOCK_BYTES)
    elif output == "global":
        per_report += step("pack") + step("unpack") + job["route_ns"]
        per_report += job["exchange_ns_per_byte"] * wire
        exchanged += num_reports * wire
        held += COPIES * SHARD_BYTES + SHARD_BYTES
    core_seconds = num_reports * per_report * job["overhead"] / 1e9
    tail = bundles * statistic * job["exchange_ns_per_byte"] / 1e9  # sums of sums, at the end
    seconds = job["start_seconds"] + core_seconds / workers + tail / min(8, workers)
    total = core_seconds + tail + workers * job["start_cpu_seconds"]
    return JobCost(seconds, total, exchanged, job["base_bytes"] + held)
