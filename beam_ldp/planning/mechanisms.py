"""A mechanism from its name and the size of what it reports about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.registry import Task
from beam_ldp.settings.fields import nearest

TASKS: tuple[Task, ...] = ("frequency", "mean")
_SIZES = {"frequency": "--domain-size", "mean": "--dimension"}
_WORDS = {"frequency": "frequencies of a list", "mean": "means"}


def mechanism_of(
    name: str, *tasks: Task, auto: bool = False, behind_shuffler: bool = False
) -> type[Any]:
    """The class that `--mechanism` names: an offered one, or package:Class, which is imported.

    Only for what stands on a command line or in a configuration: importing runs code.

    Args:
        name: Name of a class, with its package where it is from elsewhere.
        tasks: What it is for, one of these; default: any.
        auto: Whether the flag takes auto, for the error.
        behind_shuffler: Whether it may be one that protects nobody without a trusted shuffler.

    Raises:
        ValueError: If there is none.

    >>> mechanism_of("SubsetSelection", "frequency").__name__
    'SubsetSelection'
    >>> mechanism_of("SubsetSelction")
    Traceback (most recent call last):
    ValueError: --mechanism SubsetSelction is unknown (did you mean SubsetSelection?)
    """
    tasks = tasks or TASKS
    if ":" in name:
        kind = _loaded(name)
        if kind.task not in tasks:
            raise ValueError(f"--mechanism {name} is for {_WORDS[kind.task]}")
        return kind
    every = {
        kind.__name__: kind
        for task in tasks
        for kind in registry.offered(task, behind_shuffler=True)
    }
    kinds = {kind: every[kind] for kind in every if behind_shuffler or every[kind].protects_alone}
    if name in every and name not in kinds:
        raise ValueError(
            f"--mechanism {name} protects nobody unless the shuffler is trusted: `beam-ldp mean` "
            "and `beam-ldp plan mean` take it, with --trust-shuffler"
        )
    if name not in kinds:
        hint = nearest(name, [*kinds])
        listed = f"; choose {'auto or ' * auto}one of {', '.join(kinds)}"
        raise ValueError(f"--mechanism {name} is unknown{hint}{listed if auto or not hint else ''}")
    return kinds[name]


def load_mechanisms(places: Iterable[str], task: Task) -> list[type[Any]]:
    """Mechanisms from elsewhere that a plan compares with ours. Raises ValueError."""
    for place in places:
        if ":" not in place:
            raise ValueError(f"--mechanism {place}: ours are in the plan; others are package:Class")
    return [mechanism_of(place, task) for place in places]


def _loaded(name: str) -> type[Any]:
    try:
        return registry.load(name)
    except ValueError as error:
        raise ValueError(f"--mechanism {name}: {error}") from None


def mechanism_builder(
    name: str, domain_size: int | None, dimension: int | None
) -> Callable[[float], LocalRandomizer]:
    """What makes the mechanism of a local epsilon.

    Args:
        name: Of a frequency oracle or of a mean mechanism, as in `mechanism_of`.
        domain_size: Values, for a frequency oracle.
        dimension: Coordinates, for a mean mechanism.

    Raises:
        ValueError: If there is none of that name, or its size is missing.

    >>> mechanism_builder("SubsetSelection", 1000, None)(2.0).domain_size
    1000
    """
    kind = mechanism_of(name)
    sizes = {"frequency": domain_size, "mean": dimension}
    size = sizes.pop(kind.task)
    if size is None:
        raise ValueError(f"--mechanism {name} needs {_SIZES[kind.task]}")
    if any(other is not None for other in sizes.values()):
        raise ValueError(f"--mechanism {name} takes {_SIZES[kind.task]} only")

    def build(local_epsilon: float) -> LocalRandomizer:
        try:
            made: LocalRandomizer = kind(size, local_epsilon)
        except TypeError as error:
            raise ValueError(f"--mechanism {name}: {error}") from None
        return made

    return build


def described(tasks: Sequence[Task] = TASKS) -> list[dict[str, str]]:
    """What every offered mechanism says of itself: a row of a table, or of a page."""
    return [
        {
            "mechanism": registry.name_of(kind),
            "also known as": registry.synonyms_of(kind),
            "for": kind.task if kind.task == "frequency" else f"mean, {kind.norm}",
            "summary": registry.summary_of(kind),
            "decoding": kind.decoding,
            "exactness": kind.exactness,
        }
        for task in tasks
        for kind in registry.offered(task)
    ]
