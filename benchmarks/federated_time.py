"""What local privacy costs in time: a round with it over a round without, side by side.

    .venv-tff/bin/python -m benchmarks.federated_time [--rounds 9] [--output benchmarks/results]

Rounds of `tff.learning.algorithms.build_unweighted_fed_avg` in TensorFlow Federated's C++ runtime,
with its own unweighted mean and with ours, in turns in one process, so that load falls on all
alike; the time that processors spent is beside it, because it depends less on load. Three sizes:
the 13,706 parameters of the papers' network with 200 clients of 25 images (MNIST's shape), and a
million parameters with 20 clients of 250, once as the papers' network made wider, once as a dense
network. A dense layer uses a parameter once per image, a convolution many times: noise costs the
same for both, and training does not, so the dense one is the worst case. Figures are medians; the
ratio of each turn gives the spread (quartiles). The first round of each, which traces and loads
graphs, is left out.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 25
# Filters of a convolution (0: dense), clients, images of each.
SIZES = {
    "13,706 parameters x 200 clients": (16, 200, 25),
    "1e6, wider, x 20": (143, 20, 250),
    "1e6, dense, x 20": (0, 20, 250),
}


def kinds() -> dict[str, Callable[[], Any]]:
    """Aggregators by name."""
    import tensorflow_federated as tff

    from tff_adapters import LocallyPrivateMeanFactory, shuffled_ldp_aggregator

    def ours(**options: Any) -> Callable[[], LocallyPrivateMeanFactory]:
        settings = {"clip": 0.1, "local_epsilon": 2.0, **options}
        return lambda: shuffled_ldp_aggregator(**settings)

    plain = tff.aggregators.SumFactory()
    return {
        "none": lambda: tff.aggregators.UnweightedMeanFactory(),
        "PrivUnit, messages": ours(norm="l2"),
        "PrivUnit, messages of 16 bits": ours(norm="l2", coordinate_bits=16),
        "PrivUnit, sums": ours(norm="l2", sum_factory=plain),
        "PrivUnitGaussian, messages": ours(norm="l2", mechanism="PrivUnitGaussian"),
        "L2Mean, messages": ours(norm="l2", mechanism="L2Mean"),
        "L2Mean, sums": ours(norm="l2", mechanism="L2Mean", sum_factory=plain),
        "LInfMean, messages": ours(norm="linf"),
    }


def model_fn_for(filters: int) -> Callable[[], Any]:
    """The papers' network with so many filters (16 in the papers), or a dense one of 1e6."""
    import tensorflow as tf
    import tensorflow_federated as tff

    layers = tf.keras.layers

    def network() -> Any:
        if filters:
            return [
                layers.Conv2D(filters, 8, 2, "same", activation="relu", input_shape=(28, 28, 1)),
                layers.MaxPool2D(2, 1),
                layers.Conv2D(filters, 4, 2, "valid", activation="relu"),
                layers.MaxPool2D(2, 1),
                layers.Flatten(),
                layers.Dense(2 * filters, activation="relu"),
                layers.Dense(10),
            ]
        return [
            layers.Flatten(input_shape=(28, 28, 1)),
            layers.Dense(1258, activation="relu"),
            layers.Dense(10),
        ]

    def model_fn() -> Any:
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(network()),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=(
                tf.TensorSpec([None, 28, 28, 1], tf.float32),
                tf.TensorSpec([None], tf.int32),
            ),
        )

    return model_fn


def processes_for(filters: int, names: Sequence[str]) -> dict[str, Any]:
    """A learning process per aggregator."""
    import tensorflow_federated as tff

    from tff_adapters import no_client_metrics

    return {
        name: tff.learning.algorithms.build_unweighted_fed_avg(
            model_fn_for(filters),
            client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.01),
            server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
            model_aggregator=make(),
            metrics_aggregator=no_client_metrics,
        )
        for name, make in kinds().items()
        if name in names
    }


def clients_with(count: int, examples: int) -> list[Any]:
    """Random images; what is in them takes no time."""
    import tensorflow as tf

    generator = np.random.default_rng(1)
    images = generator.random((examples, 28, 28, 1), dtype=np.float32)
    labels = generator.integers(0, 10, examples, dtype=np.int32)
    return [tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)] * count


def processor_seconds() -> float:
    """What this process and its children (TFF's worker) have computed so far, on all cores."""
    import psutil

    own = psutil.Process()
    everyone = [own, *own.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in everyone)


def measure(filters: int, clients: int, examples: int, rounds: int, names: Sequence[str]) -> Any:
    """Seconds of each round and of processors in it, by aggregator: `{name: (rounds, 2)}`."""
    processes = processes_for(filters, names)
    states = {name: process.initialize() for name, process in processes.items()}
    data = clients_with(clients, examples)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in processes}
    for turn in range(rounds + 1):
        for name, process in processes.items():
            start, computed = time.perf_counter(), processor_seconds()
            states[name] = process.next(states[name], data).state
            if turn:
                both = time.perf_counter() - start, processor_seconds() - computed
                taken[name].append(both)
                print(f"{name}: {both[0]:.2f} s, {both[1]:.2f} s of processors", flush=True)
    return {name: np.array(seconds) for name, seconds in taken.items()}


def table(results: dict[str, dict[str, np.ndarray]], load: float) -> str:
    """The page that the benchmark writes."""
    lines = [
        "# Time of a federated round with local privacy over one without",
        "",
        f"`python -m benchmarks.federated_time`; {os.cpu_count()} cores, load average at the "
        f"start {load:.1f}" + (": **under load**" if load > 0.5 else ""),
        "",
        "| round | aggregator | seconds (median) | ratio | quartiles | ratio of processor time |",
        "|---|---|---|---|---|---|",
    ]
    for size, taken in results.items():
        for name, seconds in taken.items():
            ratios = seconds / taken["none"]
            low, high = np.quantile(ratios[:, 0], [0.25, 0.75])
            middle, computed = np.median(ratios, axis=0)
            lines.append(
                f"| {size} | {name} | {np.median(seconds[:, 0]):.2f} | {middle:.2f} "
                f"| {low:.2f} - {high:.2f} | {computed:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", help="names of aggregators, besides none")
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--output", type=Path, help="folder for federated_time.md")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    names = list(kinds()) if options.only is None else ["none", *options.only]
    page = table(
        {size: measure(*SIZES[size], options.rounds, names) for size in options.sizes}, load
    )
    print(page)
    if options.output:
        (options.output / "federated_time.md").write_text(page)


if __name__ == "__main__":
    main()
