"""What leaves a client: every flow from clients to the server, read from the computation itself.

A federated computation is a tree of building blocks. Here it is run on what is known of values
instead of on values: which client data they depend on, and which mark of ours they went through on
the client. Wherever a value placed at clients goes into something that the server gets, that is a
flow, however deeply it is nested and whatever the aggregation is called.

A flow is *ours* if all that it depends on went through client computations that factories of this
package marked when they built them (`mark`): randomized there, or clipped for a server that adds
the noise. It is *a count* if it depends on no data of any client: how many came is not protected.
Anything else has no price here, and must be declared public with a reason, or is refused.

What a mark promises is the price's to say, and only within this process: a computation that was
built elsewhere carries none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.federated.training import COUNT, OURS, PUBLIC, UNPRICED, Flow, refuse_unpriced
from tff_adapters.compat import language, tff

_AT_CLIENTS = "result at clients"


def mark(computation: Any, protection: str, at: tuple[int, ...] = ()) -> Any:
    """Mark what a client computation gives (or the part of it `at` these indices) as protected.

    Returns:
        The computation.
    """
    _MARKS.setdefault(_digest(computation.to_building_block()), {})[at] = protection
    return computation


_MARKS: dict[bytes, dict[tuple[int, ...], str]] = {}


def flows_of(process: Any, public_flows: Mapping[str, str] | None = None) -> tuple[Flow, ...]:
    """Every flow from clients to the server in one round of a process.

    Args:
        process: whatever has a federated computation as `next` (or as `computation`).
        public_flows: reasons why flows of these names may be public.

    Raises:
        ValueError: if the process has no computation that can be read, `public_flows` names what
            does not leave clients, or gives no reason.
    """
    computation: Any = getattr(process, "computation", None) or getattr(process, "next", None)
    if not hasattr(computation, "to_building_block"):
        raise ValueError(
            "process must have a federated computation as `next`, so that what leaves clients can "
            f"be read, got {type(process).__name__}"
        )
    declared = dict(public_flows or {})
    found = _Reader().read(computation.to_building_block())
    unknown = sorted(set(declared) - {flow.name for flow in found})
    if unknown:
        raise ValueError(
            f"public_flows must name flows of the process ({', '.join(f.name for f in found)}), "
            f"got {unknown[0]!r}"
        )
    if not all(isinstance(reason, str) and reason.strip() for reason in declared.values()):
        raise ValueError("public_flows must give the reason of each flow, as text")
    return tuple(
        replace(flow, verdict=PUBLIC, protection=declared[flow.name])
        if flow.verdict == UNPRICED and flow.name in declared
        else flow
        for flow in found
    )


def check_flows(process: Any, public_flows: Mapping[str, str] | None = None) -> tuple[Flow, ...]:
    """The same, refusing those that nothing prices.

    Raises:
        UnpricedFlowError: naming each of them.
    """
    found = flows_of(process, public_flows)
    refuse_unpriced(found)
    return found


# What is known of values -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A value without parts: the client data that it depends on, and marks that it went through.

    Data that went through a mark counts no more as data.
    """

    data: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()


_NOTHING = _Known()  # of clients: constants, and what the server knows already


@dataclass(frozen=True)
class _Parts:
    """A structure, part by part."""

    parts: tuple[Any, ...]
    names: tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class _Closure:
    """A function and what its free names stand for."""

    block: Any
    names: Mapping[str, Any]


def _leaves(value: Any) -> Iterator[_Known]:
    if isinstance(value, _Parts):
        for part in value.parts:
            yield from _leaves(part)
    elif isinstance(value, _Known):
        yield value


def _functions(value: Any) -> Iterator[_Closure]:
    if isinstance(value, _Parts):
        for part in value.parts:
            yield from _functions(part)
    elif isinstance(value, _Closure):
        yield value


def _joined(values: Iterable[Any]) -> _Known:
    """All that any of the values depends on."""
    leaves = [leaf for value in values for leaf in _leaves(value)]
    return _Known(
        frozenset().union(*(leaf.data for leaf in leaves)),
        frozenset().union(*(leaf.marks for leaf in leaves)),
    )


