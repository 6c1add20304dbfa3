"""The pipeline suite that every engine must pass: one function per property, given Beam's flags.

Results travel through files, because most engines run their workers elsewhere.

    @pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
    def test_suite(check, engine, tmp_path):
        check(engine.options, tmp_path)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.randomizers.mean import CoordinateRanges, L2Mean, LInfMean, MeanRandomizer, PrivUnit
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.transforms import (
    BadRowBlock,
    BoundContributions,
    PrivateFrequencies,
    PrivateMean,
    Randomize,
    Release,
    ReleaseToRows,
    Shuffle,
    ShuffledBlock,
    ValueBlock,
)

ORACLE = KRandomizedResponse(4, 2.0)
WIDE = KRandomizedResponse(2**16, 0.1)
NAMES = Domain(("red", "green", "blue"))
GROUPS = Domain(("de", "fr"))
NUM_USERS = 8000
BLOCKS = 8
SECONDS = 240


def run(
    options: list[str],
    folder: Path,
    build: Callable[[beam.Pipeline], beam.PCollection],
    side: dict[str, str] | None = None,
) -> dict[str, list[Any]]:
    """Run a pipeline and read back what it wrote: the main output and the named attributes."""
    pipeline = beam.Pipeline(options=PipelineOptions(options))
    main = build(pipeline)
    outputs = {"main": main} | {name: getattr(main, name) for name in side or {}}
    for name, pcoll in outputs.items():
        target = folder / name
        target.mkdir(exist_ok=True)
        (
            pcoll
            | f"As text {name}" >> beam.Map(as_text)
            | f"One file {name}" >> beam.GroupBy(lambda _: 0)
            | f"Write {name}" >> beam.Map(write, str(target / "out"))
        )
    result = pipeline.run()
    result.wait_until_finish(duration=SECONDS * 1000)
    assert str(result.state) == "DONE", result.state
    found = {}
    for name in outputs:
        path = folder / name / "out"
        found[name] = json.loads(path.read_text()) if path.exists() else []
        path.unlink(missing_ok=True)
    return found


def write(pair: tuple[int, Any], path: str) -> None:
    Path(path).write_text("[" + ",".join(pair[1]) + "]")


def as_text(element: Any) -> str:
    if isinstance(element, tuple) and not hasattr(element, "_fields"):
        return json.dumps([element[0], json.loads(as_text(element[1]))])
    if isinstance(element, Release):
        return json.dumps(
            {
                "value": element.estimate.value.tolist(),
                "error": element.estimate.standard_error.tolist(),
                "num": element.num_reports,
                "batch": element.smallest_batch,
                "crowd": None if element.event is None else element.event.num_reports,
                "window": element.window,
            }
        )
    if isinstance(element, BadRowBlock):
        return json.dumps([row.reason for row in element])
    if isinstance(element, ShuffledBlock):
        return json.dumps(element.reports.tolist())
    if isinstance(element, ValueBlock):
        return json.dumps([element.user_ids.tolist(), element.values.tolist()])
    if hasattr(element, "_fields"):
        return json.dumps([str(field) for field in element])
    return json.dumps(vars(element))


def make_block(i: int) -> ValueBlock:
    """Block i: values 0, 1, 2, 3 in shares of .4, .3, .2, .1, every person with two rows."""
    size = NUM_USERS // BLOCKS
    values = np.repeat(np.arange(4), [size * 4 // 10, size * 3 // 10, size * 2 // 10, size // 10])
    rows = np.arange(size) + i * size
    return ValueBlock(values, rows // 2, source="made", positions=rows)


def blocks(pipeline: beam.Pipeline) -> beam.PCollection:
    return (
        pipeline
        | "Numbers" >> beam.Create(list(range(BLOCKS)))
        | "Spread" >> beam.Reshuffle()
        | "Make" >> beam.Map(make_block).with_output_types(ValueBlock)
    )


def check_estimate(release: dict[str, Any], num: int) -> None:
    """Within 5 of its own standard errors: fails by chance less than once in 10**5 runs."""
    assert release["num"] == num
    truth = np.array([0.4, 0.3, 0.2, 0.1])
    assert (np.abs(np.array(release["value"]) - truth) < 5 * np.array(release["error"])).all()


def frequencies_in_every_form(options: list[str], folder: Path) -> None:
    for output, scope in (("statistic", "batch"), ("reports", "batch"), ("reports", "global")):
        stage = PrivateFrequencies(ORACLE, min_reports=5000, output=output, scope=scope)
        found = run(options, folder, lambda p, s=stage: blocks(p) | s, {"withheld": ""})
        (release,) = found["main"]
        check_estimate(release, NUM_USERS)
        assert release["crowd"] == NUM_USERS and not found["withheld"]


def too_few_are_withheld(options: list[str], folder: Path) -> None:
    for output, scope in (("statistic", "batch"), ("reports", "batch"), ("reports", "global")):
        stage = PrivateFrequencies(ORACLE, min_reports=8001, output=output, scope=scope)
        found = run(options, folder, lambda p, s=stage: blocks(p) | s, {"withheld": ""})
        assert found["main"] == []
        (notice,) = found["withheld"]
        assert (notice["num_reports"], notice["min_reports"]) == (NUM_USERS, 8001)


def one_row_per_person(options: list[str], folder: Path) -> None:
    found = run(options, folder, lambda p: blocks(p) | BoundContributions())["main"]
    ids = sorted(user_id for block in found for user_id in block[0])
    assert ids == list(range(NUM_USERS // 2))
    stage = PrivateFrequencies(ORACLE, min_reports=100, one_report_per="user")
    (release,) = run(options, folder, lambda p: blocks(p) | stage)["main"]
    check_estimate(release, NUM_USERS // 2)


def memoized_estimates_are_identical(options: list[str], folder: Path) -> None:
    """Two runs, and the same computation without Beam, agree to the last bit."""
    key = bytes(range(32))
    (folder / "key").write_bytes(key)
    stage = PrivateFrequencies(
        ORACLE, min_reports=100, memoize_key_file=str(folder / "key"), release_id="r"
    )
    runs = [run(options, folder, lambda p: blocks(p) | stage)["main"] for _ in range(2)]
    made = [make_block(i) for i in range(BLOCKS)]
    values = np.concatenate([block.values for block in made])
    ids = np.concatenate([block.user_ids for block in made])
    reports = ORACLE.randomize(values, UserRandomness(key, ids, "r"))
    estimate = ORACLE.estimate(ORACLE.accumulate(reports), NUM_USERS)
    assert runs[0] == runs[1]
    assert runs[0][0]["value"] == estimate.value.tolist()


MEAN_KEY = bytes(range(32, 64))
MEAN_USERS = 1200
RANGES = CoordinateRanges((0.0, -5.0, 10.0), (1.0, 5.0, 30.0))


def mean_vectors(dimension: int, start: int, stop: int) -> np.ndarray:
    """Vectors of these users: the same whoever makes them, some of them outside the ball."""
    users = np.arange(start, stop)[:, None]
    return np.sin(users * 0.37 + np.arange(dimension)) / dimension**0.5 * 1.2


def make_vectors(start: int, dimension: int, size: int) -> ValueBlock:
    users = np.arange(start, min(start + size, MEAN_USERS))
    vectors = mean_vectors(dimension, start, min(start + size, MEAN_USERS))
    return ValueBlock(vectors, users, source="made", positions=users)


def mean_of(
    mechanism: MeanRandomizer, folder: Path, size: int, label: str, **how: Any
) -> Callable[[beam.Pipeline], beam.PCollection]:
    """The mean of `mean_vectors` in blocks of `size`, memoized."""
    return lambda pipeline: (
        pipeline
        | f"Starts {label}" >> beam.Create(list(range(0, MEAN_USERS, size)))
        | f"Spread {label}" >> beam.Reshuffle()
        | f"Make {label}"
        >> beam.Map(make_vectors, mechanism.dimension, size).with_output_types(ValueBlock)
        | f"Mean {label}"
        >> PrivateMean(
            mechanism,
            min_reports=1000,
            memoize_key_file=str(folder / "mean key"),
            release_id="r",
            question=label,
            **how,
        )
    )


def memoized_means_are_identical(options: list[str], folder: Path) -> None:
    """Any block size and either form of output, each mechanism: as without Beam, to the last bit.

    One job holds them all: two-response bits of the cube (with ranges) and of the ball, and the
    fixed-point coordinates of PrivUnit.
    """
    (folder / "mean key").write_bytes(MEAN_KEY)
    mechanisms: dict[str, tuple[MeanRandomizer, dict[str, Any]]] = {
        "linf": (LInfMean(3, 8.0), {"ranges": RANGES}),
        "l2": (L2Mean(20, 6.0), {}),
        "PrivUnit": (PrivUnit(20, 4.0), {}),
    }

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        releases = []
        for name, (mechanism, how) in mechanisms.items():
            for size, output in ((MEAN_USERS, "statistic"), (77, "statistic"), (190, "reports")):
                label = f"{name} {size} {output}"
                made = mean_of(mechanism, folder, size, label, output=output, **how)(pipeline)
                releases.append(
                    made
                    | f"Name {label}"
                    >> beam.Map(with_name, name).with_output_types(tuple[str, Release])
                )
        return releases | "All means" >> beam.Flatten()

    found = run(options, folder, build)["main"]
    assert sorted(name for name, _ in found) == sorted([*mechanisms] * 3)
    for name, release in found:
        mechanism, how = mechanisms[name]
        vectors = mean_vectors(mechanism.dimension, 0, MEAN_USERS)
        ranges = how.get("ranges")
        inside = vectors if ranges is None else ranges.encode(vectors)
        rng = UserRandomness(MEAN_KEY, np.arange(MEAN_USERS), "r")
        reports = mechanism.randomize(inside, rng)
        direct = mechanism.estimate(mechanism.accumulate(reports), MEAN_USERS)
        direct = direct if ranges is None else ranges.decode(direct)
        assert release["value"] == direct.value.tolist()
        assert release["error"] == direct.standard_error.tolist()
        assert (release["num"], release["crowd"]) == (MEAN_USERS, MEAN_USERS)


def with_name(release: Release, name: str) -> tuple[str, Release]:
    return name, release


def no_draw_is_shared(options: list[str], folder: Path) -> None:
    """Equal values in every block: two equal blocks of 16-bit reports would be a shared draw."""
    found = run(
        options,
        folder,
        lambda p: blocks(p) | Randomize(WIDE) | Shuffle(WIDE, 1, scope="batch"),
    )["main"]
    reports = np.array([report for block in found for report in block])
    assert len(reports) == NUM_USERS
    pairs = NUM_USERS**2 / 2 / 2**16  # of equal reports, expected; shared draws give far more
    counts = np.bincount(reports)
    equal = int((counts * (counts - 1) // 2).sum())
    assert abs(equal - pairs) < 6 * pairs**0.5 + 20


def rows_groups_and_dead_letters(options: list[str], folder: Path) -> None:
    (folder / "names.txt").write_text("\n".join(NAMES.values))
    rows = [
        {"colour": ("red", "green", "blue", "mauve")[i % 4], "land": ("de", "fr")[i % 2], "id": i}
        for i in range(2000)
    ]
    rows += [{"colour": None, "land": "de", "id": 5000}, {"colour": "red", "land": "de"}]
    stage = PrivateFrequencies(
        ORACLE,
        domain=str(folder / "names.txt"),
        column="colour",
        user_id_column="id",
        groups=GROUPS,
        group_column="land",
        min_reports=900,
    )
    found = run(
        options, folder, lambda p: p | "Rows" >> beam.Create(rows) | stage, {"bad_rows": ""}
    )
    releases = dict(found["main"])
    assert {name: release["num"] for name, release in releases.items()} == {"de": 1000, "fr": 1000}
    for name, truth in (("de", [0.5, 0, 0.5, 0]), ("fr", [0, 0.5, 0, 0.5])):
        error = np.array(releases[name]["error"])
        assert (np.abs(np.array(releases[name]["value"]) - truth) < 5 * error).all()
    reasons = [reason for block in found["bad_rows"] for reason in block]
    assert sorted(reasons) == ["no user id", "null"]


def windows_and_rows(options: list[str], folder: Path) -> None:
    stage = PrivateFrequencies(ORACLE, min_reports=1000)
    found = run(
        options,
        folder,
        lambda p: (
            blocks(p)
            | "Time" >> beam.Map(in_time).with_output_types(ValueBlock)
            | "Minutes" >> beam.WindowInto(beam.window.FixedWindows(60))
            | stage
            | ReleaseToRows(NAMES)
            | "All time" >> beam.WindowInto(beam.window.GlobalWindows())
        ),
    )["main"]
    assert len(found) == 2 * 4
    assert {(row[2], row[3]) for row in found} == {
        ("Timestamp(0)", "Timestamp(60)"),
        ("Timestamp(60)", "Timestamp(120)"),
    }
    assert {row[4] for row in found} == {"red", "green", "blue", "other"}


def in_time(block: ValueBlock) -> beam.window.TimestampedValue:
    return beam.window.TimestampedValue(block, 30 + 60 * (int(block.positions[0]) >= NUM_USERS / 2))


SUITE: tuple[Callable[[list[str], Path], None], ...] = (
    frequencies_in_every_form,
    too_few_are_withheld,
    one_row_per_person,
    memoized_estimates_are_identical,
    memoized_means_are_identical,
    no_draw_is_shared,
    rows_groups_and_dead_letters,
    windows_and_rows,
)
