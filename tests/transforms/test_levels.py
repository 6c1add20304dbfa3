"""One public report for several levels, through Beam and through files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.level_keys import LevelKey
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms import (
    Aggregate,
    AtLevel,
    EstimateFrequencies,
    LeveledBlock,
    MismatchError,
    Randomize,
    RandomizeForLevels,
    ReadReports,
    Shuffle,
    StageError,
    WriteReports,
)
from beam_ldp.transforms.device.keyed import NoiseSource
from tests.identities import identity
from tests.transforms.helpers import TRUTH, blocks_of, run, truth_values, value_blocks

pytestmark = pytest.mark.pipeline

SECRET = bytes(range(32))
LEVELS = (3.0, 1.0, 0.5)
ORACLE = RefinableResponse.of_levels(5, LEVELS)


def terms_of(name: str = "week-47", **how: bool) -> ReleaseTerms:
    week = identity(name, mechanism=ORACLE.config_digest().hex()).committed(SECRET)
    return ReleaseTerms(ORACLE, week, **how)


TERMS = terms_of()


@pytest.fixture
def keys(tmp_path):
    """The secret, and a key file for each level, by name."""
    found = {}
    for name, content in (
        ("secret", SECRET),
        *(
            (str(e), LevelKey.derived(SECRET, TERMS.identity, ORACLE, e).to_bytes())
            for e in (3.0, 1.0)
        ),
        ("other", LevelKey.derived(SECRET, terms_of("w8").identity, ORACLE, 1.0).to_bytes()),
    ):
        path = tmp_path / f"{name}.key"
        path.write_bytes(content)
        path.chmod(0o600)
        found[name] = str(path)
    return found


def released(pipeline, reports, mechanism):
    shuffled = reports | "Shuffle" >> Shuffle(mechanism, 100)
    sums = shuffled | "Aggregate" >> Aggregate(mechanism)
    return sums | "Estimate" >> EstimateFrequencies(mechanism)


def test_every_reader_estimates_the_same_truth_at_their_own_error(tmp_path, keys):
    """Through files: the same bytes, read at three levels. A false alarm in 15 runs of 10,000."""
    n = 20_000
    values = np.random.default_rng(3).permutation(truth_values(n))

    def write(pipeline):
        blocks = blocks_of(pipeline, value_blocks(values, 5000))
        hidden = blocks | RandomizeForLevels(TERMS, keys["secret"])
        return hidden | WriteReports(str(tmp_path / "reports"), TERMS)

    run(write)
    errors = []
    for key in (None, "1.0", "3.0"):
        at_level = AtLevel(TERMS, key and keys[key])

        def read(pipeline, at_level=at_level):
            read = pipeline | ReadReports(f"{tmp_path}/reports", TERMS, keep_ids=True)
            return released(pipeline, read | at_level, at_level.mechanism)

        (found,) = run(read)
        assert found.num_reports == n
        assert found.mechanism["local_epsilon"] == at_level.mechanism.local_epsilon
        estimate = found.estimate
        assert (abs(estimate.value - TRUTH) < 4 * estimate.standard_error).all()
        errors.append(estimate.standard_error.max())
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2]


def test_anybody_reads_them_as_any_other_reports(tmp_path, keys):
    def write(pipeline):
        blocks = blocks_of(pipeline, value_blocks(truth_values(2000), 500))
        hidden = blocks | RandomizeForLevels(TERMS, keys["secret"])
        return hidden | WriteReports(str(tmp_path / "reports"), TERMS)

    run(write)
    (found,) = run(lambda p: released(p, p | ReadReports(f"{tmp_path}/reports", TERMS), ORACLE))
    assert found.num_reports == 2000 and found.mechanism["local_epsilon"] == 0.5


def test_memoized_reports_are_the_same_bytes_again_and_other_values_have_other_ids(keys):
    values = truth_values(1000)
    noise = NoiseSource(TERMS.identity, keys["secret"])

    def sent(values, **how):
        found = run(
            lambda p: (
                blocks_of(p, value_blocks(values, 300, ids=True))
                | RandomizeForLevels(TERMS, keys["secret"], **how)
            )
        )
        return {
            (row.tobytes(), int(report))
            for block in found
            for row, report in zip(block.ids, block.reports)
        }

    first = sent(values, noise=noise)
    assert first == sent(values, noise=noise) and len(first) == 1000
    assert not {i for i, _ in first} & {i for i, _ in sent((values + 1) % 5, noise=noise)}
    assert not {i for i, _ in sent(values)} & {i for i, _ in sent(values)}  # fresh ones are new


def test_what_does_not_fit_is_refused_by_name(tmp_path, keys):
    with pytest.raises(ValueError, match=r"key_file .*other.key is of release 'w8'"):
        AtLevel(TERMS, keys["other"])
    with pytest.raises(ValueError, match=r"key_file .*secret.key is damaged"):
        AtLevel(TERMS, keys["secret"])
    open_key = tmp_path / "open.key"
    open_key.write_bytes(b"x" * 40)
    open_key.chmod(0o644)
    with pytest.raises(ValueError, match="must be readable by its owner alone"):
        AtLevel(TERMS, str(open_key))
    with pytest.raises(ValueError, match="key_file must be readable on every worker"):
        AtLevel(TERMS, str(tmp_path / "none.key"))
    plain = RefinableResponse(5, 0.5)
    week = identity("week-47", mechanism=plain.config_digest().hex())
    with pytest.raises(ValueError, match="of a RefinableResponse of two levels or more"):
        RandomizeForLevels(ReleaseTerms(plain, week), keys["secret"])
    with pytest.raises(ValueError, match="noise must be memoized under level_secret"):
        RandomizeForLevels(TERMS, keys["secret"], noise=NoiseSource(TERMS.identity, keys["other"]))
    with pytest.raises(ValueError, match=r"terms.simulated must be true exactly"):
        RandomizeForLevels(TERMS, keys["secret"], noise=NoiseSource(seed=1))
    with pytest.raises(StageError, match="AtLevel"):
        run(lambda p: blocks_of(p, value_blocks(truth_values(9), 9)) | AtLevel(TERMS))
    with pytest.raises(ValueError, match="keep_ids must be false"):
        ReadReports("x", TERMS, groups=["a", "b"], keep_ids=True)


def test_public_reports_that_nobody_could_refine_are_not_written_among_them(tmp_path):
    """`Randomize` draws their shifts from words that nobody keeps."""

    def write(pipeline):
        reports = blocks_of(pipeline, value_blocks(truth_values(9), 9)) | Randomize(ORACLE)
        return reports | WriteReports(str(tmp_path / "reports"), TERMS)

    with pytest.raises(Exception, match="are those of RandomizeForLevels") as caught:
        run(write)
    assert MismatchError.__name__ in repr(caught.value) or isinstance(caught.value, MismatchError)


def test_what_travels_to_workers_holds_paths_and_no_secret(keys):
    own = LevelKey.derived(SECRET, TERMS.identity, ORACLE, 1.0).secret
    made, read = RandomizeForLevels(TERMS, keys["secret"]), AtLevel(TERMS, keys["1.0"])
    for stage, path in ((made, b"secret.key"), (read, b"1.0.key")):
        travels = pickle.dumps(stage._doer)
        assert path in travels
        for secret in (SECRET, own):
            assert secret not in travels and secret.hex().encode() not in travels


def test_ids_travel_in_blocks():
    from apache_beam.coders import registry

    block = LeveledBlock(np.arange(3, dtype=np.uint8), np.ones((3, 16), np.uint8), b"d", b"o")
    coder = registry.get_coder(LeveledBlock)
    back = coder.decode(coder.encode(block))
    np.testing.assert_array_equal(back.ids, block.ids)
    np.testing.assert_array_equal(back.reports, block.reports)
    assert (back.mechanism_digest, back.origin, back.groups) == (b"d", b"o", None)
