"""Devices and collectors, across versions: new code writes what old code wrote, and reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.golden import devices, frozen
from tests.golden.devices import COLLECTED, FORMS, KEEPING, KEPT
from tests.golden.frozen import NUMBERS, TEXT, Golden, Plain

pytestmark = pytest.mark.e2e

GOLDEN = Golden("devices")
DRAWN = "recoverable"  # its key is drawn anew by each run, and stands in the identity


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything happens: a frozen world with people and their key."""
    place = tmp_path / "world"
    with frozen.world(place):
        devices.write_inputs(place)
        yield place


def check(case: str, numbers: Any, text: Any = None) -> None:
    plain = Plain(Path.cwd())
    GOLDEN.check(NUMBERS, case, plain(numbers))
    if text is not None:
        GOLDEN.check(TEXT, case, plain(text))


def done(*arguments: str) -> frozen.Ran:
    """A command that must end well."""
    ran = frozen.command(*arguments)
    assert ran.code == 0, ran.err
    return ran


def collect(reports: str, output: str, *more: str, release: str = "") -> None:
    least = [] if any("min-reports" in flag for flag in more) or "level" in reports else [
        "--min-reports=50"]  # fmt: skip
    charged = [] if any("ledger" in flag for flag in more) else ["--no-ledger"]
    done("collect", f"--reports={reports}", f"--release={release or reports}/release.json",
         *COLLECTED, *least, *charged, *more, f"--output={output}")  # fmt: skip


def check_release(name: str, path: Path) -> dict[str, Any]:
    """The release is that of the kept file; its bytes but for the order of keys."""
    content = path.read_bytes()
    if KEEPING:
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{name}.json").write_bytes(content)
    found, kept = (json.loads(c) for c in (content, (KEPT / f"{name}.json").read_bytes()))
    if name == DRAWN:
        for one in (found, kept):
            del one["identity"]["key"], one["identity_digest"]
    wrong = list(frozen.differences(kept, found))
    assert not wrong, f"devices/{name}.json, at {wrong[0][0]}: {wrong[0][1]}, now {wrong[0][2]}"
    if name != DRAWN:
        GOLDEN.check(TEXT, f"{name}: release.json", content)
    return dict(json.loads(content))


def check_envelopes(name: str, release: dict[str, Any], sent: Path, *, memoized: bool) -> None:
    """The envelopes are those that were kept, each byte of them; without a key, but for what is
    drawn anew: how many people they are of, and what every envelope of the release begins with."""
    path, now = KEPT / f"{name}.ldp", devices.sent_to(sent, release)
    if KEEPING and (memoized or not path.exists()):
        path.write_bytes(b"".join(now))
    kept = devices.envelopes(path.read_bytes(), release)
    if not memoized:
        fixed = 8 if name == DRAWN else 24
        kept, now = (sorted({one[:fixed] for one in sides}) for sides in (kept, now))
    assert len(kept) == len(now), f"{path.name}: {len(kept)} envelopes, now {len(now)}"
    for i, (old, new) in enumerate(zip(kept, now)):
        if old != new:
            at = next((at for at, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), 0)
            raise frozen.Differs(
                f"devices/{path.name}: envelope {i} of {len(kept)} differs from byte {at} on:\n"
                f"  frozen: {old[at:].hex()}\n  now:    {new[at:].hex()}"
            )


# Questions of a device's own -----------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_a_device_sends_what_it_sent(name: str, folder: Path) -> None:
    ran = devices.ask(FORMS[name], "sent")
    assert ran.code == 0, ran.err
    release = check_release(name, folder / "sent/release.json")
    check_envelopes(name, release, folder / "sent", memoized=FORMS[name].memoized)
    if KEEPING and name == "recoverable":
        shutil.copy("week.key", KEPT / "recoverable.key")


def test_envelopes_of_new_code_are_read_under_the_terms_of_old(folder: Path) -> None:
    """Where noise is fresh, bytes cannot be compared: the old collector's file must accept all."""
    form = FORMS["four_in_an_envelope"]
    assert devices.ask(form, "sent").code == 0
    shutil.copy(KEPT / "four_in_an_envelope.json", folder / "sent/release.json")
    collect("sent", "out", *form.reads)
    record = json.loads((folder / "out/privacy.json").read_text())
    assert (record["num_reports"], record["num_bad_rows"]) == (devices.PEOPLE, 0)


@pytest.mark.parametrize("name", FORMS)
def test_a_collector_reads_what_was_sent(name: str, folder: Path) -> None:
    devices.put_kept(name, folder / "sent")
    collect("sent", "out", *FORMS[name].reads)
    check(name, *devices.output_of(folder / "out"))
    if name in ("list", "list_in_groups", "levels", "tree", "two_lists", "mean_in_a_range"):
        devices.keep_record(f"collected_{name}", folder / "out")


