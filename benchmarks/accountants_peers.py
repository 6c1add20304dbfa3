"""What public calculators say of the same releases: run by `accountants.py` in an environment of
their own.

    python accountants_peers.py '{"task": ...}' [CHECKOUTS]

Needs dp-accounting, prv-accountant, autodp; nothing of this repository. None of them amplifies by
shuffling, so each composes what it can: the guarantee of one round that it is given, or the sampled
local epsilon alone. CHECKOUTS may hold a clone of github.com/apple/ml-shuffling-amplification,
which prices one shuffle. Prints one JSON list.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

Price = Callable[[], float]


def one_shuffle(task: dict[str, Any], checkouts: Path | None) -> Iterator[tuple[str, str, Price]]:
    """Calculators of a single shuffle."""
    folder = checkouts / "ml-shuffling-amplification" if checkouts else None
    if folder is None or not folder.exists():
        return
    sys.path.insert(0, str(folder))
    from computeamplification import closedformanalysis, numericalanalysis

    n, eps0, delta = int(task["num_reports"]), task["local_epsilon"], task["delta"]
    name = "apple/ml-shuffling-amplification"
    yield (
        name,
        "clones, numerically",
        lambda: numericalanalysis(n, eps0, delta, 16, n // 1000, True),
    )
    yield name, "clones, closed form", lambda: closedformanalysis(n, eps0, delta)


def many_rounds(task: dict[str, Any]) -> Iterator[tuple[str, str, Price]]:
    """Composers of many rounds."""
    rounds, delta, rate = int(task["rounds"]), task["delta"], task["rate"]
    epsilon, each = task["round_epsilon"], task["round_delta"]
    pure = math.log1p(rate * math.expm1(task["local_epsilon"]))
    given, alone = "the clones' guarantee of a round, composed", "the local epsilon, sampled"

    def dp_accounting_given() -> float:
        from dp_accounting.pld import common, privacy_loss_distribution

        parameters = common.DifferentialPrivacyParameters(epsilon, each)
        one = privacy_loss_distribution.from_privacy_parameters(parameters, epsilon)
        return float(one.self_compose(rounds).get_epsilon_for_delta(delta))

    def dp_accounting_alone() -> float:
        from dp_accounting.pld import common, privacy_loss_distribution

        parameters = common.DifferentialPrivacyParameters(pure, 0.0)
        one = privacy_loss_distribution.from_privacy_parameters(parameters, pure)
        return float(one.self_compose(rounds).get_epsilon_for_delta(delta))

    def prv() -> float:
        from prv_accountant import ApproximateDPMechanism, PRVAccountant

        accountant = PRVAccountant(
            prvs=ApproximateDPMechanism(epsilon, each),
            max_self_compositions=rounds,
            eps_error=0.01,
            delta_error=delta / 10,
        )
        return float(accountant.compute_epsilon(delta, rounds)[2])

    def autodp() -> float:
        from autodp.mechanism_zoo import PureDP_Mechanism
        from autodp.transformer_zoo import AmplificationBySampling, Composition

        local = PureDP_Mechanism(eps=task["local_epsilon"])
        local.neighboring = "replace_one"
        sampled = AmplificationBySampling(PoissonSampling=False)(local, rate)
        return float(Composition()([sampled], [rounds]).get_approxDP(delta))

    yield f"dp-accounting {version('dp-accounting')}", given, dp_accounting_given
    yield f"prv-accountant {version('prv-accountant')}", given, prv
    yield f"dp-accounting {version('dp-accounting')}", alone, dp_accounting_alone
    yield f"autodp {version('autodp')}", alone, autodp


def main() -> None:
    """Time each on the task."""
    task = json.loads(sys.argv[1])
    checkouts = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    calculators = many_rounds(task) if "rounds" in task else one_shuffle(task, checkouts)
    rows = []
    for library, computes, price in calculators:
        row: dict[str, Any] = {"library": library, "computes": computes}
        begin = time.perf_counter()
        try:
            row["epsilon"] = price()
            row["seconds"] = time.perf_counter() - begin
        except Exception as error:  # noqa: BLE001 - a peer that does not run is a finding
            row["error"] = f"{type(error).__name__}: {error}"[:160]
        rows.append(row)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
