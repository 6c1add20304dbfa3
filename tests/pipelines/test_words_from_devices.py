"""A search for words whose levels are questions to devices: publish, answer, collect, once more."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.ledger.rows import LONGEST_NAME
from beam_ldp.pipelines import collect, heavy_hitters, randomize
from beam_ldp.pipelines.budget import next_runs
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
from beam_ldp.questions.heavy_hitters import PublishedWords
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.devices.later_levels import LaterLevel
from beam_ldp.release.devices.release_file import load_release, release_of_level
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.transforms import PrivateFrequencies
from beam_ldp.transforms.elements.blocks import ValueBlock
from beam_ldp.transforms.word_levels import _AnswersOfLevel
from tests.identities import identity
from tests.pairs import envelopes
from tests.pipelines.test_frequency import record

USERS, LEVELS = 1500, 2
PLAN = [
    "--publish", "--column=word", "--user-id=uid", "--max-bytes=1", "--code-bits=12",
    "--local-epsilon=6", "--delta=1e-6", f"--expected-users={USERS}", "--dataset=them",
]  # fmt: skip


def letter(person: int) -> str:
    return "e" if person % 2 else ("t" if person % 5 == 0 else "xyz0123"[person % 7])


def said(capsys: Any) -> str:
    return " ".join(capsys.readouterr().err.split())


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(newline="", encoding="utf-8")))


@dataclass
class Search:
    """A folder with people, their secret, and what was published of one search."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *more: str) -> Search:
        folder.mkdir(exist_ok=True)
        lines = [f"{i},{letter(i)}" for i in range(USERS)]
        (folder / "words.csv").write_text("\n".join(["uid,word", *lines]) + "\n")
        for name, secret in (("key", bytes(range(32))), ("log-key", bytes(32))):
            (folder / name).write_bytes(secret)
            (folder / name).chmod(0o600)
        made = cls(folder)
        assert made.publish("level-1", *more) == DONE
        return made

    def publish(self, name: str, *more: str) -> int:
        release = [] if any(flag.startswith("--release-id") for flag in more) else ["week"]
        named = [f"--release-id={one}" for one in release]
        return heavy_hitters.main([*PLAN, *named, *more, f"--output={self.folder}/{name}"])

    def question(self, name: str) -> bytes:
        return (self.folder / name / "release.json").read_bytes()

    def answer(self, name: str, output: str = "answers", *more: str) -> int:
        return randomize.main(
            [f"--input={self.folder}/words.csv", "--user-id=uid",
             f"--release={self.folder}/{name}/release.json",
             f"--memoize-key-file={self.folder}/key", f"--output={self.folder}/{output}",
             f"--interaction-log={self.folder}/log",
             f"--interaction-key-file={self.folder}/log-key", *more]
        )  # fmt: skip

    def asked(self) -> InteractivityReport:
        """The audit of who was asked what, against what one level promises."""
        log = sorted((self.folder / "log").iterdir())
        return audit_logs(log, protocol_of(self).local_epsilon)

    def collect(self, name: str, reports: str, output: str, *more: str) -> int:
        charged = () if any("ledger" in flag for flag in more) else ("--no-ledger",)
        return collect.main(
            [f"--reports={self.folder}/{reports}", "--delta=1e-6", "--no-mlflow", *charged,
             f"--release={self.folder}/{name}/release.json",
             f"--output={self.folder}/{output}", *more]
        )  # fmt: skip

    def envelopes(self, folder: str) -> bytes:
        files = sorted((self.folder / folder).glob("*.ldp"))
        return b"".join(file.read_bytes() for file in files)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Level 1 was published and answered, its reports were collected."""
    search = Search.make(tmp_path_factory.mktemp("search"))
    assert search.answer("level-1") == DONE
    assert search.collect("level-1", "answers/level-1", "level-2") == DONE
    return search


@pytest.fixture
def search(first: Search, tmp_path: Path) -> Search:
    """The same past, and a future of its own."""
    return Search(Path(shutil.copytree(first.folder, tmp_path / "copy")))


def protocol_of(search: Search) -> Any:
    asked = load_release(f"{search.folder}/level-1/release.json").asked
    assert isinstance(asked, PublishedWords)
    return asked.protocol


@pytest.mark.e2e
def test_words_are_found_level_by_level(search: Search, capsys: Any) -> None:
    """Half the people hold one letter: its interval misses it in fewer than one run in twenty, and
    the noise of this key is fixed."""
    protocol = protocol_of(search)
    assert len(protocol.levels) == LEVELS and protocol.assignment == "visible"
    assert search.answer("level-2") == DONE
    assert search.collect("level-2", "answers/level-2", "found") == DONE
    *words, rest = read(search.folder / "found" / "estimates.csv")
    assert words[0]["word"] == "e" and rest["kind"] == "rest"
    assert float(words[0]["frequency_low"]) < 0.5 < float(words[0]["frequency_high"])
    listed = Domain.from_file(search.folder / "found" / "words.txt").values
    assert listed == tuple(row["word"] for row in words)
    begun, told = record(search.folder / "level-2"), record(search.folder / "found")
    received = told["mechanism"]["received"]
    assert sum(received) == USERS and begun["mechanism"]["received"] == received[:1]
    assert told["honest_reports"] == min(received) and told["epsilon"] == told["epsilon_if_visible"]
    least = protocol.min_reports(int(0.9 * USERS))
    assert begun["honest_reports"] == min(received[0], least[1])  # what is still to come: its gate
    assert begun["epsilon"] >= told["epsilon"]
    said = " ".join((search.folder / "found" / "privacy.md").read_text().split())
    assert "Who was asked at which level is known" in said
    assert "a search is charged with its first level" in said
    earlier = " ".join((search.folder / "level-2" / "privacy.md").read_text().split())
    assert "the beginnings that are listed were chosen" in earlier and "words found" not in earlier
    assert "count as if the fewest people came" in earlier
    assert all(row["kind"] == "beginning" for row in read(search.folder / "level-2/estimates.csv"))
    asked = search.asked()
    assert asked.clean and asked.people.by_queries == {1: USERS} and not asked.people.retries
    assert asked.interactivity == "sequentially interactive" and asked.depth == LEVELS


@pytest.mark.e2e
def test_every_step_again_gives_the_same_bytes(search: Search, capsys: Any) -> None:
    assert search.publish("again-1") == DONE
    assert search.question("again-1") == search.question("level-1")
    assert search.answer("again-1", "other") == DONE
    assert search.envelopes("other/level-1") == search.envelopes("answers/level-1")
    assert search.collect("again-1", "other/level-1", "again-2") == DONE
    assert search.question("again-2") == search.question("level-2")
    # Copies of a restored backup, beside what was sent before, count once.
    shutil.copytree(search.folder / "other/level-1", search.folder / "answers/level-1/restored")
    both = f"{search.folder}/answers/level-1/restored"
    assert search.collect("level-1", "answers/level-1", "thrice", f"--reports={both}") == DONE
    assert search.question("thrice") == search.question("level-2")


@pytest.mark.e2e
def test_nobody_answers_two_levels(search: Search) -> None:
    """A restored backup knows nothing of the first answer: the secret draws the same level."""
    assert search.answer("level-2") == DONE
    assert search.answer("level-2", "restored") == DONE
    assert search.envelopes("restored/level-2") == search.envelopes("answers/level-2")
    counts = [
        sum(len(file.read_bytes()) for file in (search.folder / f"answers/level-{i}").glob("*.ldp"))
        // load_release(f"{search.folder}/level-{i}/release.json").terms.envelope_bytes(1)
        for i in (1, 2)
    ]
    assert sum(counts) == USERS
    asked = search.asked()
    assert asked.clean and asked.people.by_queries == {1: USERS} and asked.people.retries > 0


@pytest.mark.e2e
def test_devices_that_answer_every_level_fail_their_audit(search: Search, monkeypatch: Any) -> None:
    first = search.asked().people.people

    def everybody(self: Any, block: ValueBlock) -> Iterator[ValueBlock]:
        asked = self.protocol.encode(block.values, self.level, self.candidates)
        yield replace(block, values=asked, groups=None)

    monkeypatch.setattr(_AnswersOfLevel, "process", everybody)
    assert search.answer("level-2") == DONE
    asked = search.asked()
    assert not asked.clean and asked.people.over == first > 0
    assert asked.interactivity == "fully interactive" and asked.mergeable == 0


REFUSALS: dict[str, tuple[Callable[[Search], int], str]] = {
    "a level twice": (lambda s: s.answer("level-1"), "send those reports again"),
    "another search under the name": (
        lambda s: s.publish("new", "--false-words=3") or s.answer("new"), "another search",
    ),
    "another name": (
        lambda s: s.publish("new", "--release-id=next") or s.answer("new"), "another search",
    ),
    "a published search": (lambda s: s.publish("level-1", "--false-words=3"), "exists"),
    "secret levels": (lambda s: s.publish("new", "--assignment=secret"), "must be visible"),
    "rows": (lambda s: s.publish("new", "--input=words.csv"), "is for a search that reads rows"),
    "rules of one's own": (lambda s: s.answer("level-2", "new", "--delta=1e-6"), "--delta"),
    "another person column": (
        lambda s: s.answer("level-2", "new", "--user-id=word"), "--user-id word",
    ),
    "another gate": (
        lambda s: s.collect("level-1", "answers/level-1", "new", "--min-reports=1"),
        "--min-reports",
    ),
}  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize("what", REFUSALS)
def test_what_does_not_fit_is_refused(search: Search, what: str, capsys: Any) -> None:
    run, said = REFUSALS[what]
    assert run(search) == MISUSED
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.e2e
def test_reports_of_another_level_count_nothing(search: Search, capsys: Any) -> None:
    assert search.collect("level-2", "answers/level-1", "new") == NOTHING_RELEASED
    assert "another release, question or mechanism" in capsys.readouterr().err


@pytest.mark.e2e
def test_another_question_of_an_answered_level_is_refused(search: Search, capsys: Any) -> None:
    """Whoever counts level 1 otherwise asks level 2 otherwise: its people have answered it."""
    assert search.answer("level-2") == DONE
    release = load_release(f"{search.folder}/level-1/release.json")
    asked = release.asked
    assert isinstance(asked, PublishedWords)
    other = release_of_level(asked.then(protocol_of(search).root, 1000), release.terms.identity)
    (search.folder / "other").mkdir()
    (search.folder / "other" / "release.json").write_text(json.dumps(other.to_json()))
    assert search.answer("other") == MISUSED
    assert "as another question" in " ".join(capsys.readouterr().err.split())


@pytest.mark.e2e
def test_a_search_is_charged_once_with_its_first_level(search: Search) -> None:
    url = f"sqlite:///{search.folder}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("them", epsilon=20.0, delta=1e-5, local_epsilon=20.0)
    charged = (f"--ledger={url}", "--run-id=search")
    assert search.collect("level-1", "answers/level-1", "charged", *charged) == DONE
    charge = ledger.charge("search")
    told = record(search.folder / "charged")
    assert charge.status == "settled" and charge.identity.part == "level 1"
    assert search.question("charged") == search.question("level-2")
    assert search.answer("level-2") == DONE
    assert search.collect("level-2", "answers/level-2", "found", "--no-ledger") == DONE
    assert record(search.folder / "found")["epsilon"] <= told["epsilon"]


@pytest.mark.e2e
def test_a_later_level_is_collected_once_or_again_of_the_same_envelopes(
    search: Search, capsys: Any
) -> None:
    """Two sums of one level show the reports of those who came in between, whatever was charged."""
    url = f"sqlite:///{search.folder}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("them", epsilon=20.0, delta=1e-5, local_epsilon=20.0)
    assert search.answer("level-2") == DONE

    def collected(output: str, reports: str = "answers/level-2", *more: str) -> int:
        return search.collect("level-2", reports, output, f"--ledger={url}", *more)

    assert collected("early") == MISUSED  # nobody was charged for it
    assert "level 1 of this search ('week') was not collected" in said(capsys)
    charged = (f"--ledger={url}", f"--run-id={'s' * LONGEST_NAME}")
    assert search.collect("level-1", "answers/level-1", "charged", *charged) == DONE
    before = ledger.status("them")

    sent, release = search.folder / "answers/level-2", search.folder / "level-2/release.json"
    for change in (envelopes.forged, envelopes.rearranged):
        envelopes.write_changed(change, release, sent, search.folder / change.__name__)
    assert collected("dry", "forged", "--dry-run") == DONE and ledger.status("them") == before
    assert collected("found") == DONE
    capsys.readouterr()
    assert collected("others", "forged") == NOTHING_RELEASED
    assert "these are not the same envelopes" in said(capsys)
    assert not (search.folder / "others").exists()
    assert collected("again", "rearranged") == DONE
    for name in ("estimates.csv", "words.txt"):
        one, two = (search.folder / folder / name for folder in ("found", "again"))
        assert one.read_bytes() == two.read_bytes()
    after = ledger.status("them")
    assert (after.committed, after.local_spent) == (before.committed, before.local_spent)
    (level,) = [c for c in after.charges if c.identity.part == "level 2"]
    assert level.status == "settled" and level.run_id.startswith("sss")
    assert [charge.identity.part for charge, *_ in next_runs(after)] == ["level 1"]
    report = audit(ledger.rows(), tracked={charged[1].partition("=")[2]: [{}]})
    assert report.clean and f"{level.run_id!r} is free" in str(report.checks)


@pytest.mark.exact
@pytest.mark.parametrize("digest", ["5a" * 32, "set1:" + "5a" * 32])
def test_a_level_that_an_earlier_version_collected_is_not_collected_again(digest: str) -> None:
    """What its row holds proves nothing, were it equal."""
    ledger: Any = SimpleNamespace(published=lambda _: SimpleNamespace(report_digest="5a" * 32))
    level = LaterLevel(ledger, ledger, identity("week", part="level 2"))
    with pytest.raises(NotPublishedError, match="Copy the files that were published then"):
        level.settle({"report_digest": digest})


@pytest.mark.e2e
def test_programs_read_every_step_as_json(search: Search, capsys: Any) -> None:
    form = "--format=json"
    assert search.publish("json-1", form) == DONE
    told = json.loads(capsys.readouterr().out)
    assert told["release"] == json.loads(search.question("level-1")) and not told["dry_run"]
    assert search.publish("planned", form, "--dry-run") == DONE
    assert json.loads(capsys.readouterr().out)["dry_run"]
    assert not (search.folder / "planned").exists()
    assert search.answer("json-1", "json", form) == DONE
    assert json.loads(capsys.readouterr().out)["num_reports"] > 0
    assert search.collect("json-1", "json/level-1", "json-2", form) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["release"] == json.loads(search.question("json-2")) and found["beginnings"]
    assert search.collect("json-1", "json/level-1", "planned", form, "--dry-run") == DONE
    plan = json.loads(capsys.readouterr().out)
    assert plan["assignment"] == "visible" and plan["epsilon_if_visible"] <= 6


# Next week --------------------------------------------------------------------------------------


@pytest.mark.pipeline
def test_the_people_of_each_window_test_the_words_that_were_found(search: Search) -> None:
    """What a search found is the list of a stream: every window counts it and is priced alone."""
    assert search.answer("level-2") == DONE
    assert search.collect("level-2", "answers/level-2", "found") == DONE
    listed = Domain.from_file(search.folder / "found" / "words.txt")
    oracle = KRandomizedResponse(listed.size, 6.0)
    rows = [TimestampedValue(letter(i), 10.0 * (i % 2)) for i in range(2 * USERS)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        releases = (
            pipeline
            | beam.Create(rows)
            | beam.WindowInto(FixedWindows(10))
            | PrivateFrequencies(oracle, domain=listed, min_reports=1000)
        )
        told = releases | beam.Map(
            lambda one: (one.num_reports, one.estimate.value[0] > 0.9, one.smallest_batch)
        )
        # Odd people hold the first word of the list, and even ones do not.
        assert_that(told, equal_to([(USERS, True, USERS), (USERS, False, USERS)]))


# What is published ------------------------------------------------------------------------------


def question() -> PublishedWords:
    plan = plan_heavy_hitters(USERS, 6.0, max_bytes=1, num_bits=12, assignment="visible")
    return PublishedWords.first("word", plan, 100, 0.9)


@pytest.mark.exact
def test_a_question_is_its_text() -> None:
    asked = question()
    again = PublishedWords.from_text(asked.text)
    assert again == asked and again.text == asked.text and again.values == asked.values
    rows = np.array([[1 << 60], [3 << 60]], dtype=np.uint64)
    then = asked.then(rows, 77)
    assert (then.level, then.received, then.values == asked.values) == (1, (77,), False)
    assert (then.rows == rows).all() and PublishedWords.from_text(then.text) == then


@pytest.mark.exact
@pytest.mark.parametrize(
    "change",
    [{"candidates": ["00"]}, {"candidates": ["0" * 15 + "2", "0" * 15 + "1"]},
     {"received": [1, 2, 3, 4]}, {"received": ["a"]}, {"search": {}}, {"search": None}],
)  # fmt: skip
def test_a_question_that_is_none_is_refused(change: dict[str, Any]) -> None:
    told = {**question().to_json(), **change}
    with pytest.raises(ValueError):
        PublishedWords.from_text(json.dumps(told))