class _Reader:
    """Runs a computation on what is known of its values, and writes flows down."""

    def __init__(self) -> None:
        self._flows: list[Flow] = []
        self._seen: set[int] = set()

    def read(self, block: Any) -> tuple[Flow, ...]:
        signature = block.type_signature
        asked = signature.parameter
        result = self._apply(self._eval(block, {}), None if asked is None else _asked(asked, ""))
        for part, kind in _placed(result, signature.result, language.CLIENTS):
            self._note(_AT_CLIENTS, part, kind)
        self._rest(block)
        return tuple(self._flows)

    def _rest(self, block: Any) -> None:
        """Aggregations that were not come by, in functions that something else may call."""

        def visit(part: Any) -> tuple[Any, bool]:
            if isinstance(part, tff.framework.Intrinsic) and id(part) not in self._seen:
                sent = _sent(part)
                if sent is not None:
                    self._note(part.uri, _Known(frozenset(["unknown"])), sent[1])
            return part, False

        tff.framework.transform_preorder(block, visit)

    def _eval(self, block: Any, names: Mapping[str, Any]) -> Any:
        """What is known of a block's value."""
        blocks = tff.framework
        if isinstance(block, blocks.Reference):
            return names[block.name]
        if isinstance(block, blocks.Selection):
            return _selected(self._eval(block.source, names), block)
        if isinstance(block, blocks.Struct):
            parts = tff.structure.to_elements(block)
            known = tuple(self._eval(part, names) for _, part in parts)
            return _Parts(known, tuple(name for name, _ in parts))
        if isinstance(block, blocks.Call):
            function = self._eval(block.function, names)
            asked = None if block.argument is None else self._eval(block.argument, names)
            return self._apply(function, asked)
        if isinstance(block, blocks.Block):
            inner = dict(names)
            for name, value in block.locals:
                inner[name] = self._eval(value, inner)
            return self._eval(block.result, inner)
        if isinstance(block, (blocks.Lambda, blocks.Intrinsic, blocks.CompiledComputation)):
            return _Closure(block, names)
        if isinstance(block, (blocks.Literal, blocks.Placement)):
            return _NOTHING
        return _Known(frozenset([type(block).__name__.lower()]))  # data that is held elsewhere

    def _apply(self, function: Any, asked: Any) -> Any:
        if not isinstance(function, _Closure):  # it came in from outside: nothing is known of it
            return _Known(_joined([function, asked]).data | {"unknown"})
        block, names = function.block, dict(function.names)
        if isinstance(block, tff.framework.Lambda):
            if block.parameter_name is not None:
                names[block.parameter_name] = asked
            return self._eval(block.result, names)
        if isinstance(block, tff.framework.Intrinsic):
            return self._intrinsic(block, asked)
        return _computed(block, asked)

    def _intrinsic(self, block: Any, asked: Any) -> Any:
        self._seen.add(id(block))
        sent = _sent(block)
        if sent is not None:
            at, kind = sent
            self._note(block.uri, asked if at is None else _part(asked, at), kind)
            return _NOTHING  # what it shows stands in the table
        if block.uri in _MAPS:
            return self._apply(_part(asked, 0), _part(asked, 1))
        if block.uri in _AS_THEY_ARE:
            return asked
        called = [self._apply(function, _joined([asked])) for function in _functions(asked)]
        return _joined([asked, *called])

    def _note(self, aggregation: str, sent: Any, kind: Any) -> None:
        known = _joined([sent])
        if known.data:
            verdict, of, told = UNPRICED, ", ".join(sorted(known.data)), "as it is"
        elif known.marks:
            verdict, of, told = OURS, "protected values", ", ".join(sorted(known.marks))
            told += _ONLY_SUMS if "sum" in aggregation else ""
        else:
            verdict, of, told = COUNT, "nothing of a client", "how many clients came"
        name = f"{aggregation} of {of}"
        again = sum(flow.name.partition(" #")[0] == name for flow in self._flows)
        name += f" #{again + 1}" if again else ""
        text = kind.compact_representation()
        self._flows.append(Flow(name, aggregation, text, verdict, told))


_ONLY_SUMS = "; only the sum arrives: whether a client sent what it may cannot be checked"
_MAPS = ("federated_map", "federated_map_all_equal", "federated_apply")
_AS_THEY_ARE = ("federated_zip_at_clients", "federated_zip_at_server")
_SELECTS = ("federated_select", "federated_secure_select")  # (keys, largest key, values, function)


