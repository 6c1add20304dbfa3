"""The rules that hold between the flags of `beam-ldp train`."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.accounting.reconstruction import DiffuseTarget, SparseTarget, Target
from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.settings import LEDGER_VARIABLE, UNNAMED, need, section_from
from beam_ldp.pipelines.usage.train import (
    ADAPED,
    ADAPTIVE,
    BASELINES,
    BUNDLED,
    CLDP_SGD,
    FEDAVG,
    LOCAL_CENTRAL,
    POINT,
    SAMPLINGS,
    USAGE,
    TrainingQuestion,
)
from beam_ldp.settings import Charge, Noise, Output, Privacy
from beam_ldp.settings.fields import POSITIVE

# Flags that only some algorithms have. They have no default of argparse's: given is given.
_ONLY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("preset", "psi_noise_multiplier", "psi_clip", "psi", "psi_range", "local_steps",
         "personal_learning_rate", "shared_learning_rate", "psi_learning_rate", "public_clients"),
        (ADAPED,),
    ),
    "noise_multiplier": (ADAPED, LOCAL_CENTRAL),
    **dict.fromkeys(("projection", "max_participations", "audit"), (LOCAL_CENTRAL,)),
    "local_epsilon": (CLDP_SGD, FEDAVG, LOCAL_CENTRAL),
    "baselines": (CLDP_SGD, FEDAVG),
}  # fmt: skip
_ONLY_DEFAULTS: dict[str, Any] = {
    "preset": "safe", "psi_clip": 1.0, "psi": 5.0, "psi_range": "2:50", "local_steps": 10,
    "personal_learning_rate": 0.2, "shared_learning_rate": 0.15, "psi_learning_rate": 0.2,
    "public_clients": False,
}  # fmt: skip

_CLIPS = {"l2": 0.005, "linf": 0.01, "l1": 0.1}
_CENTRAL_CLIPS = {ADAPED: 1.0, LOCAL_CENTRAL: 0.05}
# Server steps are given as length moved per round along a clipped gradient.
_STEPS = {"l2": 0.1, "linf": 0.001, "l1": 0.1}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What to do, checked: every field is usable as it stands. Attributes: as the flags.

    `learning_rate` is (rate, until epoch) pieces and the last rate; `clip`, `mechanism` and
    `privacy_unit` have their defaults filled in; `clip` is that of the first round where
    `adaptive_clip` is set. What an algorithm does not have is None, or its default.
    """

    data: str
    points_per_client: int
    shards_per_client: int | None
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
    adaptive_clip: bool
    local_epsilon: float
    mechanism: str
    privacy: Privacy
    preset: str
    noise_multiplier: float
    psi_noise_multiplier: float
    psi_clip: float
    psi: float
    psi_range: tuple[float, float]
    local_steps: int
    personal_learning_rate: float
    shared_learning_rate: float
    psi_learning_rate: float
    public_clients: bool
    projection: float
    max_participations: int | None
    audit: tuple[tuple[str, tuple[float, ...]], ...]
    baselines: tuple[str, ...]
    noise: Noise
    charge: Charge
    output: Output
    dataset: str
    only_plan: bool

    @property
    def bundled(self) -> bool:
        """Whether the data has a name of ours."""
        return self.data in BUNDLED

    @property
    def one_report_per(self) -> str:
        """Whose report is charged as one, as the ledger's rows say it."""
        if self.protects_points:
            return "client, of whose points one is protected"
        if self.client_id is not None:
            return f"client, by column {self.client_id}"
        return "client, as the data is dealt out" if self.bundled else "client, by file"

    @property
    def protects_points(self) -> bool:
        """Whether one data point of a client is protected, rather than all of them."""
        return self.algorithm == CLDP_SGD and self.points_per_client > 1


