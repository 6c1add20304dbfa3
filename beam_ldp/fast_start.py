"""Beam and MLflow in the launcher's process, without what they load and work out for nobody.

A job of ten thousand rows takes less time than Beam's own start. Nothing that runs is changed. What
each of these saves such a job, in CPU seconds (Beam 2.77, MLflow 3.17):

    0.33  Beam loads no pandas               0.08  nor its connector to BigQuery
    0.09  nor pymongo                        0.15  Beam works out signatures once
    1.0   MLflow loads no pandas

Another minor version of Beam or major version of MLflow fails a test until this was looked at.
"""

from __future__ import annotations

import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import metadata
from importlib.abc import MetaPathFinder
from inspect import Signature
from typing import Any

TESTED = {"apache-beam": "2.77", "mlflow": "3"}  # versions for which this was looked at

# Beam loads these where they are installed, half a second, and does without them where they are
# not: data frames, which Arrow looks for too, and connectors that no program of ours has.
_NOT_FOR_BEAM = ("pandas", "pymongo", "apache_beam.io.gcp.bigquery")


class _Absent(MetaPathFinder):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is not looked for here", name=fullname)


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """As where those are not installed. Whoever needs them afterwards loads them as ever."""
    absent = _Absent(names)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


def load_beam() -> None:
    """Load `apache_beam`, if it is not loaded, as where what we do not use is not installed."""
    if "apache_beam" in sys.modules or "pandas" in sys.modules:
        return
    told = logging.getLogger("apache_beam.io.mongodbio")
    told.disabled = True  # that its client is not installed
    with _without(*_NOT_FOR_BEAM):
        import apache_beam  # noqa: F401
        import pyarrow

        pyarrow.array([0])  # looks for pandas when it is first called, and not again
    told.disabled = False
    remember_signatures()


def load_mlflow() -> None:
    """Load `mlflow`, if it is installed and not loaded, likewise without pandas.

    Not where somebody's plugin is installed, which it loads then and which may need pandas.
    """
    if "mlflow" in sys.modules:
        return
    found = metadata.entry_points()
    plugins = {
        plugin.value.split(":")[0].split(".")[0]
        for group in found.groups
        if group.startswith("mlflow.")
        for plugin in found.select(group=group)
    }
    others = plugins - {"mlflow", "mlflow_ldp"}
    with nullcontext() if others else _without("pandas"), suppress(ImportError):
        import mlflow.tracking  # noqa: F401


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
