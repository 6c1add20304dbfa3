"""The flags of `beam-ldp train`, and the rules that hold between them."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from dataclasses import dataclass

from beam_ldp.pipelines.flags import (
    BUDGET,
    COMMON,
    OUTPUT,
    Flags,
    Groups,
    positive_number,
    whole_number,
)
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.settings import LEDGER_VARIABLE, need

DATA, TRAINING, PRICE, COMPARISON = (
    "the data", "the training", "the price", "what it is compared with",
)  # fmt: skip
CLDP_SGD, FEDAVG = "cldp-sgd", "fedavg"
BASELINES = ("non-private", "central-dp", "local-only")
BUNDLED = ("digits", "mnist5k", "mnist", "emnist-synthetic")
MODELS = ("logistic", "mlp", "cnn-16", "cnn-32", "cnn-papernot")
SAMPLINGS = ("fixed", "full", "self")
POINT = "example"  # the privacy unit where a client has several and one is protected

_DATA: Flags = {
    "--data": {
        "metavar": "NAME|PATH",
        "help": f"{', '.join(BUNDLED)}; or a folder of one Parquet or TFRecord file per client; or "
        "one Parquet or CSV file with --client-id",
    },
    "--points-per-client": {
        "type": whole_number, "default": 1, "metavar": "M",
        "help": "examples of a client; named data is dealt out so, clients in files need as many "
        "(default 1)",
    },
    "--features": {
        "action": "append", "metavar": "NAMES",
        "help": "files: columns, or globs, separated by commas; or one column of lists",
    },
    "--label": {"metavar": "NAME", "help": "files: column of the label, 0 to --classes - 1"},
    "--client-id": {"metavar": "NAME", "help": "one file: column that says whose a row is"},
    "--classes": {"type": whole_number, "metavar": "K", "help": "files: how many labels there are"},
    "--shape": {"metavar": "HxWxC", "help": "files: shape of an example (default: flat)"},
    "--scale": {
        "type": positive_number, "default": 1.0, "metavar": "S",
        "help": "files: features are divided by it; public (default 1)",
    },
    "--test-data": {
        "metavar": "PATH",
        "help": "files: public examples with the same columns, which accuracy is measured on",
    },
    "--bad-rows": {
        "choices": ["raise", "drop"], "default": "raise",
        "help": "files: stop at rows that cannot be used, or leave them out and count them",
    },
}  # fmt: skip

_TRAINING: Flags = {
    "--algorithm": {
        "choices": [CLDP_SGD, FEDAVG], "default": CLDP_SGD,
        "help": "cldp-sgd: each round, sampled clients report the gradient of a data point; "
        "fedavg: they train on all their data and report the update (default cldp-sgd)",
    },
    "--model": {
        "choices": ["auto", *MODELS], "default": "auto",
        "help": "auto: cnn-16 for images of 16 x 16 and more, else logistic",
    },
    "--clients-per-round": {
        "type": whole_number, "metavar": "K", "help": "drawn anew in each round; with --sampling "
        "self, on average",
    },
    "--sampling": {
        "choices": list(SAMPLINGS), "default": "fixed",
        "help": "fixed: a random set of that size; full: everybody; self: each client by a coin "
        "of its own (default fixed)",
    },
    "--points-sampled": {
        "type": whole_number, "default": 1, "metavar": "S",
        "help": "cldp-sgd: data points that a client in a round draws, each reported on its own "
        "(default 1)",
    },
    "--epochs": {
        "type": whole_number, "metavar": "E",
        "help": "an epoch is clients / clients per round rounds: accuracy is measured after each",
    },
    "--learning-rate": {
        "metavar": "RATES",
        "help": "of the server: a number, or pieces like 12:30,4:60,3.5 (12 up to epoch 30, 4 up "
        "to epoch 60, then 3.5); the default depends on the clipping",
    },
    "--client-learning-rate": {
        "type": positive_number, "default": 0.1, "metavar": "RATE",
        "help": "fedavg: of the clients' own steps (default 0.1)",
    },
    "--local-epochs": {
        "type": whole_number, "default": 1, "metavar": "N",
        "help": "fedavg: passes over a client's data (default 1)",
    },
    "--batch-size": {
        "type": whole_number, "default": 20, "metavar": "B",
        "help": "fedavg: of a client's steps (default 20)",
    },
}  # fmt: skip

_PRICE: Flags = {
    "--norm": {
        "choices": ["l2", "linf", "l1"], "default": "l2",
        "help": "in which gradients are clipped, and the mechanism's (default l2)",
    },
    "--clip": {
        "type": positive_number, "metavar": "C",
        "help": "radius that they are scaled onto; public (default: 0.005, linf 0.01, l1 0.1; "
        "fedavg ten times that)",
    },
    "--local-epsilon": {
        "type": positive_number, "metavar": "EPS0",
        "help": "what one report promises against everybody",
    },
    "--mechanism": {
        "default": "auto", "metavar": "NAME",
        "help": "auto: PrivUnit (l2), LInfMean (linf), L1Mean (l1); for l2 also PrivUnitGaussian, "
        "SeparatedMean, L2Mean (the fewest bits)",
    },
    "--delta": {"type": float, "metavar": "D", "help": "of the central price, in (0, 1)"},
    "--target-epsilon": {
        "type": positive_number, "metavar": "EPS",
        "help": "stop before the central price of the whole training exceeds it",
    },
}  # fmt: skip

_COMPARISON: Flags = {
    "--baselines": {
        "metavar": "NAMES",
        "help": f"trained beside it, on the same data: {', '.join(BASELINES)} (separated by "
        "commas). They protect less, or nobody: central-dp trusts the server, at the same epsilon",
    },
}  # fmt: skip

_KEPT_BUDGET = ("--ledger", "--no-ledger", "--run-id")
_KEPT_OUTPUT = (
    "--output", "--overwrite", "--dataset", "--format", "--dry-run", "--config", "--mlflow-uri",
    "--mlflow-experiment", "--no-mlflow",
)  # fmt: skip
FLAGS: Groups = {
    DATA: _DATA,
    TRAINING: _TRAINING,
    PRICE: _PRICE,
    COMPARISON: _COMPARISON,
    BUDGET: {
        **{name: COMMON[BUDGET][name] for name in _KEPT_BUDGET},
        "--privacy-unit": {
            "metavar": "NAME",
            "help": "what this run protects; must be what the budget protects (default: user; "
            f"{POINT} for cldp-sgd with several points per client)",
        },
    },
    OUTPUT: {name: COMMON[OUTPUT][name] for name in _KEPT_OUTPUT},
}

_CLIPS = {"l2": 0.005, "linf": 0.01, "l1": 0.1}
# Server steps are given as length moved per round along a clipped gradient.
_STEPS = {"l2": 0.1, "linf": 0.001, "l1": 0.1}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to do, checked: every field is usable as it stands. Attributes: as the flags.

    `learning_rate` is (rate, until epoch) pieces and the last rate; `clip`, `mechanism` and
    `privacy_unit` have their defaults filled in.
    """

    data: str
    points_per_client: int
    features: tuple[str, ...]
    label: str | None
    client_id: str | None
    classes: int | None
    shape: tuple[int, ...] | None
    scale: float
    test_data: str | None
    bad_rows: str
    algorithm: str
    model: str
    clients_per_round: int | None
    sampling: str
    points_sampled: int
    epochs: int
    learning_rate: tuple[tuple[tuple[float, int], ...], float]
    client_learning_rate: float
    local_epochs: int
    batch_size: int
    norm: str
    clip: float
    local_epsilon: float
    mechanism: str
    delta: float
    target_epsilon: float | None
    baselines: tuple[str, ...]
    ledger: str | None
    no_ledger: bool
    privacy_unit: str
    run_id: str | None
    output: str | None
    overwrite: bool
    dataset: str
    format: str
    only_plan: bool
    mlflow_uri: str | None
    mlflow_experiment: str
    no_mlflow: bool
    memoize_key_file: str | None = None  # these three are what charges ask of every program
    people_store: str | None = None
    people_key_file: str | None = None

    @property
    def bundled(self) -> bool:
        """Whether the data has a name of ours."""
        return self.data in BUNDLED

    @property
    def protects_points(self) -> bool:
        """Whether one data point of a client is protected, rather than all of them."""
        return self.algorithm == CLDP_SGD and self.points_per_client > 1


