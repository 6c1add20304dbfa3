"""A published mean in shares: its question, and what an edge makes of it for its people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from beam_ldp.pipelines.devices.publishing import need_a_row_of_each, refuse_rows, write_question
from beam_ldp.pipelines.devices.values import (
    DeviceValues,
    check_new,
    refuse_decided,
    release_of,
)
from beam_ldp.pipelines.programs import DONE
from beam_ldp.pipelines.usage import mean, randomize
from beam_ldp.questions.means import MeanQuestion, PublishedShares
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.release.binding import FilesLook, run_of
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job import checked_job, declared, need
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.composite import bounding_of

# The question -----------------------------------------------------------------------------------


def publish(given: Arguments, console: Console) -> int:
    """Write the question, for devices; nobody's rows are read.

    Raises:
        SettingError, OutputError: before anything is written.
    """
    usage = mean.USAGE
    refuse_rows(usage, given, "a mean of rows")
    need(usage, given, "question.column", "privacy.delta", "release.dataset", "release.id",
         "output.folder")  # fmt: skip
    question = declared(usage, given, MeanQuestion)
    job = checked_job(usage, given, question)
    need_a_row_of_each(job.people)
    run = Run(usage, job, question.bind(job, PublishedLook(job)))
    if run.choice.mechanism.protects_alone:
        raise SettingError(
            f"--publish is for shares, and {type(run.choice.mechanism).__name__} sends none: they "
            "are of vectors of bounded Euclidean length (--norm l2 --radius R) with a central "
            "target and --trust-shuffler; else `beam-ldp randomize` writes the question"
        )
    write_question(run, release_of(run), console)
    return DONE


class PublishedLook(FilesLook):
    """Columns are those of the flag, for no rows are here."""

    def coordinates(self, columns: Sequence[str], dimension: int | None) -> tuple[list[str], int]:
        names = [name.strip() for part in columns for name in part.split(",") if name.strip()]
        if len(set(names)) < len(names) or any(set("*?[") & set(name) for name in names):
            raise SettingError("--column must name each column once, without globs, with --publish")
        if dimension is not None and len(names) > 1 and dimension != len(names):
            raise SettingError("--dimension is for a single column of lists")
        return names, dimension or len(names)


# What an edge makes of it -----------------------------------------------------------------------

# What goes with the release.json of shares: everything else is in it, or means nothing here.
_TAKEN = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column", "bad_rows"},
    "people": {"id", "one_row"},
    "privacy": {"trust_shuffler"},
    "release": {"release"},
    "output": {"folder", "format"},
    "": {"only_plan"},
}


class ShareValues(DeviceValues):
    """Vectors of people who trust whoever collects, as a published question asks for them.

    Args:
        given: what was asked for.
        release: what was published.

    Raises:
        SettingError: where the flags say what the release has decided, or do not fit; without
            `--trust-shuffler`, since a file that somebody published declares nothing for these
            people.
    """

    def __init__(self, given: Arguments, release: ReleaseFile) -> None:
        asked = release.asked
        assert isinstance(asked, PublishedShares)
        usage = randomize.USAGE
        refuse_decided(given, _TAKEN, "shares")
        need(usage, given, "source.paths", "output.folder")
        path = given["release"]["release"]
        if release.terms.simulated:
            raise SettingError(f"--release {path}: a simulation, which people do not take part in")
        if not given["privacy"].get("trust_shuffler"):
            raise SettingError(
                f"--release {path} asks for shares, which protect nobody unless whoever collects "
                "them is trusted: declare it with --trust-shuffler"
            )
        check_new(given["output"]["folder"])
        self.release = release
        told = self._told(given, asked)
        question = declared(usage, told, MeanQuestion)
        self.run = run_of(usage, told, question)
        found, rule = self.run.declared.labels, bounding_of(self.job.people)
        assert release.coordinates is not None
        if found != release.coordinates.names:
            raise SettingError(f"--column: {path} is about {', '.join(release.coordinates.names)}")
        if rule != self.identity.bounding:
            raise SettingError(
                f"--user-id: {path} has the rule {self.identity.bounding!r}, and not {rule!r}"
            )

    def _told(self, given: Arguments, asked: PublishedShares) -> Arguments:
        """The flags, with what the question says."""
        randomizer, identity = self.release.terms.randomizer, self.identity
        assert isinstance(randomizer, MeanRandomizer)
        told: dict[str, dict[str, Any]] = {
            "question": {
                "column": asked.columns,
                "norm": randomizer.norm,
                "radius": randomizer.radius,
                "outside": randomizer.clipping,
                **given["question"],
            },
            "privacy": {
                "epsilon": asked.epsilon,
                "delta": asked.delta,
                "honest_fraction": asked.honest_fraction,
                "expected_users": asked.min_reports,  # the noise is in release.json
            },
            "shuffle": {"min_reports": asked.min_reports},
            "release": {"dataset": identity.dataset, "id": identity.release_id},
        }
        if self.release.sampling == "fixed" and given["people"].get("id"):
            told["question"]["one_row_each"] = True
        if len(asked.columns) < randomizer.dimension:
            told["question"]["dimension"] = randomizer.dimension
        plain = replace(given, settings={**given.settings, "release": {}})
        return Arguments(told, []).over(plain)
