"""What Dataflow would be sent, read line by line. `make test-dataflow` runs these."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from tests.dataflow.conftest import KEY, LARGE, REWARD, SECRET, USER
from tests.dataflow.graph import Graph

pytestmark = pytest.mark.dataflow

Graphs = dict[str, Graph]
RAW = {"TableBlock", "ValueBlock", "CandidateBlock", "PersonSums"}
NAMES = ["statistic", "memoized", "batch", "global", "large", "mean", "user-mean", "bandit"]


def exchanged(graph: Graph, kind: str) -> set[str]:
    """Group-by-keys, and other ways between stages, that blocks of this kind take."""
    return {
        name
        for name, transform in graph.leaves.items()
        if transform.spec.urn == "beam:transform:group_by_key:v1"
        and any(kind in found for found in graph.upstream_kinds(name))
    }


def crossing(graph: Graph) -> set[str]:
    """Our classes that leave a fused stage."""
    return set(
        re.findall(
            r"\w+Block|ReportPiece|PersonSums|ShuffledSum|Release|WithheldRelease",
            " ".join(graph.crossings),
        )
    )


def test_built_by_the_installed_wheel(built: Path, graphs: Graphs) -> None:
    library = json.loads((built / "about.json").read_text())["library"]
    assert "site-packages" in library
    assert set(graphs) == {*NAMES, "again"}


@pytest.mark.parametrize("name", NAMES)
def test_no_value_no_id_no_key_in_it(graphs: Graphs, name: str) -> None:
    everything = graphs[name].everything
    user = [USER.to_bytes(8, order) for order in ("little", "big")] + [b"%d" % USER]
    reward = [struct.pack(f"{order}d", REWARD) for order in "<>"] + [repr(REWARD).encode()]
    for secret in (SECRET.encode(), KEY, *user, *reward):
        assert secret not in everything


def test_the_search_finds_what_is_there(graphs: Graphs) -> None:
    """Parameters, paths and names do travel, and are found where they are pickled."""
    memoized = graphs["memoized"]
    (randomize,) = (name for name in memoized.leaves if name.endswith("(RandomizeTraced)"))
    assert b"KRandomizedResponse" in memoized.payloads[randomize]
    assert b"KRandomizedResponse" not in memoized.bytes
    assert b"/key" in memoized.everything


def test_nothing_random_is_drawn_when_it_is_built(graphs: Graphs) -> None:
    """The same flags give the same graph: no key and no seed was drawn and put into it.

    The flags name the release: a nameless one is given a name of its own, which is public.
    """
    once, again = graphs["statistic"].payloads, graphs["again"].payloads
    assert once.keys() == again.keys()
    ours = [name for name in once if not name.startswith("WriteBadRows/Write")]
    assert len(ours) > 20
    assert {name for name in ours if once[name] != again[name]} == set()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_from_main_and_no_lambda_of_ours(graphs: Graphs, name: str) -> None:
    graph = graphs[name]
    assert b"__main__" not in graph.everything
    assert b"pickled_main_session" not in graph.bytes
    lambdas = {leaf for leaf in graph.leaves if "lambda" in leaf}
    # `beam.Create` has one of Beam's own.
    assert all(re.search(r"FlatMap\(<lambda at core\.py:\d+>\)$", leaf) for leaf in lambdas)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_stable(graphs: Graphs, name: str) -> None:
    """A name follows from the pipeline alone: no address, no counter of the process, no digest."""
    for leaf in graphs[name].leaves:
        assert not re.search(r"0x[0-9a-f]+|[0-9a-f]{16}", leaf)
    if name == "statistic":
        assert graphs["again"].leaves.keys() == graphs[name].leaves.keys()
        stages = {part for leaf in graphs[name].leaves for part in leaf.split("/")}
        assert {"Device", "Encode", "Bound", "Randomize"} <= stages
        assert {"Collector", "Shuffle", "Aggregate", "Estimate"} <= stages


@pytest.mark.parametrize("name", NAMES)
def test_blocks_travel_by_their_own_coders(graphs: Graphs, name: str) -> None:
    """What Beam would pickle between stages are paths (and what its own sinks need)."""
    graph = graphs[name]
    assert {"BadRowBlock", "StatisticBlock"} <= crossing(graph)
    pickled = {
        leaf
        for leaf in graph.leaves
        if graph.leaves[leaf].spec.urn == "beam:transform:group_by_key:v1"
        and any(
            "FastPrimitives" in kind.split("Nullable")[0] for kind in graph.upstream_kinds(leaf)
        )
    }
    allowed = ("SpreadSplits/ReshufflePerKey/GroupByKey", "WriteBadRows/Write")
    assert not {leaf for leaf in pickled if not any(part in leaf for part in allowed)}


# Where each form brings a person's rows together, and in what they travel there.
BOUNDING = {
    "statistic": ("Estimate/Device/Bound/Bring persons together", "CandidateBlock"),
    "memoized": ("Estimate/Device/Bound/Bring persons together", "CandidateBlock"),
    "mean": ("Estimate/Device/Bound/Bring persons together", "CandidateBlock"),
    "bandit": ("Estimate/Device/Bound/Bring persons together", "CandidateBlock"),
    "user-mean": (
        "Estimate/Reduce/Bring persons together/GroupByKey",
        "PersonSums",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_raw_rows_are_exchanged_only_to_find_each_person(graphs: Graphs, name: str) -> None:
    graph = graphs[name]
    raw = {leaf for kind in RAW for leaf in exchanged(graph, kind)}
    if name not in BOUNDING:
        assert not raw
        assert not crossing(graph) & RAW
        return
    place, kind = BOUNDING[name]
    assert raw == {place}
    assert crossing(graph) & RAW == {kind}


def test_reports_stay_inside_where_only_sums_leave(graphs: Graphs) -> None:
    for name in ("statistic", "memoized", "large", "mean", "bandit"):
        assert not exchanged(graphs[name], "ReportBlock")
        assert not crossing(graphs[name]) & {"ReportBlock", "ReportPiece", "ShuffledBlock"}


def test_reports_cross_once_where_they_are_permuted_together(graphs: Graphs) -> None:
    assert exchanged(graphs["global"], "ReportPiece") == {"Estimate/Collector/Shuffle/Exchange 0"}
    assert not exchanged(graphs["global"], "ReportBlock")
    assert exchanged(graphs["batch"], "ReportBlock") == {
        "Estimate/Collector/Shuffle/Bring together"
    }
    for name in ("global", "batch"):
        assert not exchanged(graphs[name], "ShuffledBlock")
        assert "ShuffledBlock" not in crossing(graphs[name])


def test_small_however_large_the_domain(graphs: Graphs) -> None:
    assert len(graphs["large"].bytes) < 1_000_000
    assert b"%d" % (LARGE - 1) not in graphs["large"].everything
    assert max(len(graph.bytes) for graph in graphs.values()) < 1_000_000


def test_workers_are_containers_and_nothing_of_the_launcher_is_staged(graphs: Graphs) -> None:
    for graph in graphs.values():
        environments = graph.proto.components.environments.values()
        assert {e.urn for e in environments} == {"beam:env:docker:v1"}
        staged = b" ".join(d.SerializeToString() for e in environments for d in e.dependencies)
        assert b"beam_ldp" not in staged  # the image has it: docs/dataflow.md
