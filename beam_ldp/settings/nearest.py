"""What somebody who mistyped a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(name: str, known: Sequence[str]) -> str:
    """` (did you mean ...?)`, or nothing where no name is near.

    >>> nearest("--epsilom", ["--delta", "--epsilon"])
    ' (did you mean --epsilon?)'
    >>> nearest("--xyz", ["--delta", "--epsilon"])
    ''
    """
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {found[0]}?)" if found else ""
