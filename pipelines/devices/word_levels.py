"""A search that devices answer: its first question, and what a device makes of a level's."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from apache_beam.io.filesystems import FileSystems
from rich.console import Console

from beam_ldp.pipelines.devices.publishing import need_a_row_of_each, refuse_rows, write_question
from beam_ldp.pipelines.devices.values import MANY, DeviceValues, is_there
from beam_ldp.pipelines.programs import DONE
from beam_ldp.pipelines.usage import heavy_hitters, randomize
from beam_ldp.questions.base import Choice
from beam_ldp.questions.heavy_hitters import HeavyWords, PublishedWords, WordQuestion, search_of
from beam_ldp.randomizers.identity import ONE_ROW_DECLARED, ReleaseIdentity, one_row_of
from beam_ldp.release import outputs
from beam_ldp.release.binding import FilesLook
from beam_ldp.release.devices.release_file import (
    RELEASE_FILE,
    ReleaseFile,
    load_release,
    release_of_level,
)
from beam_ldp.release.job import checked_job, declared, need, settings_from, with_files
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.job import checked as checked_settings
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.composite import bounding_of
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.word_levels import WordsOfLevel

# The first question -------------------------------------------------------------------------------


def publish(given: Arguments, console: Console) -> int:
    """Write the first question of a search, for devices; nobody's rows are read.

    Raises:
        SettingError, OutputError: before anything is written.
    """
    usage = heavy_hitters.USAGE
    need(usage, given, "privacy.delta", "release.dataset", "release.id", "output.folder")
    _check_published(given)
    given = Arguments({"question": {"assignment": "visible"}}, []).over(given)
    need(usage, given, "privacy.local_epsilon")
    question = declared(usage, given, WordQuestion)
    job = checked_job(usage, given, question)
    run = Run(usage, job, question.bind(job, FilesLook(job)))
    need_a_row_of_each(job.people)
    protocol = run.choice.mechanism
    asked = PublishedWords.first(
        run.asked.columns[0], protocol, job.min_reports, job.privacy.honest_fraction
    )
    unit = job.charge.privacy_unit
    try:
        search = ReleaseIdentity(
            job.dataset,
            job.noise.id or "",
            bounding=bounding_of(job.people, unit),
            privacy_unit=unit,
        )
        release = release_of_level(asked, search)
    except ValueError as error:
        raise SettingError(str(error)) from None
    levels = len(protocol.levels)
    write_question(run, release, console, f"the question of level 1 of {levels}")
    return DONE


def _check_published(given: Arguments) -> None:
    """A SettingError for what does not go with devices that answer."""
    refuse_rows(heavy_hitters.USAGE, given, "a search that reads rows")
    if given["question"].get("assignment") == "secret":
        raise SettingError(
            "--assignment must be visible with --publish: whoever receives a report of a device "
            "sees which level was asked when it came"
        )


# What a device makes of a level's question --------------------------------------------------------

SEARCH_FILE = "search.json"
_TAKEN = {
    "question": {"column", "bad_rows"},
    "people": {"id"},
    "privacy": {"max_local_epsilon", "trust_shuffler"},
    "release": {"dataset", "id", "key_file", "release", "log", "log_key_file"},
    "output": {"folder", "format"},
    "mechanism": set[str](),
    "shuffle": set[str](),
}


class WordValues(DeviceValues):
    """Words, asked about one level of a search.

    The output is this machine's folder of one search: reports of a level stand in a folder of their
    own, and another search of the same name, or another question of a level that was answered, is
    refused. Raises SettingError where that is so, and for flags that a question has decided.
    """

    unwritten = "nobody here is asked at this level"

    def __init__(self, given: Arguments, release: ReleaseFile) -> None:
        usage = randomize.USAGE
        need(usage, given, "source.paths", "people.id", "release.key_file", "output.folder")
        for home, taken in _TAKEN.items():
            for name in sorted(set(given[home]) - taken):
                raise SettingError(
                    f"{usage.flag_of(f'{home}.{name}')}: --release says it, or it does not go "
                    "with a search"
                )
        path = given["release"]["release"]
        if not isinstance(release.asked, PublishedWords):
            raise SettingError(f"--release {path}: not a question that was published for devices")
        self.asked, self.release = release.asked, release
        job = self._job(given)
        self._check_names(job, path)
        self.folder = self._folder(given["output"]["folder"].rstrip("/"))
        job = replace(job, output=replace(job.output, folder=self.folder))
        column = job.question.column[0]
        bad_rows = "dead_letter" if job.bad_rows_leave_a_trace else "other"
        words = HeavyWords(column, column, bad_rows, declared=job.question)
        self.run = Run(randomize.USAGE, job, words)
        self.run.choice = Choice(self.asked.protocol, MANY, None, math.nan)

    def _job(self, given: Arguments) -> Job:
        """What was told, with what the question says."""
        usage, protocol = randomize.USAGE, self.asked.protocol
        decided: dict[str, dict[str, Any]] = {
            "privacy": {"local_epsilon": protocol.local_epsilon, "model": "local"},
            "shuffle": {"min_reports": 1},
            "release": {
                "dataset": given["release"].get("dataset") or self.identity.dataset,
                "id": given["release"].get("id") or self.identity.release_id,
            },
        }
        given = Arguments(decided, []).over(given)
        told = given["question"]
        if told.get("bad_rows") == "zero":
            raise SettingError("--bad-rows of words must be dead-letter or other")
        question = WordQuestion(
            column=tuple(told.get("column") or (self.asked.column,)),
            max_bytes=protocol.code.max_bytes,
            code_bits=protocol.code.num_bits,
            assignment="visible",
            **({"bad_rows": told["bad_rows"]} if "bad_rows" in told else {}),
        )
        if len(question.column) > 1:
            raise SettingError("--column must name one column")
        settings = settings_from(given, usage, question, Job)
        return with_files(checked_settings(settings))

    def _check_names(self, job: Job, path: str) -> None:
        identity = self.identity
        for flag, told, said in (
            ("--dataset", job.noise.dataset, identity.dataset),
            ("--release-id", job.noise.id, identity.release_id),
        ):
            if told != said:
                raise SettingError(f"{flag} {told}: {path} is of {said!r}")
        if identity.bounding not in (ONE_ROW_DECLARED, one_row_of(job.people.id or "")):
            raise SettingError(
                f"--user-id {job.people.id}: the search has the rule {identity.bounding!r}"
            )

    def _folder(self, root: str) -> str:
        """Where the reports of this level go; refuses what would cost its people twice."""
        folder, search = f"{root}/level-{self.asked.level + 1}", self._search
        known = f"{root}/{SEARCH_FILE}"
        if is_there(known):
            with FileSystems.open(known, "application/octet-stream") as file:
                if json.loads(file.read()) != json.loads(search):
                    raise SettingError(
                        f"--output {root} holds answers to another search, or to another plan "
                        "under its name: people who answer both pay twice"
                    )
        elif is_there(root):
            raise SettingError(f"--output {root} exists, and is no folder of answers to a search")
        if is_there(folder):
            same = load_release(f"{folder}/{RELEASE_FILE}").terms.digest == self.terms_digest
            raise SettingError(
                f"--output {root}: this level was answered before"
                + (
                    "; send those reports again, they are what a new run would draw"
                    if same
                    else " as another question: its people have spent what they promised"
                )
            )
        return folder

    @property
    def terms_digest(self) -> bytes:
        """What the envelopes carry."""
        return self.release.terms.digest

    @property
    def _search(self) -> bytes:
        """What stays the same from level to level."""
        told = {
            "search": search_of(self.identity).to_json(),
            "plan": self.asked.protocol.config_digest().hex(),
        }
        return outputs.as_json(told)

    def begin(self) -> None:
        """Remember the search, before anything of it is drawn."""
        root = self.folder.rsplit("/", 1)[0]
        if not is_there(f"{root}/{SEARCH_FILE}"):
            if not FileSystems.exists(root):
                FileSystems.mkdirs(root)
            with FileSystems.create(f"{root}/{SEARCH_FILE}", "application/octet-stream") as file:
                file.write(self._search)

    @property
    def noise(self) -> NoiseSource:
        """Of this level's reports: a round of the search."""
        return NoiseSource.told(self.job.noise, self.identity, number=self.asked.level)

    @property
    def side(self) -> WordsOfLevel:
        """What runs on the device."""
        job, asked = self.job, self.asked
        return WordsOfLevel(
            asked.protocol,
            asked.level,
            asked.rows,
            column=job.question.column[0],
            people=job.people,
            noise=NoiseSource(search_of(self.identity), job.noise.key_file),
            bad_rows="dead_letter" if job.bad_rows_leave_a_trace else "other",
        )
