"""`beam-ldp statement`: what a release says of its privacy, for readers and for a registry."""

from __future__ import annotations

import sys
from typing import Any

import click
import yaml  # type: ignore[import-untyped]

from beam_ldp.pipelines.flags import format_option

DONE = 0


@click.command(short_help="What a finished release says of its privacy; `--registry`: as an entry.")
@click.argument("output")
@click.option("--registry", is_flag=True,
              help="as a draft entry of the OpenDP Deployments Registry, in YAML")  # fmt: skip
@click.option("--name", metavar="TEXT", help="of what is published; default: the data set's")
@click.option("--curator", "curators", metavar="TEXT", multiple=True,
              help="who publishes it; may be given several times")  # fmt: skip
@click.option("--intended-use", metavar="TEXT", help="what the release is for")
@click.option("--region", metavar="TEXT", help="whose data, or whose law")
@click.option("--author", "authors", metavar="TEXT", multiple=True,
              help="of the entry; may be given several times")  # fmt: skip
@format_option
def statement(output: str, registry: bool, form: str, **told: Any) -> None:
    """The privacy statement of the release in the folder OUTPUT: its privacy.md.

    With --registry it is an entry of the Deployments Registry, in which organisations disclose
    their uses of differential privacy. The entry says what the privacy record says: variant, unit,
    epsilon, delta, model, actors, what is public, mechanism. What only its publisher knows is told
    by the other options, or stands there as TO FILL IN; what is missing is listed on stderr.

    \b
    examples:
      beam-ldp statement out
      beam-ldp statement out --registry --curator "Example Ltd" --author "A. Person" > entry.yaml
    \b
    exit codes: 0 done; 2 there is no release in OUTPUT
    """
    from beam_ldp.pipelines.finalize import read_record

    record = read_record(output)
    if record is None:
        raise click.UsageError(f"{output} holds no privacy record (privacy.json)")
    if not registry and any(told.values()):
        raise click.UsageError("--name, --curator, --intended-use, --region, --author: --registry")
    if not registry:
        _say(_text_of(output), record, form)
        sys.exit(DONE)
    from beam_ldp.release.registry_entry import entry, missing

    if record["simulated"]:
        raise click.UsageError(f"{output} is a simulation: it protects nobody")
    made = entry(record, **told)
    for path in missing(made):
        click.echo(f"to fill in: {path}", err=True)
    if form == "json":
        _say("", {"schema_version": 1, "entry": made}, form)
    else:
        print(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100), end="")
    sys.exit(DONE)


def _say(text: str, record: dict[str, Any], form: str) -> None:
    from beam_ldp.release.terminal import printed_json

    print(printed_json(record) if form == "json" else text.rstrip())


def _text_of(output: str) -> str:
    from apache_beam.io.filesystems import FileSystems

    from beam_ldp.transforms.files import reason

    path = f"{output.rstrip('/')}/privacy.md"
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            return bytes(file.read()).decode()
    except Exception as error:
        raise click.UsageError(f"{path} cannot be read ({reason(path, error)})") from None
