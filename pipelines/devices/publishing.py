"""A question published for devices: what its flags must not say, and where it is written."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from beam_ldp.release import outputs, runner, terminal
from beam_ldp.release.devices.release_file import RELEASE_FILE, ReleaseFile
from beam_ldp.release.run import Run
from beam_ldp.release.tables import plan_table
from beam_ldp.settings import People, SettingError
from beam_ldp.settings.usage import Arguments, Usage

_READS_ROWS = (
    ("source", "paths"), ("release", "key_file"), ("release", "seed"), ("release", "ledger"),
)  # fmt: skip


def refuse_rows(usage: Usage, given: Arguments, reader: str) -> None:
    """A SettingError for what only a program that reads rows is told, as `reader` does."""
    for home, name in _READS_ROWS:
        if given[home].get(name) not in (None, "", ()):
            raise SettingError(
                f"{usage.flag_of(f'{home}.{name}')} is for {reader}: with --publish devices "
                "answer, and `beam-ldp collect` is charged"
            )


def need_a_row_of_each(people: People) -> None:
    """A SettingError where nobody said which row of a person a device takes."""
    if people.id is None and not people.one_row:
        raise SettingError(
            "give --user-id, the column by which devices draw one row of each person, or "
            "--one-row-per-person"
        )


def write_question(
    run: Run, release: ReleaseFile, console: Console, named: str = "the question"
) -> None:
    """Write the question where it is asked for; with `--dry-run` only its plan is printed."""
    output = run.job.output
    as_json = output.format == "json"
    if run.job.only_plan:
        if as_json:
            print(terminal.printed_json(runner.plan_as_json(run)))
        else:
            Console().print(plan_table(run))
        return
    runner.say_plan_line(run, console)
    folder = outputs.OutputFolder(output.folder)
    with folder.writing() as writer:
        writer.put(RELEASE_FILE, outputs.as_json(release.to_json()))
    if as_json:
        told = {"schema_version": outputs.SCHEMA_VERSION, "output": folder.path}
        told |= {"release": release.to_json(), **runner.plan_as_json(run)}
        print(terminal.printed_json({**told, "dry_run": False}))
        return
    Console().print(
        f"[bold]Written to[/bold] {escape(folder.path)}/{RELEASE_FILE}: {named}, for devices "
        "(`beam-ldp randomize --release`)",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
