"""What is public of a training before a row is read: sizes of the data, parameters of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from beam_ldp.federated.idx import IdxError, IdxFolder
from beam_ldp.settings import SettingError
from beam_ldp.training.settings import TrainSettings

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DataFacts:
    """What is public of the data before a row is read.

    Attributes:
        num_clients: n.
        points_per_client: m, what each has at least.
        shape: of one example.
        num_classes: of the labels.
        num_test: public examples.
    """

    num_clients: int
    points_per_client: int
    shape: Shape
    num_classes: int
    num_test: int


# Examples to learn from, public ones, shape; ten classes each.
_BUNDLED: dict[str, tuple[int, int, Shape]] = {
    "digits": (1437, 360, (8, 8, 1)),
    "mnist5k": (4000, 1000, (28, 28, 1)),
    "mnist": (60_000, 10_000, (28, 28, 1)),
    "emnist-synthetic": (20, 10, (28, 28, 1)),
}


def bundled_facts(name: str, points_per_client: int) -> DataFacts:
    """The facts of data that has a name of ours.

    Raises:
        SettingError: if a client would have more examples than there are.

    >>> bundled_facts("mnist5k", 1).num_clients
    4000
    """
    examples, test, shape = _BUNDLED[name]
    count = 2 if name == "emnist-synthetic" else examples // points_per_client
    if count * points_per_client > examples or count < 1:
        raise SettingError(f"--points-per-client must be at most {examples:,} for {name}")
    return DataFacts(count, points_per_client, shape, 10, test)


def known_facts(settings: TrainSettings) -> DataFacts:
    """The facts of data that is dealt out to clients: of a name, or of a folder of IDX files.

    Raises:
        SettingError: if the folder is not as it should be, or has too little for a client.
    """
    name, points = settings.question.data, settings.question.points_per_client
    if settings.bundled:
        return bundled_facts(name, points)
    try:
        found = IdxFolder.open(name)
    except IdxError as error:
        raise SettingError(f"--data: {error}") from None
    count = found.num_examples // points
    if count < 1:
        raise SettingError(f"--points-per-client must be at most {found.num_examples:,} for {name}")
    return DataFacts(count, points, found.shape, settings.num_classes, found.num_test)


def count_parameters(model: str, shape: Shape, num_classes: int) -> int:
    """Trainable parameters of a model of `tff_adapters.models`, without building it.

    >>> count_parameters("cnn-16", (28, 28, 1), 10), count_parameters("cnn-32", (28, 28, 1), 10)
    (13706, 13722)
    """
    inputs = math.prod(shape)
    if model == "logistic":
        return (inputs + 1) * num_classes
    if model == "mlp":
        return (inputs + 1) * 32 + 33 * num_classes
    if len(shape) != 3 or min(shape[:2]) < 16:
        raise SettingError(f"--model {model} takes images of 16 x 16 and more (--shape HxWxC)")
    small = model == "cnn-32"  # 'same' padding and pools of stride 2
    filters = 16 if model == "cnn-16" else 32

    def after(side: int) -> int:
        side = -(-side // 2)
        side = side // 2 if small else side - 1
        side = -(-side // 2) if small else (side - 4) // 2 + 1
        return side // 2 if small else side - 1

    flat = after(shape[0]) * after(shape[1]) * filters
    convolutions = (64 * shape[2] + 1) * 16 + (16 * 16 + 1) * filters
    return convolutions + (flat + 1) * 32 + 33 * num_classes


def model_of(name: str, shape: Shape) -> str:
    """The model that `auto` stands for; any other name as it is."""
    if name != "auto":
        return name
    images = len(shape) == 3 and min(shape[:2]) >= 16
    return "cnn-16" if images else "logistic"
