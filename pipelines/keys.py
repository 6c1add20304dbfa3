"""`beam-ldp keys`: keys of readers, derived from the secret of those who randomize."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from beam_ldp.pipelines.flags import format_option
from beam_ldp.settings import SettingError
from beam_ldp.whole_files import write_new

DONE = 0


@click.group(short_help="Keys that read public reports at a larger epsilon.")
def keys() -> None:
    """Keys of readers: the same public reports, read at a larger epsilon.

    \b
    examples:
      beam-ldp keys derive --level-secret secret.key --level-epsilon 1 \\
          --release reports/release.json --output partner.key
    """


@keys.command()
@click.option("--level-secret", metavar="FILE", required=True,
              help="the secret that `beam-ldp randomize --level-secret` was given")  # fmt: skip
@click.option("--level-epsilon", type=float, metavar="EPS", required=True,
              help="local epsilon that the key reads at: one of `--levels`")  # fmt: skip
@click.option("--release", metavar="FILE", required=True,
              help="release.json of the reports: a key reads no other release")  # fmt: skip
@click.option("--release-id", metavar="NAME",
              help="the release expected: release.json must name the same one")  # fmt: skip
@click.option("--output", metavar="FILE", required=True,
              help="new file for the key, which its owner alone can read")  # fmt: skip
@format_option
def derive(
    level_secret: str,
    level_epsilon: float,
    release: str,
    release_id: str | None,
    output: str,
    form: str,
) -> None:
    """The key of one level of one release, for a reader.

    The key gives those of all smaller levels and none of a larger one; nothing of it is printed.
    Whoever has the secret derives all of them, so the secret stays where values are randomized: on
    the device, or on an edge that people trust with their values.

    \b
    examples:
      beam-ldp keys derive --level-secret secret.key --level-epsilon 1 --release-id week-47 \\
          --release reports/release.json --output partner.key
    \b
    exit codes: 0 done; 2 a flag or a file does not fit
    """
    from beam_ldp.randomizers.level_keys import LevelKey
    from beam_ldp.release.devices.release_file import load_release
    from beam_ldp.release.terminal import printed_json
    from beam_ldp.transforms.device.keyed import read_key
    from beam_ldp.transforms.levels import refinable

    try:
        terms = load_release(release).terms
        identity = terms.identity
        if release_id not in (None, identity.release_id):
            raise SettingError(
                f"--release-id {release_id}: {release} is of {identity.release_id!r}"
            )
        secret = read_key(level_secret, "--level-secret")
        key = LevelKey.derived(secret, identity, refinable(terms), level_epsilon)
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    except ValueError as error:
        raise click.UsageError(f"--release {release}, --level-secret: {error}") from None
    _write_new(output, key.to_bytes())
    told = {
        "schema_version": 1,
        "output": output,
        "release_id": identity.release_id,
        "level_epsilon": level_epsilon,
    }
    if form == "json":
        print(printed_json(told))
    else:
        print(
            f"{output} reads release {identity.release_id} at local epsilon {level_epsilon:g}: "
            "hand it to that reader alone"
        )
    sys.exit(DONE)


def _write_new(path: str, content: bytes) -> None:
    """A new file that its owner alone can read, from its first byte on."""
    try:
        write_new(Path(path), content)
    except FileExistsError:
        raise click.UsageError(f"--output {path} exists: a key is never overwritten") from None
    except OSError as error:
        raise click.UsageError(f"--output {path} cannot be written ({error.strerror})") from None