def test_a_tree_is_read_as_its_devices_were_asked(folder: Path) -> None:
    devices.put_kept("tree", folder / "sent")
    collect("sent", "out")
    check("tree, as asked", *devices.output_of(folder / "out"))


def test_the_holder_of_a_key_reads_more(folder: Path) -> None:
    devices.put_kept("levels", folder / "sent")
    done("keys", "derive", "--level-secret=key", "--level-epsilon=2",
         "--release=sent/release.json", "--output=two.key")  # fmt: skip
    collect("sent", "out", "--domain=hair.txt", "--level-key=two.key")
    numbers, text = devices.output_of(folder / "out")
    check("levels, with a key", {**numbers, "key": (folder / "two.key").read_bytes().hex()}, text)


def test_values_are_recovered(folder: Path) -> None:
    devices.put_kept("recoverable", folder / "sent")
    devices.write_secret(folder / "week.key", (KEPT / "recoverable.key").read_bytes())
    (folder / "consents").write_text("7\n59\nstranger\n0\n2\n")
    done("recover", "--reports=sent", "--release=sent/release.json", "--domain=hair.txt",
         "--recover-key-file=week.key", "--consents=consents", "--output=read.csv")  # fmt: skip
    columns, *rows = devices.table(folder / "read.csv")
    check("recovered", rows, columns)


# Published questions -------------------------------------------------------------------------

SEARCHERS = 200
VECTORS = 60


def _search(folder: Path) -> None:
    words = ("e" if i % 2 else "txyz0123"[i % 8] for i in range(SEARCHERS))
    lines = [f"{i},{word}" for i, word in enumerate(words)]
    (folder / "words.csv").write_text("\n".join(["uid,word", *lines]) + "\n")


def _publish_search(output: str) -> None:
    done("heavy-hitters", "--publish", "--column=word", "--user-id=uid", "--max-bytes=1",
         "--code-bits=12", "--local-epsilon=6", "--delta=1e-6", "--dataset=them",
         f"--expected-users={SEARCHERS}", "--release-id=week", f"--output={output}")  # fmt: skip


@pytest.mark.parametrize("level", [1, 2])
def test_a_level_of_a_search_is_answered_as_it_was(level: int, folder: Path) -> None:
    """The question of level 2 follows from what was kept of level 1."""
    _search(folder)
    if level == 1:
        _publish_search("question")
    else:
        devices.put_kept("level_1", folder / "level-1")
        collect("level-1", "question")
    release = check_release(f"level_{level}", folder / "question/release.json")
    done("randomize", "--input=words.csv", "--user-id=uid", "--memoize-key-file=key",
         "--release=question/release.json", "--output=answers")  # fmt: skip
    check_envelopes(f"level_{level}", release, folder / f"answers/level-{level}", memoized=True)
    check(f"search.json, level {level}", json.loads((folder / "answers/search.json").read_text()))


def test_a_search_goes_from_level_to_level_under_one_charge(folder: Path) -> None:
    """The first level is charged for all; a later one is written down, and free; once more, too."""
    done("budget", "init", "--ledger=sqlite:///privacy.db")
    charged = "--ledger=sqlite:///privacy.db"
    done("budget", "set", "--dataset=them", "--new", charged, "--epsilon=30", "--delta=1e-5",
         "--local-epsilon=20")  # fmt: skip
    for level, out in ((1, "first"), (2, "found")):
        devices.put_kept(f"level_{level}", folder / f"level-{level}")
        collect(f"level-{level}", out, charged)
        check(f"level {level}", *devices.output_of(folder / out))
        devices.keep_record(f"collected_level_{level}", folder / out)
    collect("level-2", "again", charged)
    assert (folder / "again/estimates.csv").read_bytes() == (
        folder / "found/estimates.csv").read_bytes()  # fmt: skip
    check("rows of a search", frozen.ledger_rows(folder / "privacy.db"))


