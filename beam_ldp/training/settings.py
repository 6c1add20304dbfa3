"""The rules that hold between the flags of `beam-ldp train`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.accounting.reconstruction import DiffuseTarget, SparseTarget, Target
from beam_ldp.federated.idx import holds_idx
from beam_ldp.release.job import need, settings_from
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import POSITIVE, settings_of
from beam_ldp.settings.job import Job, check_dataset_named
from beam_ldp.settings.usage import Arguments
from beam_ldp.training.usage import (
    ADAPED,
    ADAPTIVE,
    BASELINES,
    BUNDLED,
    CLDP_SGD,
    DISTILLATION,
    FEDAVG,
    LOCAL_CENTRAL,
    POINT,
    SAMPLINGS,
    SHUFFLED_EPOCHS,
    USAGE,
    Personal,
    ServerNoise,
    TrainingQuestion,
)

# Settings that only some algorithms have.
_ONLY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((f"training.{name}" for name in settings_of(Personal)), (ADAPED,)),
    **dict.fromkeys((f"training.{name}" for name in settings_of(ServerNoise)), (LOCAL_CENTRAL,)),
    "training.noise_multiplier": (ADAPED, LOCAL_CENTRAL),
    "training.baselines": (CLDP_SGD, FEDAVG),
    "training.least_clients": (CLDP_SGD, FEDAVG),
    "training.dropout": (CLDP_SGD, FEDAVG),
    "training.drop_colluders": (CLDP_SGD, FEDAVG),
    "mechanism.messages": (CLDP_SGD, FEDAVG),
    "privacy.local_epsilon": (CLDP_SGD, FEDAVG, LOCAL_CENTRAL),
}

_CLIPS = {"l2": 0.005, "linf": 0.01, "l1": 0.1}
_CENTRAL_CLIPS = {ADAPED: 1.0, LOCAL_CENTRAL: 0.05}
_SCALES = {  # psi at the start, and its range
    DISTILLATION: (5.0, "2:50"),
    "gaussian": (1.0, "0.02:10"),
    "laplace": (1.0, "0.03:10"),
}
_CLASSES = 10  # where nobody says how many
# Server steps are given as length moved per round along a clipped gradient.
_STEPS = {"l2": 0.1, "linf": 0.001, "l1": 0.1}

Rates = tuple[tuple[tuple[float, int], ...], float]


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Job):
    """What to do, checked: every field is usable as it stands.

    Attributes: the sections, and what the texts of the question mean:

        shape: of an example; None for that of the data.
        clip, adaptive_clip: the clipping norm (of the first round), and whether it adapts.
        rates: (rate, until epoch) pieces and the last rate.
        psi_range: lowest and highest; zeros where the algorithm has none.
        targets: of the audit, by kind, with their numbers.
    """

    shape: tuple[int, ...] | None = None
    clip: float = 0.0
    adaptive_clip: bool = False
    rates: Rates = ((), 0.0)
    psi_range: tuple[float, float] = (0.0, 0.0)
    targets: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @property
    def local_epsilon(self) -> float:
        """Of one report; 0 where a server is trusted with what clients send."""
        return self.privacy.local_epsilon or 0.0

    @property
    def meant(self) -> dict[str, Any]:
        """What the identity of a training holds by the names of the settings, beside others."""
        clip_by = {}
        if (self.question.algorithm, self.question.norm) == (CLDP_SGD, "linf"):
            # Others always clipped so, and this one with an adaptive clip.
            clip_by = {} if self.adaptive_clip else {"clip_by": "coordinate"}
        return {
            **clip_by,
            "shape": self.shape,
            "clip": self.clip,
            "adaptive_clip": self.adaptive_clip,
            "learning_rate": self.rates,
            "psi_range": self.psi_range,
            "local_epsilon": self.local_epsilon,
            "mechanism": self.mechanism.name,
        }

    @property
    def bundled(self) -> bool:
        """Whether the data has a name of ours."""
        return self.question.data in BUNDLED

    @property
    def dealt(self) -> bool:
        """Whether the data is examples that are dealt out to clients: of a name, or IDX files."""
        return self.bundled or holds_idx(self.question.data)

    @property
    def num_classes(self) -> int:
        """Labels are 0 to that, less one."""
        return self.question.classes or _CLASSES

    @property
    def one_report_per(self) -> str:
        """Whose report is charged as one, as the ledger's rows say it."""
        if self.protects_points:
            return "client, of whose points one is protected"
        if self.question.client_id is not None:
            return f"client, by column {self.question.client_id}"
        return "client, as the data is dealt out" if self.dealt else "client, by file"

    @property
    def protects_points(self) -> bool:
        """Whether one data point of a client is protected, rather than all of them."""
        return self.question.algorithm == CLDP_SGD and self.question.points_per_client > 1


