"""What each program says of itself: its flags as data, its help.

These modules import nothing heavy: somebody who asks for help waits for it, and
for a mistyped flag too. `tests/pipelines/test_start.py` holds them to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from beam_ldp.pipelines.flags import Groups, add_flags

EXIT_CODES = """
exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was read;
            3 nothing was published (too few reports, too many bad rows, --strict, the budget, or
            a ledger that could not be reached at the end: `beam-ldp finalize` then continues);
            130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """A program on the command line.

    Attributes:
        name: the command.
        summary: what it does.
        synopsis: the flags that it cannot do without.
        examples, exit_codes: below the flags.
        flags: what it understands, see `flags.with_own`.
    """

    name: str
    summary: str
    synopsis: str
    examples: str
    flags: Groups
    exit_codes: str = EXIT_CODES

    @property
    def help(self) -> str:
        """What `--help` prints: flags, examples and exit codes."""
        program = f"beam-ldp {self.name}"
        parser = argparse.ArgumentParser(
            prog=program,
            description=self.summary,
            epilog=self.examples + self.exit_codes,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            usage=f"{program} {self.synopsis}",
        )
        add_flags(parser, self.flags, both_spellings=False)
        return parser.format_help()

    def print_help(self, argv: Sequence[str]) -> int | None:
        """Help where it is asked for, or nothing is; the exit code, or None where flags are."""
        if argv and not any(flag in ("-h", "--help") for flag in argv):
            return None
        print(self.help)
        return 0 if argv else 2
