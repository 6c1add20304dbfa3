"""A plan decides once: what was decided is written beside it, and holds whoever decides again.

`test.json` has `test.decided-1.json` beside it from its first look on, with the counts of reports
that were decided. Later looks go on from them. The same counts give the same verdict; other counts
are refused. Where a ledger is charged, it refuses a second decision too, wherever the plan lies.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_ldp.decisions import ArmCounts, ExperimentPlan, ExperimentVerdict
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.settings import SettingError

Counts = Mapping[str, ArmCounts]


def place(design: str, look: int) -> Path:
    """Where a look is written down."""
    path = Path(design)
    return path.with_name(f"{path.stem}.decided-{look}.json")


def earlier_looks(design: str, plan: ExperimentPlan, look: int) -> tuple[Counts, ...]:
    """The counts of the looks before this one.

    Raises:
        SettingError: if one of them is missing, of another plan, or ended the experiment.
    """
    found = []
    for number in range(1, look):
        path = place(design, number)
        try:
            told = json.loads(path.read_text("utf-8"))
            counts = {arm: ArmCounts(*told["counts"][arm]) for arm in plan.arms}
            digest, decision = told["digest"], told["decision"]
        except (OSError, ValueError, KeyError, TypeError):
            raise SettingError(
                f"--look {look} goes on from look {number}, which {path} should hold: decide it "
                "first, or put the file back"
            ) from None
        if digest != plan.digest:
            raise SettingError(f"{path} is of another plan than --design {design}")
        if decision == "effect" or (decision != "go on" and plan.spending != "anytime"):
            raise SettingError(f"the experiment ended at look {number}: {decision}")
        found.append(counts)
    return tuple(found)


def check_undecided(design: str, look: int) -> None:
    """Refuse, before anybody's privacy is spent, what would give other counts than those decided.

    Raises:
        SettingError: if the look was decided.
    """
    if (path := place(design, look)).exists():
        raise SettingError(
            f"this look was decided before: see {path}. With fresh noise the counts would be "
            "others, and a plan decides once; with --memoize-key-file the same reports give the "
            "same verdict. For more people make a new plan, or one with looks"
        )


def write_down(
    design: str, plan: ExperimentPlan, verdict: ExperimentVerdict, counts: Counts, output: str
) -> None:
    """Write down what is decided, unless it is already.

    Raises:
        NothingReleasedError: if the look was decided on other reports, or cannot be written down.
    """
    path = place(design, verdict.look)
    told: dict[str, Any] = {
        "digest": plan.digest,
        "look": verdict.look,
        "counts": {arm: [count.people, count.ones] for arm, count in counts.items()},
        "decision": verdict.decision,
    }
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(json.dumps({**told, "output": output}, indent=2) + "\n", "utf-8")
        os.link(aside, path)  # whole or not at all, and by one run only
    except FileExistsError:
        _same(path, told)
    except OSError as error:
        raise NothingReleasedError(
            f"nothing was released: what is decided could not be written down in {path} "
            f"({error.strerror})"
        ) from None
    finally:
        aside.unlink(missing_ok=True)


def _same(path: Path, told: Mapping[str, Any]) -> None:
    """A NothingReleasedError unless the file tells the same."""
    try:
        before = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        before = {}
    if not isinstance(before, dict):
        before = {}
    if {name: before.get(name) for name in told} == told:
        return
    raise NothingReleasedError(
        f"nothing was released: this look was decided before, on other reports: see {path}"
        f"{' and ' + str(before['output']) if before.get('output') else ''}. A plan decides once; "
        "for more people make a new plan, or one with looks"
    )