def test_a_mean_in_shares(folder: Path) -> None:
    """Shares are drawn anew each time: the question and the lengths stay, kept ones are read."""
    lines = [f"{i},{i % 7 / 10},{i % 3 / 10}" for i in range(VECTORS)]
    (folder / "vectors.csv").write_text("\n".join(["uid,x0,x1", *lines]) + "\n")
    done("mean", "--publish", "--column=x0,x1", "--user-id=uid", "--one-row-each", "--norm=l2",
         "--radius=2", "--epsilon=1", "--delta=1e-6", f"--expected-users={VECTORS}",
         "--honest-fraction=0.9", "--trust-shuffler", "--dataset=them", "--release-id=week",
         "--output=question")  # fmt: skip
    release = check_release("shares", folder / "question/release.json")
    done("randomize", "--release=question/release.json", "--input=vectors.csv", "--user-id=uid",
         "--trust-shuffler", "--output=new")  # fmt: skip
    check_envelopes("shares", release, folder / "new", memoized=False)
    devices.put_kept("shares", folder / "sent")
    for reports, out in (("sent", "out"), ("new", "out of new")):
        done("collect", f"--reports={reports}", "--release=question/release.json", "--no-mlflow",
             "--no-ledger", f"--output={out}")  # fmt: skip
    check("shares", *devices.output_of(folder / "out"))
    devices.keep_record("collected_shares", folder / "out")
    prices = [devices.output_of(folder / out)[0]["price"] for out in ("out", "out of new")]
    for price in prices:
        assert price.pop("report_digest").startswith("set1:")  # of what was drawn anew
    assert prices[0] == prices[1]


def test_outcomes_of_an_experiment(folder: Path) -> None:
    rows = [f"{i},{arm},{int(i % 10 < of_ten)}" for arm, of_ten in (("control", 3), ("red", 8))
            for i in range(100 * (arm == "red"), 100 * (arm == "red") + 100)]  # fmt: skip
    (folder / "visits.csv").write_text("\n".join(["uid,arm,bought", *rows]) + "\n")
    done("ab-test", "design", "--arms=control,red", "--null=0.3", "--effect=0.5", "--power=0.8",
         "--local-epsilon=2", "--output=test.json")  # fmt: skip
    check("plan", json.loads((folder / "test.json").read_text()))
    done("randomize", "--input=visits.csv", "--column=bought", "--group-by=arm", "--user-id=uid",
         "--experiment=test.json", "--dataset=them", "--memoize-key-file=key",
         "--output=new")  # fmt: skip
    release = check_release("experiment", folder / "new/release.json")
    check_envelopes("experiment", release, folder / "new", memoized=True)
    devices.put_kept("experiment", folder / "sent")
    done("ab-test", "decide", "--reports=sent", "--design=test.json", "--no-mlflow", "--no-ledger",
         "--output=out")  # fmt: skip
    numbers, text = devices.output_of(folder / "out")
    numbers["verdict"] = json.loads((folder / "out/verdict.json").read_text())
    check("verdict", numbers, text)
    devices.keep_record("collected_experiment", folder / "out")


def test_rewards_of_a_bandit(folder: Path) -> None:
    """The folder of a service as `bandit start` left it; its first batch, answered by devices."""
    kept = KEPT / "rewards"
    if KEEPING and not kept.exists():
        (folder / "actions.csv").write_text("name,x,y\nblue,1,0\nred,0,1\ngreen,-0.6,-0.6\n")
        done("bandit", "start", "--actions=actions.csv", "--horizon=3000", "--epsilon=2",
             "--dataset=them", "--state=service")  # fmt: skip
        shutil.copytree("service", kept)
    shutil.copytree(kept, folder / "service", dirs_exist_ok=True)
    slots = pq.read_table(folder / "service/batch-1.slots.parquet")
    rewards = [(-1.0, 1.0)[(i * 7) % 10 < 4] for i in range(len(slots))]
    people = pa.array([f"1-{i}" for i in range(len(slots))])
    table = slots.append_column("reward", pa.array(rewards)).append_column("uid", people)
    pq.write_table(table, folder / "rewards.parquet")
    done("randomize", "--release=service/batch-1.release.json", "--input=rewards.parquet",
         "--user-id=uid", "--column=reward", "--group-by=play", "--output=new")  # fmt: skip
    release = check_release("batch", folder / "new/release.json")
    check_envelopes("batch", release, folder / "new", memoized=False)
    devices.put_kept("batch", folder / "sent")
    done("bandit", "collect", "--state=service", "--reports=sent", "--no-mlflow", "--no-ledger")
    numbers, text = devices.output_of(folder / "service/batch-1")
    for name in ("state.json", "batch-2.json", "batch-2.release.json", "batch-1/verdict.json"):
        numbers[name] = json.loads((folder / "service" / name).read_text())
    check("batch", numbers, text)
    devices.keep_record("collected_batch", folder / "service/batch-1")


def test_every_case_is_made(folder: Path) -> None:
    made = {*FORMS, "tree, as asked", "levels, with a key", "shares", "verdict", "batch", "level 1",
            "level 2"}  # fmt: skip
    numbers = {"recovered", "rows of a search", "plan", "search.json, level 1",
               "search.json, level 2"}  # fmt: skip
    files = {path.stem for path in KEPT.glob("*.json")}
    GOLDEN.check_cases(made | numbers, NUMBERS)
    GOLDEN.check_cases(
        {*made, "recovered", *(f"{name}: release.json" for name in files - {DRAWN})}, TEXT
    )