def check_train(given: Arguments) -> TrainSettings:
    """The flags with every rule checked and every default filled in.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    need(USAGE, given, "training.data", "privacy.delta", "training.epochs")
    values = _values(given)
    _check_algorithm(values, given)
    if not values.only_plan:
        need(USAGE, given, "output.folder")
    if not 0 < values.delta < 1:
        raise UsageError(f"--delta must lie in (0, 1), got {values.delta}")
    for name in (
        "points_per_client", "points_sampled", "epochs", "local_epochs", "batch_size",
        "local_steps", "max_participations", "shards_per_client",
    ):  # fmt: skip
        if (getattr(values, name) or 1) < 1 or getattr(values, name) == 0:
            raise UsageError(f"--{name.replace('_', '-')} must be >= 1")
    _check_sampling(values)
    _check_files(values)
    _check_budget(values)
    clip, adaptive = _clip(values)
    known = {field.name for field in dataclasses.fields(TrainSettings)}
    fields = {name: value for name, value in vars(values).items() if name in known}
    privacy, noise_of, charge, output = (
        section_from(given, USAGE, home, section)
        for home, section in (
            ("privacy", Privacy), ("release", Noise), ("release", Charge), ("output", Output),
        )
    )  # fmt: skip
    noise = values.noise_multiplier or 0.0
    fields.update(
        features=tuple(_split(values.features)),
        shape=_shape(values.shape),
        learning_rate=_rates(values, clip),
        clip=clip,
        adaptive_clip=adaptive,
        local_epsilon=values.local_epsilon or 0.0,
        noise_multiplier=noise,
        psi_noise_multiplier=values.psi_noise_multiplier or 10 * noise,
        psi_range=_psi_range(values),
        projection=values.projection or 0.0,
        audit=_audit(values.audit),
        baselines=_baselines(values),
        dataset=noise_of.dataset or (values.data if values.data in BUNDLED else UNNAMED),
        privacy=privacy,
        noise=noise_of,
        charge=charge,
        output=output,
    )
    settings = TrainSettings(**fields)
    if settings.protects_points:
        if given["release"].get("privacy_unit") not in (None, POINT):
            raise UsageError(
                f"--privacy-unit must be {POINT}: with several points per client, cldp-sgd "
                "protects one of them (fedavg protects all)"
            )
        settings = replace(settings, charge=replace(charge, privacy_unit=POINT))
    return settings


def _values(given: Arguments) -> argparse.Namespace:
    """What was given, or the defaults, by the names of the flags; the rules below fill in more."""
    told = {name: field.default for name, field in TrainingQuestion.__dataclass_fields__.items()}
    told |= given["training"]
    privacy = given["privacy"]
    return argparse.Namespace(
        **told,
        local_epsilon=privacy.get("local_epsilon"),
        target_epsilon=privacy.get("epsilon"),
        delta=privacy["delta"],
        mechanism=given["mechanism"].get("name", "auto"),
        only_plan=given.action("only_plan"),
        ledger=given["release"].get("ledger"),
        no_ledger=given["release"].get("no_ledger", False),
        dataset=given["release"].get("dataset"),
        seed=None,
    )


def _check_algorithm(values: argparse.Namespace, given: Arguments) -> None:
    """Each algorithm's own flags, and their defaults."""
    algorithm = values.algorithm
    for name, algorithms in _ONLY.items():
        if getattr(values, name) is not None and algorithm not in algorithms:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is for {' and '.join(algorithms)}, not for {algorithm}")
        if getattr(values, name) is None:
            setattr(values, name, _ONLY_DEFAULTS.get(name))
    if algorithm != ADAPED:
        need(USAGE, given, "privacy.local_epsilon")
    if algorithm in (ADAPED, LOCAL_CENTRAL):
        need(USAGE, given, "training.noise_multiplier")
        for name, usual in (("norm", "l2"), ("mechanism", "auto")):
            if getattr(values, name) != usual:
                raise UsageError(f"--{name} must be {usual} with --algorithm {algorithm}")
    if algorithm == LOCAL_CENTRAL:
        need(USAGE, given, "training.projection")
    if values.sampling is None:
        values.sampling = "self" if algorithm == LOCAL_CENTRAL else "fixed"
    allowed = {LOCAL_CENTRAL: ("self",), ADAPED: ("fixed", "full")}.get(algorithm, SAMPLINGS)
    if values.sampling not in allowed:
        raise UsageError(
            f"--sampling must be {' or '.join(allowed)} with --algorithm {algorithm}, got "
            f"{values.sampling}"
        )


def _check_sampling(values: argparse.Namespace) -> None:
    if values.sampling == "full":
        if values.clients_per_round is not None:
            raise UsageError("--sampling full takes no --clients-per-round: everybody reports")
    elif values.clients_per_round is None or values.clients_per_round < 1:
        raise UsageError("--clients-per-round must be given, and >= 1")
    if values.algorithm != CLDP_SGD and values.points_sampled != 1:
        raise UsageError(
            "--points-sampled is for cldp-sgd only: with the other algorithms, a "
            "client uses all its data"
        )
    shards = values.shards_per_client
    if shards is not None and values.points_per_client % shards:
        raise UsageError("--points-per-client must be a multiple of --shards-per-client")
    if values.sampling == "self" and values.points_sampled != 1:
        raise UsageError("--points-sampled must be 1 with --sampling self")
    if values.points_sampled > values.points_per_client:
        raise UsageError("--points-sampled must be at most --points-per-client")