def _sent(block: Any) -> tuple[int | None, Any] | None:
    """Where, in what an aggregation takes, that stands which clients send, and its type.

    None for what brings nothing from clients to the server. Where is None for all of it.
    """
    signature = block.type_signature
    if not isinstance(signature, language.FunctionType) or signature.parameter is None:
        return None
    if block.uri in _SELECTS:  # who asks for a part shows its keys to whoever holds the parts
        return 0, signature.parameter[0].member
    takes = _holds(signature.parameter, language.CLIENTS)
    if not (takes and _holds(signature.result, language.SERVER)):
        return None
    asked = signature.parameter
    if isinstance(asked, language.StructType):
        at = [i for i in range(len(asked)) if _holds(asked[i], language.CLIENTS)]
        if len(at) == 1:
            return at[0], asked[at[0]].member
        return None, asked
    return None, asked.member


def _holds(kind: Any, placement: Any) -> bool:
    """Whether values of this type are, or have a part that is, placed there."""
    if isinstance(kind, language.FederatedType):
        return kind.placement is placement
    if isinstance(kind, language.StructType):
        return any(_holds(kind[i], placement) for i in range(len(kind)))
    return False


def _placed(value: Any, kind: Any, placement: Any) -> Iterator[tuple[Any, Any]]:
    """Parts of a value that are placed there, with what they are of."""
    if isinstance(kind, language.StructType):
        for i in range(len(kind)):
            yield from _placed(_part(value, i), kind[i], placement)
    elif isinstance(kind, language.FederatedType) and kind.placement is placement:
        yield value, kind.member


def _asked(kind: Any, name: str) -> Any:
    """What is known of a parameter: data of clients is what it is called, the rest is nothing."""
    if isinstance(kind, language.StructType):
        return _of_struct(kind, lambda part, at: _asked(part, _path(name, at)))
    if isinstance(kind, language.FederatedType) and kind.placement is language.CLIENTS:
        return _Known(frozenset([name or "value"]))
    return _NOTHING


def _computed(block: Any, asked: Any) -> Any:
    """What a TensorFlow graph makes of what it is asked: every part may depend on everything.

    Data is called after the named part of the result that it went into.
    """
    known = _joined([asked])
    marks = _MARKS.get(_digest(block), {})

    def made(kind: Any, name: str, at: tuple[int, ...]) -> Any:
        if at in marks:
            return _Known(marks=known.marks | {marks[at]})
        inside = isinstance(kind, language.StructType) and any(m[: len(at)] == at for m in marks)
        named = isinstance(kind, language.StructType) and any(_names(kind))
        if inside or named or (isinstance(kind, language.StructType) and not name):
            return _of_struct(kind, lambda part, i: made(part, _path(name, i), (*at, i[0])))
        if not known.data or not name:
            return known
        return replace(known, data=frozenset([name]))

    return made(block.type_signature.result, "", ())


def _of_struct(kind: Any, part_of: Callable[[Any, tuple[int, str | None]], Any]) -> _Parts:
    names = _names(kind)
    parts = tuple(part_of(kind[i], (i, name)) for i, name in enumerate(names))
    return _Parts(parts, names)


def _names(kind: Any) -> tuple[str | None, ...]:
    return tuple(name for name, _ in tff.structure.to_elements(kind))


def _path(name: str, at: tuple[int, str | None]) -> str:
    return ".".join(part for part in (name, at[1]) if part)


def _selected(value: Any, block: Any) -> Any:
    if not isinstance(value, _Parts):
        return value
    index = block.index if block.name is None else value.names.index(block.name)
    return value.parts[index]


def _part(value: Any, index: int) -> Any:
    return value.parts[index] if isinstance(value, _Parts) else value


def _digest(block: Any) -> bytes:
    if not isinstance(block, tff.framework.CompiledComputation):
        raise ValueError(f"computation must be one of TensorFlow, got {type(block).__name__}")
    return hashlib.sha256(block.proto.SerializeToString(deterministic=True)).digest()


def no_client_metrics(metric_finalizers: Any, local_metrics_type: Any = None) -> Any:
    """A `metrics_aggregator` for `tff.learning.algorithms` that lets no metric leave a client.

    By default learning processes of TensorFlow Federated sum the exact loss, accuracy and number
    of examples of every client, which no privacy budget covers. Evaluate the model on public data
    instead, or price what you release.
    """
    del metric_finalizers, local_metrics_type

    @language.federated_computation
    def nothing(client_metrics: Any) -> Any:
        del client_metrics
        return language.federated_value((), language.SERVER)

    return nothing
