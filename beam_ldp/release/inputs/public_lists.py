"""Public lists of values and of groups: one per line, on any file system that Beam knows."""

from __future__ import annotations

from pathlib import Path

from beam_ldp.randomizers.domain import OTHER, Domain
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job

_COMPRESSED = (".gz", ".bz2", ".zip", ".zst", ".xz", ".lzma", ".deflate")


def read_public(path: str) -> bytes:
    """What a file holds, unpacked. Beam, which loads slowly, is asked only where it is needed."""
    if "://" not in path and not path.endswith(_COMPRESSED):
        return Path(path).read_bytes()
    from apache_beam.io.filesystems import FileSystems

    from beam_ldp.transforms.files import explained

    with explained(path), FileSystems.open(path, "application/octet-stream") as file:
        return bytes(file.read())


def why(error: Exception) -> str:
    """Why `read_public` failed, for messages."""
    return getattr(error, "strerror", None) or type(error).__name__


def load_list(flag: str, path: str, other: str = OTHER, hint: str = "") -> Domain:
    """The list of a file.

    Args:
        flag: that names the file, for messages.
        path: of the file.
        other: what everything else is called.
        hint: what to do where the list holds `other` itself.

    Raises:
        SettingError: if it cannot be read, or is no list.
    """
    try:
        content = read_public(path)
    except Exception as error:
        raise SettingError(f"{flag} {path}: cannot be read ({why(error)})") from None
    try:
        return Domain.from_lines(content, other)
    except ValueError as error:
        raise SettingError(
            f"{flag} {path}: {error}{hint if 'other' in str(error) else ''}"
        ) from None


# On the command line: `--domain urls.txt --groups countries.txt` ----------------------------------


def check_groups(settings: Job) -> None:
    """A SettingError unless the settings about groups fit together."""
    people = settings.people
    if (people.group_by is None) != (people.groups is None):
        raise SettingError("--group-by and --groups belong together: the list of groups is public")
    if people.group_by is None:
        return
    if settings.shuffle.min_reports is None:
        raise SettingError(
            "--group-by needs --min-reports: the smallest number of reports in a group, which "
            "decides how much noise the smallest group needs"
        )
    if people.group_by in (*settings.question.column, people.id):
        raise SettingError("--group-by must name a column that is used for nothing else")


def lists_of(settings: Job) -> list[Domain]:
    """The lists of the questions, as files have them. Raises SettingError."""
    question, hint = settings.question, " (see --other-label)"
    return [load_list("--domain", path, question.other, hint) for path in question.domains]


def groups_of(settings: Job) -> Domain | None:
    """The public list of groups, if there are any. Raises SettingError."""
    if settings.people.group_by is None:
        return None
    assert settings.groups is not None
    return load_list("--groups", settings.groups)
