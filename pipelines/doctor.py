"""`beam-ldp doctor`: is this installation whole, and does its randomness do what it should?

One function per check, each a list of findings.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.flags import format_option
from beam_ldp.release.terminal import printable, printed_json

if TYPE_CHECKING:
    import numpy as np

Status = Literal["ok", "absent", "fault"]

# NIST SP 800-38A, F.5.1: AES-128 in counter mode, first block of the key stream.
_NIST_KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
_NIST_COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
_NIST_STREAM = bytes.fromhex("ec8cdf7398607cb0f2d21675ea9ea1e4")
_WORDS, _REPORTS = 1 << 16, 1 << 14
# Of a healthy installation, one run in 100 million says otherwise (per statistical check).
FALSE_ALARM = 1e-8

_OPTIONAL = {
    "mlflow": "no runs are tracked: pip install 'beam-ldp[mlflow]'",
    "sqlalchemy": "no ledger: pip install 'beam-ldp[ledger]'",
    "psycopg": "no ledger on PostgreSQL: pip install 'beam-ldp[postgresql]'",
    "pandas": "no to_pandas",
    "tensorflow-federated": "no federated training; `make tff` in the repository installs it",
}
_PROGRAMS = {
    "java": "Spark's and Flink's job servers need it",
    "prism": "the Prism engine; the local runner works without it",
}


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        area: installed, randomness, mechanisms, engines or records.
        name: what was looked at.
        status: `ok`; `absent`, which limits what can be done; `fault`, which must be mended.
        detail: a version or figure, or what to do.
    """

    area: str
    name: str
    status: Status
    detail: str


def installed() -> Iterator[Finding]:
    """Versions: of what is needed against the ranges this distribution declares."""
    from packaging.requirements import Requirement

    yield Finding("installed", "python", "ok", platform.python_version())
    for line in importlib.metadata.requires("beam-ldp") or []:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if version is None:
            yield Finding("installed", needed.name, "fault", f"is needed: pip install '{needed}'")
        elif not needed.specifier.contains(version, prereleases=True):
            detail = f"{version}, but {needed.specifier} is needed"
            yield Finding("installed", needed.name, "fault", detail)
        else:
            yield Finding("installed", needed.name, "ok", version)
    for name, without in _OPTIONAL.items():
        version = _version(name)
        status: Status = "absent" if version is None else "ok"
        yield Finding("installed", name, status, version or without)
    compiled: tuple[Status, str] = "ok", "kept by Python: programs and workers start faster"
    if sys.dont_write_bytecode:
        compiled = "absent", "every worker compiles anew: unset PYTHONDONTWRITEBYTECODE"
    yield Finding("installed", "compiled modules", *compiled)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def randomness() -> Iterator[Finding]:
    """The generators: a published vector, balance of fresh words, and that nothing repeats."""
    import numpy as np
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    from beam_ldp.randomizers.identity import ReleaseIdentity
    from beam_ldp.randomizers.randomness import FreshWords, UserRandomness

    cipher = Cipher(algorithms.AES(_NIST_KEY), modes.CTR(_NIST_COUNTER)).encryptor()
    same = cipher.update(bytes(16)) == _NIST_STREAM
    yield _verdict("randomness", "AES in counter mode", same, "the published vector of NIST")
    one, two = (FreshWords().words(0, _WORDS, 1).ravel() for _ in range(2))
    ones = int(np.unpackbits(one.view(np.uint8)).sum())
    score = abs(ones - 32 * _WORDS) / math.sqrt(16 * _WORDS)
    yield _verdict(
        "randomness", "fresh words are balanced", score < _deviations(),
        f"{ones / 64 / _WORDS:.4f} of the bits are ones",
    )  # fmt: skip
    repeats = np.unique(np.concatenate([one, two])).size < 2 * _WORDS
    yield _verdict("randomness", "fresh words do not repeat", not repeats, f"{2 * _WORDS:,} drawn")
    key, users, zeros = os.urandom(32), np.arange(1000), np.zeros(1000, np.int64)
    week, again, other = (
        UserRandomness(key, users, ReleaseIdentity("doctor", release))
        .words_for(b"m", zeros)
        .words(0, 1000, 2)
        for release in ("1", "1", "2")
    )
    good = bool((week == again).all() and not (week == other).any())
    yield _verdict("randomness", "memoized words", good, "repeat within a release, not across")


