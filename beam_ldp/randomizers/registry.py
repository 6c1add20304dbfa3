"""Mechanisms by name: a configuration stands for the same class in every process.

A configuration travels in ledgers, `release.json` and job graphs. It may come from anybody, so it
never makes a process import anything but what was chosen there already:

* this package's own mechanisms, whose short names belong to them, whichever is defined first;
* installed ones, which a distribution lists under the entry points `ENTRY_POINTS`;
* those that the program imported itself, or `load` did for its command line.

Mechanisms from elsewhere are called "module:Class" in configurations, so that two packages' classes
of one name are two mechanisms: their releases, memoized noise and budgets are told apart.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from functools import cache
from typing import Any, Literal

Task = Literal["frequency", "mean"]
ENTRY_POINTS = "beam_ldp.mechanisms"

_PACKAGE = "beam_ldp.randomizers"
_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
OWN_MODULES = {
    "BinaryHadamard": "frequency.binary_hadamard",
    "BinaryVectorMean": "mean.lp",
    "BlockMean": "mean.block_mean",
    "BlockOracle": "frequency.symbol_oracle",
    "CodebookMean": "mean.codebooks",
    "CyclicOracle": "frequency.symbol_oracle",
    "DirectionMean": "mean.directions",
    "EveryQuestion": "questions",
    "FavouringMean": "mean.priv_unit",
    "FrequencyOracle": "frequency_oracle",
    "HadamardResponse": "frequency.hadamard_response",
    "KRandomizedResponse": "frequency.k_randomized_response",
    "KashinMean": "mean.kashin_mean",
    "L1Mean": "mean.lp",
    "L2Mean": "mean.l2_mean",
    "LInfMean": "mean.lp",
    "LimitedHadamard": "frequency.limited_hadamard",
    "LocalHashing": "frequency.local_hashing",
    "MeanRandomizer": "mean.base",
    "MinimalRandomCoding": "mean.minimal_random_coding",
    "OneQuestion": "questions",
    "PairwiseIndependentRappor": "frequency.pairwise_independent_rappor",
    "PrivUnit": "mean.priv_unit",
    "PrivUnitGaussian": "mean.priv_unit_gaussian",
    "PrivUnitInf": "mean.priv_unit_inf",
    "ProjectedPrivUnit": "mean.projected_priv_unit",
    "ProjectiveGeometryResponse": "frequency.projective_geometry_response",
    "Questions": "question_set",
    "RandomCodebookMean": "mean.codebooks",
    "Rappor": "frequency.rappor",
    "RecoverableResponse": "frequency.recoverable_response",
    "RecursiveHadamardResponse": "frequency.recursive_hadamard_response",
    "RefinableResponse": "frequency.refinable_response",
    "RotatedSimplexMean": "mean.rotated_simplex_mean",
    "RoundedDirectionMean": "mean.rounded_directions",
    "ScalarMean": "mean.scalar_mean",
    "SeedCompressedMean": "mean.seed_compressed_mean",
    "SeededOracle": "frequency.local_hashing",
    "SeparatedMean": "mean.separated_mean",
    "SplitAndMixMean": "mean.split_and_mix",
    "SubsetSelection": "frequency.subset_selection",
    "SymbolOracle": "frequency.symbol_oracle",
    "TailedDirectionMean": "mean.rounded_directions",
    "UnaryEncoding": "frequency.unary_encoding",
}
_classes: dict[str, type[Any]] = {}
_offered: dict[str, type[Any]] = {}  # from elsewhere, for plans and command lines, by short name


def name_of(kind: type[Any]) -> str:
    """What configurations call a mechanism: its own name, with its module where it is not ours."""
    if f"{_PACKAGE}.{OWN_MODULES.get(kind.__name__)}" == kind.__module__:
        return kind.__name__
    return f"{kind.__module__}:{kind.__qualname__}"


def summary_of(kind: type[Any]) -> str:
    """What a mechanism says of itself: the first line of its docstring; empty if it has none."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
    return "" if text.startswith(f"{kind.__name__}(") else text  # what `dataclass` writes itself


