"""Mechanisms by name: a configuration stands for the same class in every process.

A configuration travels in ledgers, `release.json` and job graphs; whoever reads it may have
imported nothing yet. The names of this package's own mechanisms are known without importing them,
and belong to them: no other class takes their place, whichever is defined first.
"""

from __future__ import annotations

import importlib
from typing import Any

_PACKAGE = "beam_ldp.randomizers"
OWN_MODULES = {
    "BinaryHadamard": "frequency.binary_hadamard",
    "BinaryVectorMean": "mean.binary_vector",
    "BlockMean": "mean.block_mean",
    "BlockOracle": "frequency.block_oracle",
    "CodebookMean": "mean.codebooks",
    "CyclicOracle": "frequency.cyclic_oracle",
    "DirectionMean": "mean.directions",
    "EveryQuestion": "every_question",
    "FrequencyOracle": "base",
    "HadamardResponse": "frequency.hadamard_response",
    "KRandomizedResponse": "frequency.k_randomized_response",
    "KashinMean": "mean.kashin_mean",
    "L1Mean": "mean.l1",
    "L2Mean": "mean.l2",
    "LInfMean": "mean.linf",
    "LocalHashing": "frequency.local_hashing",
    "MeanRandomizer": "mean.base",
    "MinimalRandomCoding": "mean.minimal_random_coding",
    "OneQuestion": "one_question",
    "PairwiseIndependentRappor": "frequency.pairwise_independent_rappor",
    "PrivUnit": "mean.priv_unit",
    "PrivUnitGaussian": "mean.priv_unit_gaussian",
    "PrivUnitInf": "mean.priv_unit_inf",
    "ProjectedPrivUnit": "mean.projected_priv_unit",
    "ProjectiveGeometryResponse": "frequency.projective_geometry_response",
    "Questions": "question_set",
    "RandomCodebookMean": "mean.random_codebook_mean",
    "Rappor": "frequency.rappor",
    "RecursiveHadamardResponse": "frequency.recursive_hadamard_response",
    "ScalarMean": "mean.scalar_mean",
    "SeedCompressedMean": "mean.seed_compressed_mean",
    "SeparatedMean": "mean.separated_mean",
    "SubsetSelection": "frequency.subset_selection",
    "SymbolOracle": "frequency.symbol_oracle",
    "UnaryEncoding": "frequency.unary_encoding",
}
_classes: dict[str, type[Any]] = {}


def register(kind: type[Any]) -> None:
    """Remember a class by its name, for `find`.

    Raises:
        TypeError: if the name is that of another class. A class that is defined again where it
            was, as a cell of a notebook that is run twice, takes its own place.
    """
    name = kind.__name__
    held = _classes.get(name)
    owner = f"{_PACKAGE}.{OWN_MODULES[name]}" if name in OWN_MODULES else kind.__module__
    if kind.__module__ != owner or (held is not None and _place_of(held) != _place_of(kind)):
        place = owner if held is None else held.__module__
        raise TypeError(
            f"{name} is the name of a mechanism of {place}; configurations know mechanisms by "
            "their names: choose another"
        )
    _classes[name] = kind


def find(name: object) -> type[Any] | None:
    """The class of this name, imported where it is one of the package's own; None for no such."""
    if not isinstance(name, str):
        return None
    if name not in _classes and name in OWN_MODULES:
        importlib.import_module(f"{_PACKAGE}.{OWN_MODULES[name]}")
    return _classes.get(name)


def _place_of(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
