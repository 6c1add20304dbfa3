"""The folder of a bandit that serves people: what is public of it, and nothing else.

    state.json             terms and what is known; replaced in one step
    batch-1.json           what the batch asks: plays, people of each, local epsilon
    batch-1.slots.parquet  which visitor in turn gets which play
    batch-1.release.json   the same for devices that randomize themselves, unless the server is
                           trusted with rewards
    batch-1/               what was released of it: an output folder, which appears whole or not

The folders of the batches are what counts. Everything else follows from the terms and from them, so
that whoever opens the service after a kill, at any moment, completes it. Where the assignment of
people to actions must be secret, `batch-1.slots.parquet` lies in `SERVICE.private`, for the owner
alone. There a run works too, and leaves what it was killed over: a batch is released there first,
once, and then shown in the service.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, BatchTerms, Heard, ServiceTerms
from beam_ldp.decisions.rewards import RewardOnDevices, Rewards
from beam_ldp.decisions.usage import ADVANCE, RewardQuestion
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job import absolute, checked_job, need, section_from, with_files
from beam_ldp.release.outputs import MLFLOW, as_json, as_parquet, private_folder, write_private
from beam_ldp.settings import Noise, People, SettingError
from beam_ldp.settings.job import LEDGER_VARIABLE, Job
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms.composite import bounding_of, of_release, release_identity
from beam_ldp.transforms.shuffler.batches import permute

STATE = "state.json"
VERDICT = "verdict.json"
SCHEMA_VERSION = 1
REWARD, PLAY = "reward", "play"
_SAY_WHERE = (LEDGER_VARIABLE, "MLFLOW_TRACKING_URI")


@dataclass(frozen=True)
class ServiceFolder:
    """A service as it stands.

    Attributes:
        path: of the folder.
        terms: of the bandit.
        progress: what was heard so far.
    """

    path: Path
    terms: ServiceTerms
    progress: BanditProgress

    @classmethod
    def open(cls, path: str) -> ServiceFolder:
        """The service of a folder, with whatever a kill left undone done.

        Raises:
            SettingError: if there is none, or if its files are of different histories.
        """
        folder = Path(path)
        terms = _terms_in(folder)
        found = cls(folder, terms, _progress_in(folder, terms))
        found.complete()
        return found

    @classmethod
    def start(cls, path: str, terms: ServiceTerms) -> ServiceFolder:
        """The service with these terms; one that was started before goes on.

        Raises:
            SettingError: if the folder is of another service, or cannot be written.
        """
        folder = Path(path)
        left = Path(private_folder(path))
        if not (folder / STATE).exists() and any(left.glob("batch-*")):
            raise SettingError(
                f"--state {path}: {left} holds batches of another service; choose another folder"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            made = cls(folder, terms, BanditProgress(terms.bandit))
            _write_once(folder / STATE, as_json(made.state()))
        except OSError as error:
            raise SettingError(f"--state {path}: cannot be written ({error.strerror})") from None
        if _terms_in(folder).digest != terms.digest:
            raise SettingError(
                f"--state {path} holds a service of other terms; another one needs another folder, "
                "and another --name"
            )
        return cls.open(path)

    @cached_property
    def asked(self) -> BatchTerms | None:
        """The open batch."""
        return self.terms.asks(self.progress)

    @property
    def best(self) -> str:
        """Name of the action with the largest estimate so far."""
        return self.terms.names[self.progress.best]

    def released(self, number: int) -> Path:
        """Where a batch is shown."""
        return self.path / f"batch-{number}"

    def working(self, number: int) -> Path:
        """Where a run releases a batch, which is shown from there."""
        return self.private / f"batch-{number}"

    @property
    def private(self) -> Path:
        """What is its owner's alone."""
        return Path(private_folder(str(self.path)))

    def slots_file(self, asked: BatchTerms) -> Path:
        """Which visitor in turn gets which play."""
        secret = self.terms.bandit.amplify_over == "batch" and self.terms.bandit.model == "shuffled"
        folder = self.private if secret else self.path
        return folder / f"batch-{asked.number}.slots.parquet"

    def release_file(self, asked: BatchTerms) -> Path:
        """What devices are told of a batch."""
        return self.path / f"batch-{asked.number}.release.json"

    def complete(self) -> None:
        """Write what follows from the terms and the released batches, where it is missing. Raises
        SettingError."""
        try:
            if self.asked is not None:
                self._publish(self.asked)
            _replace(self.path / STATE, as_json(self.state()))
        except OSError as error:
            raise SettingError(
                f"--state {self.path}: cannot be written ({error.strerror})"
            ) from None

    def _publish(self, asked: BatchTerms) -> None:
        told = self.path / f"batch-{asked.number}.json"
        _write_once(told, as_json(asked.to_json()))
        _check_told(told, asked)
        if not self.terms.trusts_the_server:
            _write_once(self.release_file(asked), as_json(release_of(asked).to_json()))
        if not (slots := self.slots_file(asked)).exists():
            content = as_parquet(slots_of(asked))
            if slots.parent == self.path:
                _write_once(slots, content)
            else:
                write_private(str(slots), content)

    def state(self) -> dict[str, Any]:
        """What `state.json` holds."""
        progress, terms, asked = self.progress, self.terms, self.asked
        rows, all_told = [], terms.trusts_the_server
        for one in progress.decided:
            named = (terms.names[i] for i in one.batch.active)
            rows.append(
                {
                    "batch": one.batch.number,
                    "people": one.batch.people,
                    "local_epsilon": None if all_told else one.batch.noise.epsilon,
                    "width": one.batch.width,
                    "estimates": dict(zip(named, map(float, one.estimates))),
                    "survivors": [terms.names[i] for i in one.survivors],
                }
            )
        return {
            "schema_version": SCHEMA_VERSION,
            "terms": terms.to_json(),
            "digest": terms.digest,
            "decided": rows,
            "asked": progress.asked,
            "open": None if asked is None else asked.to_json(),
            "best": self.best,
        }