def check_train(given: Arguments) -> TrainSettings:
    """The flags with every rule checked and every default filled in.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    if "resume" in given["training"]:
        raise SettingError("--resume is for beam-ldp train: there is nothing to plan or to check")
    need(USAGE, given, "training.data", "privacy.delta", "training.epochs")
    question = _question(given)
    settings = settings_from(given, USAGE, question, TrainSettings)
    _check_algorithm(settings, given)
    if not settings.only_plan:
        need(USAGE, given, "output.folder")
    if not settings.privacy.delta > 0:
        raise SettingError(f"--delta must lie in (0, 1), got {settings.privacy.delta}")
    _check_sampling(question, given)
    if settings.bundled:
        _check_bundled(question, given)
    elif settings.dealt:
        _check_idx(question, given)
    else:
        _check_files(question, given)
    check_dataset_named(settings.charge, settings.noise)
    clip, adaptive = _clip(question)
    settings = replace(
        settings,
        shape=shape_of(question.shape),
        clip=clip,
        adaptive_clip=adaptive,
        rates=_rates(question, clip),
        psi_range=_psi_range(question),
        targets=_targets(question.audit),
    )
    if settings.bundled and not settings.noise.dataset:
        settings = replace(settings, noise=replace(settings.noise, dataset=question.data))
    if settings.protects_points:
        if given["release"].get("privacy_unit") not in (None, POINT):
            raise SettingError(
                f"--privacy-unit must be {POINT}: with several points per client, cldp-sgd "
                "protects one of them (fedavg protects all)"
            )
        settings = replace(settings, charge=replace(settings.charge, privacy_unit=POINT))
    return settings


def _question(given: Arguments) -> TrainingQuestion:
    """What was given, with the defaults that depend on other settings."""
    question = TrainingQuestion(**given["training"])
    psi, psi_range = _SCALES[question.prior]
    return replace(
        question,
        psi=question.psi or psi,
        psi_range=question.psi_range or psi_range,
        features=_split(question.features),
        baselines=_split(question.baselines),
        psi_noise_multiplier=question.psi_noise_multiplier or 10 * question.noise_multiplier,
        sampling=question.sampling or ("self" if question.algorithm == LOCAL_CENTRAL else "fixed"),
    )


def _check_algorithm(settings: TrainSettings, given: Arguments) -> None:
    """What each algorithm has, and what it cannot do without."""
    question = settings.question
    algorithm = question.algorithm
    for name, algorithms in _ONLY.items():
        home, field = name.split(".")
        if field in given[home] and algorithm not in algorithms:
            raise SettingError(
                f"{USAGE.flag_of(name)} is for {' and '.join(algorithms)}, not for {algorithm}"
            )
    if algorithm != ADAPED:
        need(USAGE, given, "privacy.local_epsilon")
    if algorithm in (ADAPED, LOCAL_CENTRAL):
        need(USAGE, given, "training.noise_multiplier")
        told = (("norm", question.norm, "l2"), ("mechanism", settings.mechanism.name, "auto"))
        for flag, value, usual in told:
            if value != usual:
                raise SettingError(f"--{flag} must be {usual} with --algorithm {algorithm}")
    if question.prior != DISTILLATION and question.preset == "printed":
        raise SettingError(f"--prior {question.prior} needs --preset safe")
    if algorithm == LOCAL_CENTRAL:
        need(USAGE, given, "training.projection")
    allowed = {LOCAL_CENTRAL: ("self",), ADAPED: ("fixed", "full")}.get(algorithm, SAMPLINGS)
    if question.sampling not in allowed:
        raise SettingError(
            f"--sampling must be {' or '.join(allowed)} with --algorithm {algorithm}, got "
            f"{question.sampling}"
        )
    for name in question.baselines:
        if name not in BASELINES:
            raise SettingError(f"--baselines must be among {', '.join(BASELINES)}, got {name!r}")


def _check_sampling(question: TrainingQuestion, given: Arguments) -> None:
    if question.sampling != "full":
        need(USAGE, given, "training.clients_per_round")
    elif question.clients_per_round is not None:
        raise SettingError("--sampling full takes no --clients-per-round: everybody reports")
    if question.algorithm != CLDP_SGD and question.points_sampled != 1:
        raise SettingError(
            "--points-sampled is for cldp-sgd only: with the other algorithms, a "
            "client uses all its data"
        )
    if question.sampling == "self" and (question.least_clients or question.dropout):
        raise SettingError(
            "--least-clients and --dropout are not for --sampling self: how many join is random, "
            "and nobody knows who else would have"
        )
    if not 0 <= question.dropout < 1:
        raise SettingError(f"--dropout must lie in [0, 1), got {question.dropout:g}")
    drawn = question.clients_per_round
    if drawn is not None and (question.least_clients or 0) > drawn:
        raise SettingError(f"--least-clients must be at most --clients-per-round, {drawn:,}")
    shards = question.shards_per_client
    if shards is not None and question.points_per_client % shards:
        raise SettingError("--points-per-client must be a multiple of --shards-per-client")
    if question.sampling in ("self", SHUFFLED_EPOCHS) and question.points_sampled != 1:
        raise SettingError(f"--points-sampled must be 1 with --sampling {question.sampling}")
    if question.drop_colluders and question.points_sampled != 1:
        raise SettingError(
            "--drop-colluders needs --points-sampled 1: nobody sees which reports one client sent"
        )
    if question.points_sampled > question.points_per_client:
        raise SettingError("--points-sampled must be at most --points-per-client")


def _check_bundled(question: TrainingQuestion, given: Arguments) -> None:
    for name in ("features", "label", "client_id", "classes", "shape", "test_data"):
        if name in given["training"]:
            raise SettingError(
                f"{USAGE.flag_of(f'training.{name}')} is for files, not for the bundled data "
                f"{question.data}"
            )
    if question.public_clients:
        raise SettingError(f"--public-clients is for files; {question.data} is public")


def _check_idx(question: TrainingQuestion, given: Arguments) -> None:
    for name in ("features", "label", "client_id", "shape", "scale", "test_data", "bad_rows"):
        if name in given["training"]:
            raise SettingError(
                f"{USAGE.flag_of(f'training.{name}')} is for other files than the IDX files of "
                f"{question.data}, which hold images, labels and public examples"
            )
    if question.classes is not None and question.classes < 2:
        raise SettingError("--classes must be >= 2")


def _check_files(question: TrainingQuestion, given: Arguments) -> None:
    if question.shards_per_client is not None:
        raise SettingError("--shards-per-client is for bundled data and folders of IDX files")
    if not os.path.exists(question.data):
        raise SettingError(
            f"--data must be one of {', '.join(BUNDLED)}, or a file or folder that exists; "
            f"got {question.data}"
        )
    need(USAGE, given, "training.features", "training.label", "training.classes")
    if (question.classes or 0) < 2:
        raise SettingError("--classes must be >= 2")


def _clip(question: TrainingQuestion) -> tuple[float, bool]:
    """The clipping norm (of the first round), and whether it adapts."""
    ten = 10 if question.algorithm == FEDAVG else 1
    usual = _CENTRAL_CLIPS.get(question.algorithm, ten * _CLIPS[question.norm])
    if question.clip is None:
        return usual, False
    if question.clip == ADAPTIVE:
        if question.algorithm not in (CLDP_SGD, FEDAVG):
            raise SettingError(f"--clip {ADAPTIVE} is for {CLDP_SGD} and {FEDAVG}")
        if question.drop_colluders:
            raise SettingError(
                f"--drop-colluders does not go with --clip {ADAPTIVE}: forged bits would still "
                "move the norm"
            )
        return usual, True
    try:
        return POSITIVE.read(question.clip), False
    except ValueError:
        raise SettingError(
            f"--clip must be a number > 0 or {ADAPTIVE}, got {question.clip}"
        ) from None


def _psi_range(question: TrainingQuestion) -> tuple[float, float]:
    if question.algorithm != ADAPED:
        return 0.0, 0.0
    try:
        low, high = map(POSITIVE.read, question.psi_range.split(":"))
    except ValueError:
        raise SettingError(
            f"--psi-range must look like 2:50, two numbers > 0, got {question.psi_range}"
        ) from None
    if not low < high or not low <= question.psi <= high:
        raise SettingError("--psi-range must be LOW:HIGH with LOW < HIGH and --psi inside")
    return low, high


# Kinds of targets, and how many numbers each takes.
_TARGETS = {"diffuse": (DiffuseTarget, 2), "sparse": (SparseTarget, 4)}


def target_of(kind: str, numbers: tuple[float, ...]) -> Target:
    """What an audit asks about.

    Raises:
        ValueError: if the numbers do not fit.
    """
    made = [int(n) if n == int(n) and n > 1 else n for n in numbers]
    return _TARGETS[kind][0](*made)


def _targets(text: str | None) -> tuple[tuple[str, tuple[float, ...]], ...]:
    found = []
    for part in _split([text] if text else ()):
        kind, *words = part.split(":")
        try:
            numbers = tuple(map(POSITIVE.read, words))
            if kind not in _TARGETS or len(numbers) != _TARGETS[kind][1]:
                raise ValueError("examples are diffuse:784:0.5 and sparse:20:2000:0.5:0.5")
            target_of(kind, numbers)
        except ValueError as error:
            raise SettingError(f"--audit: {part!r} cannot be used ({error})") from None
        found.append((kind, numbers))
    return tuple(found)


def _split(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def shape_of(text: str | None) -> tuple[int, ...] | None:
    """`--shape`, checked. Raises SettingError."""
    if text is None:
        return None
    try:
        shape = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        shape = ()
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise SettingError(f"--shape must look like 28x28x1, got {text}")
    return shape if len(shape) != 2 else (*shape, 1)


def _rates(question: TrainingQuestion, clip: float) -> Rates:
    if question.learning_rate is None:
        return (), _STEPS[question.norm] / clip if question.algorithm == CLDP_SGD else 1.0
    *steps, last = question.learning_rate.split(",")
    try:
        pieces = [
            (POSITIVE.read(rate), int(until)) for rate, until in (s.split(":") for s in steps)
        ]
        ends = [until for _, until in pieces]
        if ends != sorted(set(ends)) or not all(end >= 1 for end in ends):
            raise ValueError
        return tuple(pieces), POSITIVE.read(last)
    except ValueError:
        raise SettingError(
            "--learning-rate must be a number > 0, or steps such as 12:30,4:60,3.5, got "
            f"{question.learning_rate}"
        ) from None
