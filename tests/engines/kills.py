"""What kills did: one line per kill in a file, and the table of them.

python -m tests.engines.kills build/kills.jsonl
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

LOG = "BEAM_LDP_KILL_LOG"  # names the file; without it nothing is written down
HEAD = (
    "| engine | process | noise | kills | done, whole | failed, nothing out | wrong "
    "| people who crossed again | reports of one person | different ones | seconds per job |"
)


@dataclass(frozen=True)
class Kill:
    """One kill, after all checks but before they are judged.

    Attributes:
        engine, process: what was killed; `number` which time.
        memoized: or fresh noise.
        at: how much of the job was done, from 0 to 1; more is later than all reports.
        outcome: "whole", "absent" (the job failed, and nothing was released), or what was wrong.
        seconds: of the job.
        people, crossed_again, most_draws, most_distinct: of `tests.engines.fault_job.Door`.
    """

    engine: str
    process: str
    number: int
    memoized: bool
    at: float
    outcome: str
    seconds: float
    people: int = 0
    crossed_again: int = 0
    most_draws: int = 0
    most_distinct: int = 0

    def write_down(self) -> None:
        """Append it to the file that the environment names."""
        if LOG in os.environ:
            path = Path(os.environ[LOG])
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="ascii") as file:
                file.write(json.dumps(asdict(self)) + "\n")


def known(engine: str, process: str, number: int, memoized: bool) -> Kill | None:
    """This kill, if that file has it already."""
    path = Path(os.environ.get(LOG, ""))
    asked = (engine, process, number, memoized)
    kills = read(path) if path.is_file() else []
    return next((k for k in kills if asked == (k.engine, k.process, k.number, k.memoized)), None)


def table(kills: list[Kill]) -> str:
    """In Markdown, one line per kind of process and noise."""
    kinds: dict[tuple[str, str, bool], list[Kill]] = defaultdict(list)
    for kill in sorted(kills, key=lambda k: (k.engine, k.process, not k.memoized)):
        kinds[kill.engine, kill.process, kill.memoized].append(kill)
    lines = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for (engine, process, memoized), seen in kinds.items():
        whole, absent = (sum(k.outcome == name for k in seen) for name in ("whole", "absent"))
        shares = [k.crossed_again / k.people for k in seen if k.people]
        again = f"{statistics.median(shares):.0%}, at most {max(shares):.0%}" if shares else ""
        seconds = f"{statistics.median(k.seconds for k in seen):.0f}"
        draws, distinct = (
            str(max(found)) if any(found) else ""
            for found in ([k.most_draws for k in seen], [k.most_distinct for k in seen])
        )
        noise = "memoized" if memoized else "fresh"
        wrong = len(seen) - whole - absent
        cells = (engine, process, noise, len(seen), whole, absent, wrong, again, draws, distinct)
        lines.append("| " + " | ".join(map(str, (*cells, seconds))) + " |")
    return "\n".join(lines)


def read(path: Path) -> list[Kill]:
    """What was written down."""
    return [Kill(**json.loads(line)) for line in path.read_text("ascii").splitlines()]


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]))))
