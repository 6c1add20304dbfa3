"""What is in the job graph: parameters and paths; no value, key or seed-derived secret; little."""

from __future__ import annotations

import base64
import bz2
import pickle
import zlib

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.display import DisplayData

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import PrivateFrequencies, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer
from tests.transforms.helpers import ORACLE

pytestmark = pytest.mark.exact

KEY = b"a secret key of more than thirty-two bytes"


def graph(stage, element_type=int):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | beam.Impulse() | beam.Map(lambda _: 1).with_output_types(element_type) | stage
    return pipeline.to_runner_api()


def payloads(proto):
    """The bytes of the graph, with what is packed inside them unpacked."""
    raw = proto.SerializeToString()
    found = [raw]
    for transform in proto.components.transforms.values():
        payload = transform.spec.payload
        found.append(payload)
        if transform.spec.urn == "beam:transform:pardo:v1":
            pardo = beam.portability.api.beam_runner_api_pb2.ParDoPayload.FromString(payload)
            found.append(pardo.do_fn.payload)
            for decode in (
                lambda p: p,
                base64.b64decode,
                lambda p: bz2.decompress(base64.b64decode(p)),
                lambda p: zlib.decompress(base64.b64decode(p)),
            ):
                try:
                    found.append(decode(pardo.do_fn.payload))
                except (ValueError, OSError, zlib.error):
                    continue
    return found


def test_no_key_and_no_domain_value_of_a_file(tmp_path):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "domain").write_text("\n".join(f"listed {i}" for i in range(4)))
    stage = PrivateFrequencies(
        ORACLE,
        domain=str(tmp_path / "domain"),
        column="c",
        people=People(id="u"),
        min_reports=10,
        noise=Noise(dataset="d", id="r", key_file=str(tmp_path / "key")),
    )
    found = payloads(graph(stage))
    assert any(b"Encode" in data for data in found) and len(found) > 20
    assert any(str(tmp_path / "key").encode() in data for data in found), "the search works"
    for data in found:
        assert KEY not in data and b"listed 3" not in data
        assert base64.b64encode(KEY)[:40] not in data


def test_small_at_four_million_values(tmp_path):
    """The graph does not grow with a domain that travels as a path."""
    path = tmp_path / "domain"
    oracle = KRandomizedResponse(4_000_001, 8.0)
    for output, scope in (("statistic", "batch"), ("reports", "global")):
        stage = PrivateFrequencies(
            oracle,
            domain=str(path),
            column="c",
            min_reports=10,
            shuffle=Shuffling(output=output, scope=scope),
        )
        assert len(graph(stage).SerializeToString()) < 200_000


def test_a_randomizer_travels_as_its_parameters():
    oracle = KRandomizedResponse(4_000_000, 5.0)
    fresh = len(pickle.dumps(PortableRandomizer(oracle)))
    oracle.randomize(np.arange(10))
    oracle.__dict__["_a_table_of_its_own"] = np.zeros(10**6)
    assert len(pickle.dumps(PortableRandomizer(oracle))) == fresh < 1000
    assert pickle.loads(pickle.dumps(PortableRandomizer(oracle))).randomizer == oracle


def test_names_coders_and_fusion():
    """Stable names; our coders, not pickle, on every edge; one exchange where one is meant."""
    for arguments, groupings in (
        ({}, 1),  # the sums
        ({"shuffle": Shuffling(output="reports")}, 2),  # the leftovers, the sums
        ({"people": People(id="uid")}, 2),  # the persons, the sums
    ):
        stage = PrivateFrequencies(ORACLE, min_reports=10, **arguments)
        names = []
        for _ in range(2):
            proto = graph(stage, ValueBlock)
            names.append(sorted(t.unique_name for t in proto.components.transforms.values()))
        assert names[0] == names[1]
        urns = [t.spec.urn for t in proto.components.transforms.values()]
        keyed = urns.count("beam:transform:group_by_key:v1")
        combined = urns.count("beam:transform:combine_per_key:v1")
        inside = sum("CombinePerKey" in n and "GroupByKey" in n for n in names[0])
        assert keyed + combined - inside >= groupings
        ours = [
            name
            for name, pcoll in proto.components.pcollections.items()
            if b"BlockCoder" in proto.components.coders[pcoll.coder_id].spec.payload
        ]
        assert ours


def test_display_data_tells_the_budget():
    shown = DisplayData.create_from(PrivateFrequencies(ORACLE, min_reports=10)).items
    facts = {item.key: item.value for item in shown}
    assert facts["mechanism"] == "KRandomizedResponse" and facts["local_epsilon"] == 1.5
    assert facts["min_reports"] == 10


def test_large_inline_domain_is_refused():
    domain = Domain(tuple(f"a rather long value {i}" for i in range(20_000)))
    with pytest.raises(ValueError, match="pass the path"):
        PrivateFrequencies(KRandomizedResponse(20_001, 5.0), domain=domain, min_reports=5)
