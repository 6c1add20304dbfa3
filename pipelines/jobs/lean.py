"""Beam in the launcher's process, without what it loads and works out for nobody.

A job of ten thousand rows takes less time than Beam's own start. Nothing that runs is changed.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from inspect import Signature
from typing import Any


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=fullname)


def load_beam() -> None:
    """Load `apache_beam`, if it is not loaded, as where pandas is not installed.

    Beam and Arrow load pandas, a third of a second, to recognize data frames, and no program of
    ours hands them one. Whoever needs it later in the same process loads it as ever.
    """
    if "apache_beam" in sys.modules or "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        import apache_beam  # noqa: F401
        import pyarrow

        pyarrow.array([0])  # looks for pandas when it is first called, and not again
    finally:
        sys.meta_path.remove(finder)
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