def mechanisms() -> Iterator[Finding]:
    """Every frequency oracle: its channel keeps its budget, and its reports follow its channel."""
    import numpy as np
    from scipy import stats

    from beam_ldp.randomizers import registry

    for kind in registry.offered("frequency"):
        name = kind.__name__
        try:
            oracle = kind(4, 1.0)
            channel, listed = oracle.channel(), oracle.channel_reports()
        except NotImplementedError:
            continue
        except (TypeError, ValueError) as error:
            yield _verdict("mechanisms", name, False, f"cannot be made: {error}")
            continue
        spent = oracle.log_ratio_max()
        reports = oracle.randomize(np.full(_REPORTS, 1, np.int64))
        index = {np.asarray(row).tobytes(): i for i, row in enumerate(listed)}
        rows = [index.get(np.asarray(row).tobytes(), -1) for row in reports]
        counts = np.bincount(np.array(rows) + 1, minlength=len(channel) + 1)
        expected, seen = _by_probability(channel[:, 1], counts[1:])
        stray = counts[0] + seen[expected == 0].sum()
        likely = expected > 0
        chance = stats.chisquare(seen[likely], _REPORTS * expected[likely]).pvalue
        good = spent <= 1.0 and stray == 0 and chance > FALSE_ALARM
        yield _verdict("mechanisms", name, bool(good), f"budget used {spent:.9f} of 1")


def _by_probability(likely: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reports of equal probability together: few classes, each with many of the draws."""
    import numpy as np

    _, classes = np.unique(likely.round(12), return_inverse=True)
    return np.bincount(classes, likely), np.bincount(classes, counts)


def engines(endpoints: tuple[str, ...]) -> Iterator[Finding]:
    """Programs that engines need, and whether the named job servers answer."""
    for name, why in _PROGRAMS.items():
        found = shutil.which(name)
        yield Finding("engines", name, "ok" if found else "absent", "found" if found else why)
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        try:
            with socket.create_connection((host or "localhost", int(port)), timeout=5):
                yield Finding("engines", endpoint, "ok", "answers")
        except (OSError, ValueError, OverflowError) as error:
            detail = f"does not answer ({type(error).__name__}): is the job server running?"
            yield Finding("engines", endpoint, "fault", detail)


def records(ledger: str | None) -> Iterator[Finding]:
    """Whether the ledger that is named can be read, and its chain holds."""
    url = ledger or os.environ.get("BEAM_LDP_LEDGER")
    if not url:
        yield Finding("records", "ledger", "absent", "none is named: releases are not charged")
        return
    try:
        from beam_ldp.ledger import BudgetLedger

        rows = len(BudgetLedger(url).rows())
    except ImportError:
        yield Finding("records", "ledger", "fault", _OPTIONAL["sqlalchemy"])
    except Exception as error:  # whatever a database says, perhaps with its password
        yield Finding("records", "ledger", "fault", f"cannot be read ({type(error).__name__})")
    else:
        yield Finding("records", "ledger", "ok", f"{rows:,} rows; `beam-ldp audit` checks them")


def _verdict(area: str, name: str, good: bool, detail: str) -> Finding:
    return Finding(area, name, "ok" if good else "fault", detail)


def _deviations() -> float:
    from scipy import special

    return float(-special.ndtri(FALSE_ALARM / 2))


_COLOURS = {"ok": "green", "absent": "yellow", "fault": "bold red"}


@click.command(short_help="What is installed, what answers, and whether the mechanisms are sound.")
@click.option("--job-endpoint", "endpoints", multiple=True, metavar="HOST:PORT",
              help="a Beam job server to check; may be repeated")  # fmt: skip
@click.option("--ledger", metavar="URL", help="a ledger to check (default: BEAM_LDP_LEDGER)")
@click.option("--mechanism", "places", multiple=True, metavar="PACKAGE:CLASS",
              help="a mechanism of your own to check as well; may be repeated")  # fmt: skip
@format_option
def doctor(
    endpoints: tuple[str, ...], ledger: str | None, places: tuple[str, ...], form: str
) -> None:
    """Check this installation: versions, generators, mechanisms, engines, ledger.

    Exit code 0 if nothing is faulty (optional parts that are missing are listed), 1 otherwise. It
    reads no data and changes nothing. The chance that a sound installation is called faulty is one
    in ten million.

    \b
    examples:
      beam-ldp doctor
      beam-ldp doctor --job-endpoint localhost:8099 --ledger sqlite:///privacy.db
    """
    from beam_ldp.planning.mechanisms import load_mechanisms

    try:
        load_mechanisms(places, "frequency")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    console = Console()
    findings: list[Finding] = []
    with console.status("looking") if form == "table" else nullcontext():
        for found in (
            installed(), randomness(), mechanisms(),
            engines(endpoints), records(ledger),
        ):  # fmt: skip
            findings += found
    if form == "json":
        click.echo(
            printed_json(
                {"schema_version": 1, "findings": [asdict(finding) for finding in findings]}
            )
        )
    else:
        console.print(table(findings))
    sys.exit(any(finding.status == "fault" for finding in findings))


def table(findings: Iterable[Finding]) -> Table:
    """One line per finding, areas apart."""
    drawn = Table(title="beam-ldp doctor", title_justify="left")
    for head in ("", "checked", "", "found"):
        drawn.add_column(head)
    area = None
    for finding in findings:
        if area not in (None, finding.area):
            drawn.add_section()
        colour = _COLOURS[finding.status]
        drawn.add_row(
            "" if area == finding.area else finding.area,
            escape(printable(finding.name)),
            f"[{colour}]{finding.status}[/{colour}]",
            escape(printable(finding.detail)),
        )
        area = finding.area
    return drawn
