"""Docstrings' examples, which stand without a heading, become code blocks on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts fences around every run of lines that starts with `>>>`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^(>>>.*(?:\n.+)*)", r"```pycon\n\1\n```", obj.docstring.value, flags=re.MULTILINE
            )
