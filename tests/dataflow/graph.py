"""A job graph, read: transforms, what crosses between stages, and everything that was pickled."""

from __future__ import annotations

import base64
import bz2
import re
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from apache_beam.coders.coders import LengthPrefixCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import translations

import beam_ldp.transforms  # noqa: F401 (registers the coders that the graph names)

STAGE = "beam:runner:executable_stage:v1"
_KEPT = (
    common_urns.primitives.GROUP_BY_KEY.urn,
    common_urns.primitives.IMPULSE.urn,
    common_urns.primitives.FLATTEN.urn,
)


class Graph:
    """What a runner is given.

    Args:
        path: of the serialized pipeline.
    """

    def __init__(self, path: Path) -> None:
        self.bytes = path.read_bytes()
        self.proto = beam_runner_api_pb2.Pipeline.FromString(self.bytes)

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """Primitive transforms by their full names."""
        transforms = self.proto.components.transforms.values()
        return {t.unique_name: t for t in transforms if not t.subtransforms}

    def upstream_kinds(self, name: str) -> list[str]:
        """What the elements of a transform's main input are, as their coders say."""
        transform = self.leaves[name]
        return [_kinds(self.proto, c) for key, c in transform.inputs.items() if "side" not in key]

    @cached_property
    def payloads(self) -> dict[str, bytes]:
        """Everything that was pickled, unpacked; by the name of the transform that holds it."""
        found = {}
        for name, transform in self.leaves.items():
            parts = [transform.spec.payload, *_unpacked(transform.spec.payload)]
            found[name] = b"\0".join(parts)
        return found

    @cached_property
    def everything(self) -> bytes:
        """The whole graph with all that was pickled, for searching."""
        coders = (c.spec.payload for c in self.proto.components.coders.values())
        unpacked = (part for payload in coders for part in _unpacked(payload))
        return b"\0".join([self.bytes, *self.payloads.values(), *unpacked])

    @cached_property
    def crossings(self) -> set[str]:
        """Kinds of the elements that leave one fused stage and enter another."""
        optimized = self._optimized
        parts = optimized.components
        return {
            _kinds(optimized, collection)
            for root in optimized.root_transform_ids
            for collection in parts.transforms[root].outputs.values()
        }

    @cached_property
    def stages(self) -> list[str]:
        """Fused stages: the names of the transforms in each."""
        parts = self._optimized.components
        return [
            parts.transforms[root].unique_name
            for root in self._optimized.root_transform_ids
            if parts.transforms[root].spec.urn == STAGE
        ]

    @cached_property
    def _optimized(self) -> Any:
        return translations.optimize_pipeline(
            self.proto,
            phases=translations.standard_optimize_phases(),
            known_runner_urns=frozenset(_KEPT),
            partial=False,
        )


def _kinds(proto: Any, collection: str) -> str:
    """The coder of a collection, our blocks by their names."""
    context = PipelineContext(proto.components)
    coder = context.coders.get_by_id(proto.components.pcollections[collection].coder_id)
    return _name(coder)


def _name(coder: Any) -> str:
    if isinstance(coder, LengthPrefixCoder):
        return _name(coder.value_coder())
    if type(coder).__name__ == "BlockCoder":
        return str(coder.to_type_hint().__name__)
    parts = coder._get_component_coders() if hasattr(coder, "_get_component_coders") else []
    short = type(coder).__name__.removesuffix("Coder")
    return f"{short}[{', '.join(map(_name, parts))}]" if parts else short


def _unpacked(payload: bytes) -> Iterator[bytes]:
    """Pickles inside a payload: they are compressed, then written in base64."""
    for packed in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", payload):
        try:
            data = base64.b64decode(packed)
            unpack = bz2.decompress if data.startswith(b"BZh") else zlib.decompress
            yield unpack(data)
        except (ValueError, OSError, zlib.error):
            continue  # text that happens to look like it
