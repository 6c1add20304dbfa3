"""Beam in the launcher's process, without what it loads and works out for nobody.

A job of ten thousand rows takes less time than Beam's own start. Nothing that runs is changed.
"""

from __future__ import annotations

import logging
import sys
import types
import weakref
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from inspect import Signature
from typing import Any

# Beam loads these where they are installed, half a second, and does without them where they are
# not: data frames, which Arrow looks for too, and connectors that no program of ours has.
_UNUSED = ("pandas", "pymongo", "apache_beam.io.gcp.bigquery")


class _Absent(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in _UNUSED:
            raise ModuleNotFoundError(f"{fullname} is not looked for here", name=fullname)


def load_beam() -> None:
    """Load `apache_beam`, if it is not loaded, as where what we do not use is not installed.

    Whoever needs it later in the same process loads it as ever.
    """
    if "apache_beam" in sys.modules or "pandas" in sys.modules:
        return
    absent, told = _Absent(), logging.getLogger("apache_beam.io.mongodbio")
    sys.meta_path.insert(0, absent)
    told.disabled = True  # that its client is not installed
    try:
        import apache_beam  # noqa: F401
        import pyarrow

        pyarrow.array([0])  # looks for pandas when it is first called, and not again
    finally:
        told.disabled = False
        sys.meta_path.remove(absent)
    remember_signatures()


_functions: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()
_methods: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()


def remember_signatures() -> None:
    """From now on Beam works out the signature of a function once.

    It asks for those of all methods of every stage again and again: fifteen thousand times for a
    job of a dozen stages, half of what it costs to build it.
    """
    from apache_beam.typehints import decorators

    theirs = decorators.get_signature
    if getattr(theirs, "remembers", False):
        return

    def get_signature(func: Callable[..., Any]) -> Signature:
        """Beam's, of a function or a method once."""
        if type(func) is types.MethodType and type(func.__func__) is types.FunctionType:
            known, key = _methods, func.__func__
        elif type(func) is types.FunctionType:
            known, key = _functions, func
        else:
            return theirs(func)
        if key not in known:
            known[key] = theirs(func)
        return known[key]

    get_signature.remembers = True  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):
        if name.startswith("apache_beam") and vars(module).get("get_signature") is theirs:
            module.get_signature = get_signature  # type: ignore[attr-defined]