def check_train(values: argparse.Namespace) -> TrainSettings:
    """The flags with every rule checked and every default filled in.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    need(values, "data", "local_epsilon", "delta", "epochs")
    if not values.only_plan:
        need(values, "output")
    if not 0 < values.delta < 1:
        raise UsageError(f"--delta must lie in (0, 1), got {values.delta}")
    for name in ("points_per_client", "points_sampled", "epochs", "local_epochs", "batch_size"):
        if getattr(values, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be >= 1")
    _check_sampling(values)
    _check_files(values)
    _check_budget(values)
    ten = 10 if values.algorithm == FEDAVG else 1
    clip = values.clip or ten * _CLIPS[values.norm]
    known = {field.name for field in dataclasses.fields(TrainSettings)}
    fields = {name: value for name, value in vars(values).items() if name in known}
    fields.update(
        features=tuple(_split(values.features)),
        shape=_shape(values.shape),
        learning_rate=_rates(values, clip),
        clip=clip,
        baselines=_baselines(values),
        dataset=values.dataset or values.data,
        privacy_unit=values.privacy_unit or "user",
    )
    settings = TrainSettings(**fields)
    if settings.protects_points:
        if values.privacy_unit not in (None, POINT):
            raise UsageError(
                f"--privacy-unit must be {POINT}: with several points per client, cldp-sgd "
                "protects one of them (fedavg protects all)"
            )
        settings = TrainSettings(**{**fields, "privacy_unit": POINT})
    return settings


def _check_sampling(values: argparse.Namespace) -> None:
    if values.sampling == "full":
        if values.clients_per_round is not None:
            raise UsageError("--sampling full takes no --clients-per-round: everybody reports")
    elif values.clients_per_round is None or values.clients_per_round < 1:
        raise UsageError("--clients-per-round must be given, and >= 1")
    if values.algorithm == FEDAVG and values.points_sampled != 1:
        raise UsageError("--points-sampled is of cldp-sgd: in fedavg a client uses all its data")
    if values.sampling == "self" and values.points_sampled != 1:
        raise UsageError("--points-sampled must be 1 with --sampling self")
    if values.points_sampled > values.points_per_client:
        raise UsageError("--points-sampled must be at most --points-per-client")


def _check_files(values: argparse.Namespace) -> None:
    of_files = ("features", "label", "client_id", "classes", "shape", "test_data")
    given = [name for name in of_files if getattr(values, name)]
    if values.data in BUNDLED and given:
        raise UsageError(f"--{given[0].replace('_', '-')} is for files, not for {values.data}")
    if values.data not in BUNDLED:
        if not os.path.exists(values.data):
            raise UsageError(
                f"--data must be one of {', '.join(BUNDLED)}, or a file or folder that exists; "
                f"got {values.data}"
            )
        for name in ("features", "label", "classes"):
            if not getattr(values, name):
                raise UsageError(f"--{name} is missing: files need it")
        if values.classes < 2:
            raise UsageError("--classes must be >= 2")


def _check_budget(values: argparse.Namespace) -> None:
    if values.no_ledger and values.ledger:
        raise UsageError("--ledger and --no-ledger exclude each other")
    named = values.ledger or os.environ.get(LEDGER_VARIABLE)
    if named and not values.no_ledger and not values.dataset:
        where = "--ledger" if values.ledger else LEDGER_VARIABLE
        raise UsageError(
            f"{where} names a ledger: --dataset must name the data set whose budget is charged "
            "(or say --no-ledger)"
        )


def _split(texts: list[str] | None) -> list[str]:
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        shape = ()
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise UsageError(f"--shape must be like 28x28x1, got {text}")
    return shape if len(shape) != 2 else (*shape, 1)


def _rates(values: argparse.Namespace, clip: float) -> tuple[tuple[tuple[float, int], ...], float]:
    if values.learning_rate is None:
        default = 1.0 if values.algorithm == FEDAVG else _STEPS[values.norm] / clip
        return (), default
    *pieces, last = values.learning_rate.split(",")
    try:
        parsed = [(float(rate), int(until)) for rate, until in (p.split(":") for p in pieces)]
        rate = float(last)
    except ValueError:
        parsed, rate = [], math.nan
    ends = [until for _, until in parsed]
    rates = [rate, *(r for r, _ in parsed)]
    growing = ends == sorted(set(ends)) and all(end >= 1 for end in ends)
    if not growing or not all(math.isfinite(r) and r > 0 for r in rates):
        raise UsageError(
            "--learning-rate must be a number > 0, or pieces like 12:30,4:60,3.5, got "
            f"{values.learning_rate}"
        )
    return tuple(parsed), rate


def _baselines(values: argparse.Namespace) -> tuple[str, ...]:
    chosen = tuple(_split([values.baselines] if values.baselines else None))
    for name in chosen:
        if name not in BASELINES:
            raise UsageError(f"--baselines must be of {', '.join(BASELINES)}, got {name!r}")
    return chosen
