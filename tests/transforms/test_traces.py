"""What memoized reports leave behind, so that a second publication is told from the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beam_ldp.ledger.participants import DamagedTagsError, LocalFiles, compare, write_reports
from beam_ldp.protocols import Box, plan_user_mean
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import PrivateFrequencies, Randomize
from beam_ldp.transforms.device.keyed import (
    DigestReports,
    LeaveReports,
    NoiseSource,
    PeopleFolder,
    publication_folder,
)
from beam_ldp.transforms.user_means import PrivateUserMean
from tests.identities import identity
from tests.transforms.helpers import ORACLE, blocks_of, run, truth_values, value_blocks

pytestmark = pytest.mark.pipeline

VALUES = truth_values(600)


@pytest.fixture
def keys(tmp_path):
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "people").write_bytes(bytes(range(32, 64)))
    return tmp_path


def noise_of(keys, **named) -> NoiseSource:
    return NoiseSource(identity(**named), str(keys / "key"))


def traces_of(pipeline, values, noise, size=100, ids=True):
    blocks = blocks_of(pipeline, value_blocks(values, size, ids=ids))
    return (blocks | Randomize(ORACLE, noise=noise)).traces


def digest(values, noise, size=100):
    return run(lambda p: traces_of(p, values, noise, size) | DigestReports(noise.identity))


# The digest ---------------------------------------------------------------------------------------


def test_one_digest_however_the_people_are_cut_into_blocks(keys):
    noise = noise_of(keys)
    (one,), (other,) = digest(VALUES, noise), digest(VALUES, noise, 7)
    assert one == other and one.startswith(b"set1:")


def test_another_value_person_or_release_is_another_digest(keys):
    changed = VALUES.copy()
    changed[3] = (changed[3] + 1) % 5
    found = [
        digest(values, noise)[0]
        for values, noise in [
            (VALUES, noise_of(keys)),
            (VALUES[:-1], noise_of(keys)),
            (VALUES, noise_of(keys, columns=("c",))),
        ]
    ]
    assert len(set(found)) == len(found)
    reports = {
        one[0] for one in (digest(changed, noise_of(keys, release=f"r{i}")) for i in range(4))
    }
    same = {digest(VALUES, noise_of(keys, release=f"r{i}"))[0] for i in range(4)}
    assert reports != same  # of four releases the changed report differs in one at least


def test_fresh_noise_leaves_no_trace():
    def build(pipeline):
        reports = blocks_of(pipeline, value_blocks(VALUES, 100)) | Randomize(ORACLE)
        assert not hasattr(reports, "traces")
        return reports

    run(build)


def test_composites_hand_traces_on(keys):
    how = {"noise": Noise(key_file=str(keys / "key"), id="r", dataset="d")}
    stages = {
        "frequencies": PrivateFrequencies(
            ORACLE, min_reports=9, people=People(id="user id"), question="c", **how
        ),
        "user means": PrivateUserMean(
            plan_user_mean(600, 20, Box(CoordinateRanges(0, 10)), local_epsilon=4.0, sigma=0.1),
            min_reports=9,
            **how,
        ),
    }
    for name, stage in stages.items():
        values = VALUES if name == "frequencies" else VALUES[:, None].astype(float)

        def build(pipeline, stage=stage, values=values):
            return (blocks_of(pipeline, value_blocks(values, 200, ids=True)) | stage).traces

        hashed = sum(len(trace.hashes) for trace in run(build))
        assert hashed >= 600, name


# Publications, compared ---------------------------------------------------------------------------


def leave(keys, publication, values, ids=None, noise=None):
    folder = PeopleFolder(str(keys / "store"), str(keys / "people"), "them", "monday")
    ids = np.arange(len(values)) if ids is None else ids
    blocks = [
        block
        for part in np.array_split(np.arange(len(values)), 3)
        for block in value_blocks(values[part], 100)
        for block in [type(block)(block.values, ids[part])]
    ]

    def build(pipeline):
        reports = blocks_of(pipeline, blocks) | Randomize(ORACLE, noise=noise or noise_of(keys))
        return reports.traces | LeaveReports(folder, publication)

    paths = run(build)
    place = paths[0].rpartition("/")[0]
    assert place.endswith(publication_folder("", publication))
    return place


def test_people_who_came_and_went_are_counted_and_nobody_changed(keys):
    first = leave(keys, "one", VALUES[:90], np.arange(90))
    second = leave(keys, "two", VALUES[20:90], np.arange(20, 90))
    found = compare(LocalFiles(), [first, second])
    assert found.groups == {0: {(0,): 20, (0, 1): 70}}
    assert (found.changed, found.people) == (0, (90, 70))


def test_a_changed_report_shows(keys):
    changed = VALUES[:90].copy()
    changed = (changed + 1) % 5
    found = compare(LocalFiles(), [leave(keys, "one", VALUES[:90]), leave(keys, "two", changed)])
    assert found.groups == {0: {(0, 1): 90}} and 30 < found.changed <= 90


def test_an_integer_and_its_text_are_one_person(keys):
    texts = np.array([str(i) for i in range(60)], dtype=object)
    first, second = leave(keys, "one", VALUES[:60]), leave(keys, "two", VALUES[:60], texts)
    assert compare(LocalFiles(), [first, second]).groups == {0: {(0, 1): 60}}


def test_what_cannot_be_compared_is_none(keys):
    first = leave(keys, "one", VALUES[:50])
    assert compare(LocalFiles(), [first, str(keys / "store" / "nothing")]) is None
    assert compare(LocalFiles(), []) is None
    (keys / "people").write_bytes(bytes(32))
    assert compare(LocalFiles(), [first, leave(keys, "two", VALUES[:50])]) is None


@pytest.mark.parametrize("damage", ["cut", "changed", "renamed"])
def test_a_damaged_file_is_never_counted(keys, damage):
    place = Path(leave(keys, "one", VALUES[:50]))
    file = min(place.iterdir())
    content = file.read_bytes()
    if damage == "renamed":
        file.rename(file.with_name("63" + file.name[2:]))
    else:
        file.write_bytes(content[:-1] if damage == "cut" else content[:-1] + b"!")
    with pytest.raises(DamagedTagsError, match="damaged"):
        compare(LocalFiles(), [str(place)])


def test_a_tag_with_two_reports_in_one_publication_is_not_counted(tmp_path):
    tags, hashes = np.array([5, 5], dtype=np.uint64), np.array([1, 2], dtype=np.uint64)
    write_reports(LocalFiles(), str(tmp_path), 0, bytes(8), tags, hashes)
    assert compare(LocalFiles(), [str(tmp_path)]) is None
