"""`beam-ldp recover`: single values of people who consented, from stored reports and their key."""

from __future__ import annotations

import csv
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.pipelines.flags import format_option
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.pipelines.devices.recovery import Recovered
    from beam_ldp.randomizers.domain import Domain
    from beam_ldp.release.devices.release_file import ReleaseFile

SCHEMA_VERSION = 1
COLUMNS = ("user_id", "value", "note")


@click.command(short_help="Single values of people who consented, from stored reports and a key.")
@click.option("--reports", metavar="PATH", multiple=True, required=True,
              help="file, folder or glob of envelopes; may be repeated")  # fmt: skip
@click.option("--release", metavar="FILE", required=True, help="release.json of these reports")
@click.option("--domain", metavar="FILE", required=True,
              help="public list of values that the devices used")  # fmt: skip
@click.option("--other-label", default="other", show_default=True,
              help="what values that are not listed were called")  # fmt: skip
@click.option("--recover-key-file", "key_file", metavar="FILE", required=True,
              help="secret key that `beam-ldp randomize --recover-key-file` made")  # fmt: skip
@click.option("--consents", metavar="FILE", required=True,
              help="user ids of who consented, one per line; nobody else is read")  # fmt: skip
@click.option("--output", metavar="FILE", required=True,
              help="new CSV file, which only its owner may read")  # fmt: skip
@format_option
def recover(form: str, **told: Any) -> None:
    """Reads the values of people who consented out of reports that protect everybody else.

    The reports come from `beam-ldp randomize --recover-key-file`. A report is the value plus a key,
    which is a function of the secret, the person and the release; the id of the envelope is another
    one, so that the secret also finds a person's report among all. The values go to the output
    file, one line per person, and nowhere else: not to the screen, nor to a log.

    Whoever holds the secret could read everybody: keep it apart from the reports, and delete it
    when no more consent is expected. For everybody without it the local epsilon of the release
    holds, as long as AES is not broken.

    \b
    example:
      beam-ldp randomize --input values.csv --column answer --domain answers.txt \\
          --user-id uid --local-epsilon 3 --recover-key-file private/week-47.key \\
          --dataset survey --release-id week-47 --output reports
      beam-ldp recover --reports reports --release reports/release.json --domain answers.txt \\
          --recover-key-file private/week-47.key --consents consents.txt \\
          --output private/recovered.csv
    \b
    exit codes: 0 done; 2 a flag or an input is wrong, nothing was read;
                3 none of these people has a report in these files, nothing was written
    """
    from beam_ldp.release.outputs import OutputError

    try:
        code, done = _recovered(**told)
    except (SettingError, OutputError) as error:
        raise click.UsageError(str(error)) from None
    _say(done, form)
    sys.exit(code)


def _recovered(
    *,
    reports: tuple[str, ...],
    release: str,
    domain: str,
    other_label: str,
    key_file: str,
    consents: str,
    output: str,
) -> tuple[int, dict[str, Any]]:
    """Exit code, and what was done. Raises SettingError, OutputError."""
    from beam_ldp import log_events
    from beam_ldp.pipelines.devices import recovery
    from beam_ldp.pipelines.programs import DONE, NOTHING_RELEASED
    from beam_ldp.release.inputs.public_lists import load_list
    from beam_ldp.release.outputs import create_private

    agreed, values = _agreed(release), load_list("--domain", domain, other_label)
    if values.digest.hex() != agreed.terms.identity.values:
        raise SettingError(
            f"--domain {domain}: this is not the list that the devices used (a value, the order or "
            "the --other-label differs)"
        )
    key, people = _key(key_file, agreed), _consenting(consents)
    if os.path.lexists(output):
        raise SettingError(f"--output {output} exists: choose a new file")
    try:
        found = recovery.recover(agreed, key, people, reports)
    except ValueError as error:
        raise SettingError(f"--reports {error}") from None
    read = sum(one.index is not None for one in found)
    absent = sum(one.note == recovery.NO_REPORT for one in found)
    written = absent < len(found)
    if written:
        create_private(output, _as_csv(found, values))
        log_events.say(log_events.VALUES_RECOVERED, program="recover", num_people=read)
    return DONE if written else NOTHING_RELEASED, {
        "schema_version": SCHEMA_VERSION,
        "output": output if written else None,
        "release_id": agreed.terms.identity.release_id,
        "local_epsilon": agreed.terms.randomizer.local_epsilon,
        "num_consents": len(found),
        "num_recovered": read,
        "num_without_report": absent,
        "num_unreadable": len(found) - read - absent,
    }


def _agreed(path: str) -> ReleaseFile:
    from beam_ldp.release.devices.release_file import load_release

    agreed = load_release(path)
    if not (agreed.recoverable and agreed.terms.identity.key):
        raise SettingError(
            f"--release {path}: no key recovers values of this release; its reports were not made "
            "with `randomize --recover-key-file`"
        )
    return agreed


def _key(path: str, agreed: ReleaseFile) -> bytes:
    """The secret key of this very release."""
    from beam_ldp.transforms.device.keyed import read_key

    try:
        key = read_key(path, "--recover-key-file")
    except ValueError as error:
        raise SettingError(str(error)) from None
    try:
        agreed.terms.identity.committed(key)
    except ValueError:
        raise SettingError(
            f"--recover-key-file {path} is not the key of release "
            f"{agreed.terms.identity.release_id}, or it is damaged: its commitment in release.json "
            "differs"
        ) from None
    return key


def _consenting(path: str) -> list[str]:
    """Ids of the people who consented, each once."""
    from beam_ldp.randomizers.identity import canonical_id
    from beam_ldp.release.inputs.public_lists import read_public, why

    try:
        lines = read_public(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--consents {path}: cannot be read ({why(error)})") from None
    people: dict[int | bytes, str] = {}
    for place, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            people.setdefault(canonical_id(line), line)
        except ValueError:
            raise SettingError(f"--consents {path}: line {place} is no user id") from None
    if not people:
        raise SettingError(
            f"--consents {path} names nobody: it holds the user ids of those who consented, one "
            "per line"
        )
    return list(people.values())


def _as_csv(found: list[Recovered], values: Domain) -> bytes:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in found:
        value = "" if one.index is None else values.labels[one.index]
        writer.writerow((_no_formula(one.user_id), _no_formula(value), one.note))
    return stream.getvalue().encode("utf-8", "surrogatepass")


def _no_formula(text: str) -> str:
    """With an apostrophe before what a spreadsheet would run as a formula; numbers stay."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _say(done: dict[str, Any], form: str) -> None:
    """Numbers of people; never who they are, nor what they said."""
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(done))
        return
    if done["output"] is None:
        click.echo(
            "nothing was written: none of these people has a report of release "
            f"{done['release_id']} in these files",
            err=True,
        )
        return
    print(f"{done['num_recovered']:,} of {done['num_consents']:,} values: {done['output']}")
    for name, said in (
        ("num_without_report", "without a report in these files"),
        ("num_unreadable", "with a report that was not made under this key, or with two"),
    ):
        if done[name]:
            print(f"  {done[name]:,} {said}")