def slots_of(asked: BatchTerms) -> pa.Table:
    """Plays in uniformly random order, one for each visitor that the batch asks; in a public
    assignment so that actions are not mistaken for times of the day, in a secret one so that nobody
    knows who had which."""
    order = permute(np.repeat(np.arange(len(asked.plays)), asked.counts))
    actions = np.array(asked.actions, dtype=object)[order]
    plays = np.array(asked.plays, dtype=object)[order]
    slots = np.arange(1, len(order) + 1)
    return pa.table({"slot": slots, "action": actions, "play": plays})


def _terms_in(folder: Path) -> ServiceTerms:
    """Raises SettingError."""
    try:
        found = json.loads((folder / STATE).read_text("utf-8"))
        if found["schema_version"] != SCHEMA_VERSION:
            raise ValueError("of a version that this program does not know")
        return ServiceTerms.from_json(found["terms"])
    except FileNotFoundError:
        raise SettingError(
            f"--state {folder}: no service is there; `beam-ldp bandit start` begins one"
        ) from None
    except OSError as error:
        raise SettingError(f"--state {folder}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        said = str(error) if type(error) is ValueError else "no state of a service"
        raise SettingError(f"--state {folder}: {STATE} cannot be used ({said})") from None


def _progress_in(folder: Path, terms: ServiceTerms) -> BanditProgress:
    """What the released batches say. Raises SettingError."""
    progress = BanditProgress(terms.bandit)
    while (asked := terms.asks(progress)) is not None:
        path = _shown(folder, asked) / VERDICT
        try:
            found = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            break
        except (OSError, ValueError) as error:
            raise SettingError(f"{path} cannot be read ({type(error).__name__})") from None
        if not isinstance(found, dict) or found.get("digest") != asked.digest:
            raise SettingError(
                f"{path} is of another history than the batches before it: put back all of "
                f"{folder} as it was at one time"
            )
        try:
            heard = Heard(tuple(found["counts"].values()), tuple(found["sums"].values()))
            progress = progress.after(heard)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SettingError(f"{path} is no verdict of that batch") from None
    _check_no_later(folder, len(progress.heard) + 1)
    return progress


def _check_told(path: Path, asked: BatchTerms) -> None:
    """Refuse what people were told of a batch that is not this one. Raises SettingError."""
    try:
        found = json.loads(path.read_text("utf-8"))
        digest, epsilon = found["digest"], found["local_epsilon"]
        ours = asked.to_json()["local_epsilon"]
        same = epsilon == ours or math.isclose(epsilon, ours, rel_tol=1e-9)
    except (ValueError, KeyError, TypeError):
        raise SettingError(f"{path} is not what a batch asks: delete it") from None
    if digest != asked.digest:
        raise SettingError(
            f"{path} is of another history than the batches before it: put back all of "
            f"{path.parent} as it was at one time"
        )
    if not same:
        raise SettingError(
            f"{path} tells another local epsilon than this version of the program has: go on with "
            "the version that wrote it"
        )


def _shown(folder: Path, asked: BatchTerms) -> Path:
    """The folder of a batch in the service; what was released and not yet shown appears there."""
    place = folder / f"batch-{asked.number}"
    made = Path(private_folder(str(folder))) / place.name
    if place.exists() or not (made / VERDICT).exists():
        return place
    if json.loads((made / VERDICT).read_text("utf-8")).get("digest") != asked.digest:
        return place
    aside = made.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        shutil.copytree(made, aside, ignore=shutil.ignore_patterns(MLFLOW))
        aside.rename(place)
    except OSError as error:
        if not place.exists():  # else another process was first
            raise SettingError(f"{place} cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return place


def _check_no_later(folder: Path, number: int) -> None:
    """Refuse a service that lacks a batch which others were decided after."""
    for path in folder.glob(f"batch-*/{VERDICT}"):
        told = path.parent.name.removeprefix("batch-")
        if told.isdigit() and int(told) >= number:
            raise SettingError(
                f"{path} was decided after batches that are missing: put back all of {folder} as "
                "it was at one time"
            )


# Files that appear whole --------------------------------------------------------------------------


def _write_once(path: Path, content: bytes) -> None:
    """Write a file unless it is there."""
    if path.exists():
        return
    aside = _aside(path, content)
    try:
        os.link(aside, path)
    except FileExistsError:  # by another process, in the meantime
        pass
    finally:
        aside.unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place of another, in one step, where it differs."""
    if path.exists() and path.read_bytes() == content:
        return
    _aside(path, content).replace(path)


def _aside(path: Path, content: bytes) -> Path:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return aside


# What devices are told of a batch -----------------------------------------------------------------


def release_of(asked: BatchTerms) -> ReleaseFile:
    """The terms that devices and collector share. Whoever lets devices send sees to it that nobody
    sends two reports."""
    plays = Domain(asked.plays)
    people = People(group_by=PLAY, groups=plays, one_row=True)
    query = Rewards(REWARD, asked.digest, asks=asked)
    randomizer = bit_randomizer(asked.local_epsilon)
    identity = release_identity(
        randomizer.config_digest(),
        columns=query.columns,
        values_digest=lambda: query.digest(randomizer),
        people=people,
        noise=Noise(dataset=asked.terms.dataset, id=asked.release_id),
        bounding=bounding_of(people),
    )
    own, named = of_release(randomizer, identity)
    assert named is not None  # it has its names
    return ReleaseFile(
        ReleaseTerms(own, named),
        group_by=PLAY,
        groups_digest=plays.digest,
        asked=RewardOnDevices(REWARD, asked.digest, asked.plays),
    )


# The job of a batch: what was given, with what the service says -----------------------------------


def open_service(given: Arguments, usage: Usage = ADVANCE) -> ServiceFolder:
    """The service that is named, whole. Raises SettingError."""
    need(usage, given, "question.state")
    return ServiceFolder.open(absolute(given["question"]["state"]))


def open_batch(service: ServiceFolder) -> BatchTerms:
    """What is to be decided. Raises SettingError where all is."""
    if service.asked is None:
        raise SettingError(
            f"--state {service.path}: no batch is open, everybody else has {service.best}"
        )
    return service.asked


def checked_rewards(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Job:
    """The job, with every rule checked, and the files that there are. Raises SettingError."""
    job = checked_rules(given, service, asked)
    try:
        return with_files(job)
    except SettingError as error:
        raise SettingError(str(error).replace("--input ", "--rewards ")) from None


def checked_rules(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Job:
    """The same before any file is looked for. Raises SettingError."""
    need(ADVANCE, given, "source.paths")
    question: RewardQuestion = section_from(given, ADVANCE, "question", RewardQuestion)
    question = replace(question, asked=asks_of(question.reward, service, asked))
    given = planned(given, service, asked)
    if given["people"]["group_by"] in (question.reward, given["people"].get("id")):
        raise SettingError("--play must name a column that is used for nothing else")
    return checked_job(ADVANCE, given, question)


def asks_of(column: str, service: ServiceFolder, asked: BatchTerms) -> Rewards:
    """What the open batch asks of a column."""
    return Rewards(column, asked.digest, column, asked, service.progress)


def planned(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Arguments:
    """What was given, with what the service says."""
    bandit, folder = service.terms.bandit, service.working(asked.number)
    private: dict[str, Any] = {"local_epsilon": asked.local_epsilon, "model": "local"}
    if service.terms.trusts_the_server:
        private["local_epsilon"] = bandit.epsilon  # of its noise: no report has one
    if bandit.model == "shuffled":
        private |= {"model": "shuffle", "delta": bandit.delta, "expected_users": asked.least}
    told: dict[str, dict[str, Any]] = {
        "privacy": private,
        "people": {"group_by": "play", **given["people"], "groups": Domain(asked.plays)},
        "shuffle": {"min_reports": asked.least},
        "release": {"id": asked.release_id, "dataset": service.terms.dataset},
        "output": {
            "folder": str(folder),
            "bad_rows_file": f"{folder}.bad_rows.jsonl",
            **_tracked(given, service),
            **given["output"],
        },
    }
    return Arguments(told, []).over(given)


def _tracked(given: Arguments, service: ServiceFolder) -> dict[str, str]:
    """Where MLflow keeps all batches, unless a flag, a ledger or the environment says it."""
    named = (given["release"].get("ledger"), *map(os.environ.get, _SAY_WHERE))
    if any(named) or given["output"].get("no_mlflow"):
        return {}
    return {"mlflow_uri": f"sqlite:///{service.private}/mlflow.db"}
