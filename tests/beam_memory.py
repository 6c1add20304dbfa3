"""What Beam works out many times for each pipeline, and always the same, is worked out once.

A test's pipeline of a dozen stages asks for the signatures of its methods four thousand times,
builds a hundred and fifty parsers for the same flags, reads the source of its functions, and
compresses the same stages: that is half of what it costs. Two things are left out: a `TestPipeline`
is not written and read once more before its runner writes it (no other pipeline is), and no thread
samples how long stages take, for whose end every bundle waits. Nothing else is changed. Programs
that tests start in processes of their own run on Beam as it is.
"""

from __future__ import annotations

import bz2
import functools
import sys
import threading
import types
import weakref
from argparse import Namespace
from collections.abc import Callable
from inspect import Signature
from typing import Any

from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statesampler
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators

Specs = tuple[set, set]  # of states and of timers

_signature = decorators.get_signature
_specs = userstate.get_dofn_specs
_view_as = PipelineOptions.view_as
_check_fn_use_yield_and_return = core._check_fn_use_yield_and_return

_functions: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()
_methods: weakref.WeakKeyDictionary[Any, Signature] = weakref.WeakKeyDictionary()
_dofns: weakref.WeakKeyDictionary[type, tuple[list[str], tuple[set, set]]] = (
    weakref.WeakKeyDictionary()
)
_flags: dict[tuple[type, tuple[str, ...]], Namespace] = {}
_plain: set[types.CodeType | None] = set()


def get_signature(func: Callable) -> Signature:
    """Beam's, of a function or a method once."""
    if type(func) is types.MethodType and type(func.__func__) is types.FunctionType:
        known, key = _methods, func.__func__
    elif type(func) is types.FunctionType:
        known, key = _functions, func
    else:
        return _signature(func)
    if key not in known:
        known[key] = _signature(func)
    return known[key]


def get_dofn_specs(dofn: core.DoFn) -> Specs:
    """Beam's, of a class once; of a function in a wrapper, only that function is asked anew."""
    kind = type(dofn)
    if kind not in _dofns:
        asked = [name for name in dir(kind) if name.startswith("_inspect_")]
        _dofns[kind] = [name.removeprefix("_inspect_") for name in asked], _specs(dofn)
    wrapped, (states, timers) = _dofns[kind]
    own = any(type(value) is types.MethodType for value in vars(dofn).values())
    if own or wrapped and (states or timers or any(_has_parameters(dofn, n) for n in wrapped)):
        return _specs(dofn)
    return set(states), set(timers)


def _has_parameters(dofn: core.DoFn, method: str) -> bool:
    """Whether Beam hands the method more than the element: a window, a state, a timer."""
    defaults = core.get_function_arguments(dofn, method)[1]
    return any(isinstance(default, core._DoFnParam) for default in defaults)


def view_as(self: PipelineOptions, cls: type[PipelineOptions]) -> PipelineOptions:
    """Beam's, with what the flags say to each class parsed once."""
    if cls.__init__ is not PipelineOptions.__init__:
        return _view_as(self, cls)
    key = cls, tuple(sys.argv[1:] if self._flags is None else self._flags)
    if key not in _flags:
        _flags[key] = cls(self._flags)._visible_options
    view = cls.__new__(cls)
    view._flags = self._flags
    view._visible_options = Namespace()
    for name, value in vars(_flags[key]).items():
        mine = value.copy() if isinstance(value, (list, dict)) else value
        setattr(view._visible_options, name, mine)
        self._all_options.setdefault(name, mine)
    view._all_options = self._all_options
    return view


def check_fn_use_yield_and_return(fn: Callable) -> bool:
    """Beam's, from the source of a function once where that is well."""
    code = getattr(fn, "__code__", None)
    if code not in _plain:
        mixed = _check_fn_use_yield_and_return(fn)
        if code is None or mixed:
            return mixed
        _plain.add(code)
    return False


class Compression:
    """`bz2`, whose results are kept: whatever it compressed, it reads back."""

    compress = staticmethod(functools.lru_cache(maxsize=2048)(bz2.compress))
    decompress = staticmethod(functools.lru_cache(maxsize=2048)(bz2.decompress))


class StateSampler(statesampler.StateSampler):
    """Knows the stage that is running, as Beam's without its compiled parts does, and no times."""

    def start(self) -> None:
        self.tracked_thread = threading.current_thread()
        statesampler.set_current_tracker(self)
        self.started = True

    def stop(self) -> None:
        statesampler.set_current_tracker(None)
        self.finished = True


def remember() -> None:
    """From now on, in this process."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("apache_beam"):
            for ours, theirs in ((get_signature, _signature), (get_dofn_specs, _specs)):
                if vars(module).get(ours.__name__) is theirs:
                    setattr(module, ours.__name__, ours)
    PipelineOptions.view_as = view_as  # type: ignore[method-assign]
    core._check_fn_use_yield_and_return = check_fn_use_yield_and_return
    cloudpickle_pickler.bz2 = Compression
    statesampler.StateSampler = StateSampler
    TestPipeline.run = functools.partialmethod(TestPipeline.run, test_runner_api=False)