def synonyms_of(kind: type[Any]) -> str:
    """What the literature calls a mechanism: its own `also_known_as`, not that of its parents."""
    found: str = vars(kind).get("also_known_as", "")
    return found


def register(kind: type[Any]) -> None:
    """Remember a class by its name, for `find`.

    A class that is defined again where it was, as a cell of a notebook that is run twice, takes its
    own place.

    Raises:
        TypeError: if its name is that of a mechanism of this package.
    """
    name = name_of(kind)
    if kind.__name__ in OWN_MODULES and name != kind.__name__:
        place = f"{_PACKAGE}.{OWN_MODULES[kind.__name__]}"
        raise TypeError(f"{kind.__name__} is the name of a mechanism of {place}: choose another")
    _classes[name] = kind


def find(name: object) -> type[Any] | None:
    """The class of this name; None where none is known here. Never imports what `name` says."""
    if not isinstance(name, str):
        return None
    if name in OWN_MODULES:
        importlib.import_module(f"{_PACKAGE}.{OWN_MODULES[name]}")
    elif name not in _classes:
        _installed()
    return _classes.get(name)


def offered(task: Task, *, behind_shuffler: bool = False) -> tuple[type[Any], ...]:
    """The mechanisms that plans of this task consider: our own, installed ones, and loaded ones.

    Args:
        task: what they are for.
        behind_shuffler: also those that protect nobody without a shuffler
            (`LocalRandomizer.protects_alone`), where it was declared that it is trusted.
    """
    _installed()
    room = importlib.import_module(f"{_PACKAGE}.{task}")
    own = [_classes.get(name) for name in room.__all__]
    kinds = [kind for kind in own if kind is not None and not inspect.isabstract(kind)]
    kinds += [kind for kind in _offered.values() if kind.task == task]
    return tuple(kind for kind in kinds if kind.protects_alone or behind_shuffler)


def offer(kind: type[Any]) -> type[Any]:
    """Let plans and command lines of this process consider a mechanism from elsewhere.

    Raises:
        ValueError: if it is none, or another one of that short name is offered.
    """
    if not inspect.isclass(kind) or _classes.get(name_of(kind)) is not kind:
        raise ValueError(f"{getattr(kind, '__name__', kind)!s} is no class of a mechanism")
    if inspect.isabstract(kind):
        raise ValueError(
            f"{name_of(kind)} leaves out {', '.join(sorted(kind.__abstractmethods__))}"
        )
    if name_of(kind) == kind.__name__:  # our own need no offer
        return kind
    held = _offered.get(kind.__name__, kind)
    if name_of(held) != name_of(kind):
        raise ValueError(f"{name_of(held)} and {name_of(kind)} have one name: take one of them")
    _offered[kind.__name__] = kind
    return kind


def load(place: str) -> type[Any]:
    """Import and offer the mechanism "package.module:Class".

    For what a person configures, such as a command line. Importing runs code: never call it with a
    name that was read from a release, a report, a ledger or any other data.

    Raises:
        ValueError: if there is none at that place.
    """
    if not _PLACE.fullmatch(place):
        raise ValueError(f"a mechanism from elsewhere is named package.module:Class, got {place}")
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"{place} cannot be imported: {error}") from None
    return offer(found)


def loaded_modules() -> list[str]:
    """Where the offered mechanisms from elsewhere are: what a job's workers have to import."""
    return sorted({kind.__module__ for kind in _offered.values()} - {"__main__"})


@cache
def _installed() -> None:
    """Offer what installed distributions list; one that cannot be is named, and left out."""
    from importlib import metadata  # takes a while, and devices need none

    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            offer(point.load())
        except Exception as error:
            said = f"mechanism {point.value} of {ENTRY_POINTS} is left out: {error}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