def _check_files(values: argparse.Namespace) -> None:
    of_files = ("features", "label", "client_id", "classes", "shape", "test_data")
    given = [name for name in of_files if getattr(values, name)]
    if values.data in BUNDLED and given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for files, not for the bundled data {values.data}"
        )
    if values.data in BUNDLED and values.public_clients:
        raise UsageError(f"--public-clients is for files; {values.data} is public")
    if values.data not in BUNDLED:
        if values.shards_per_client is not None:
            raise UsageError("--shards-per-client is for bundled data")
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
            f"{where} names a ledger: --dataset must name the data set whose budget is charged (or "
            "give --no-ledger)"
        )


def _clip(values: argparse.Namespace) -> tuple[float, bool]:
    """The clipping norm (of the first round), and whether it adapts."""
    ten = 10 if values.algorithm == FEDAVG else 1
    usual = _CENTRAL_CLIPS.get(values.algorithm, ten * _CLIPS[values.norm])
    if values.clip is None:
        return usual, False
    if values.clip == ADAPTIVE:
        if values.algorithm not in (CLDP_SGD, FEDAVG):
            raise UsageError(f"--clip {ADAPTIVE} is for {CLDP_SGD} and {FEDAVG}")
        return usual, True
    try:
        return POSITIVE.read(values.clip), False
    except ValueError:
        raise UsageError(f"--clip must be a number > 0 or {ADAPTIVE}, got {values.clip}") from None


def _psi_range(values: argparse.Namespace) -> tuple[float, float]:
    if values.algorithm != ADAPED:
        return 0.0, 0.0
    try:
        low, high = map(POSITIVE.read, values.psi_range.split(":"))
    except ValueError:
        raise UsageError(
            f"--psi-range must look like 2:50, two numbers > 0, got {values.psi_range}"
        ) from None
    if not low < high or not low <= values.psi <= high:
        raise UsageError("--psi-range must be LOW:HIGH with LOW < HIGH and --psi inside")
    return low, high


# Kinds of targets, and what builds one says of its numbers.
_TARGETS = {"diffuse": (DiffuseTarget, 2), "sparse": (SparseTarget, 4)}


def target_of(kind: str, numbers: tuple[float, ...]) -> Target:
    """What an audit asks about.

    Raises:
        ValueError: if the numbers do not fit.
    """
    made = [int(n) if n == int(n) and n > 1 else n for n in numbers]
    return _TARGETS[kind][0](*made)


def _audit(text: str | None) -> tuple[tuple[str, tuple[float, ...]], ...]:
    found = []
    for part in _split([text] if text else None):
        kind, *words = part.split(":")
        try:
            numbers = tuple(map(POSITIVE.read, words))
            if kind not in _TARGETS or len(numbers) != _TARGETS[kind][1]:
                raise ValueError("examples are diffuse:784:0.5 and sparse:20:2000:0.5:0.5")
            target_of(kind, numbers)
        except ValueError as error:
            raise UsageError(f"--audit: {part!r} cannot be used ({error})") from None
        found.append((kind, numbers))
    return tuple(found)


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
        raise UsageError(f"--shape must look like 28x28x1, got {text}")
    return shape if len(shape) != 2 else (*shape, 1)


def _rates(values: argparse.Namespace, clip: float) -> tuple[tuple[tuple[float, int], ...], float]:
    if values.learning_rate is None:
        default = _STEPS[values.norm] / clip if values.algorithm == CLDP_SGD else 1.0
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
            "--learning-rate must be a number > 0, or steps such as 12:30,4:60,3.5, got "
            f"{values.learning_rate}"
        )
    return tuple(parsed), rate


def _baselines(values: argparse.Namespace) -> tuple[str, ...]:
    chosen = tuple(_split([values.baselines] if values.baselines else None))
    for name in chosen:
        if name not in BASELINES:
            raise UsageError(f"--baselines must be among {', '.join(BASELINES)}, got {name!r}")
    return chosen
