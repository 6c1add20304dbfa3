"""What docs/stability.md promises, gathered: `python -m tests.packaging.stable` writes it down.

The file is committed, so that a name that goes, or comes, is a decision that somebody reads.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("stable.json")
CONFIGURATIONS = Path(__file__).with_name("configurations_1.json")

MODULES = (
    "beam_ldp",
    "beam_ldp.accounting",
    "beam_ldp.ledger",
    "beam_ldp.log_events",
    "beam_ldp.decisions",
    "beam_ldp.planning",
    "beam_ldp.planning.questions",
    "beam_ldp.planning.ranges",
    "beam_ldp.protocols",
    "beam_ldp.randomizers",
    "beam_ldp.randomizers.base",
    "beam_ldp.randomizers.contrasts",
    "beam_ldp.randomizers.domain",
    "beam_ldp.randomizers.estimate",
    "beam_ldp.randomizers.frequency",
    "beam_ldp.randomizers.hierarchy",
    "beam_ldp.randomizers.mean",
    "beam_ldp.randomizers.questions",
    "beam_ldp.randomizers.wire",
    "beam_ldp.simulate",
    "beam_ldp.transforms",
    "mlflow_ldp",
)
FACTS = ("facts", "part_facts", "told_of_search")  # functions that say what only some records tell
WITHOUT_IMPORT = {  # TensorFlow, or Flower, is needed
    name: ROOT / name / "__init__.py" for name in ("flower_adapters", "tff_adapters")
}


def names_of(module: str) -> dict[str, list[str] | None]:
    """The public names of a module, each with its parameters; None for what is not called."""
    found = importlib.import_module(module)
    listed = getattr(found, "__all__", None)
    if listed is None:
        listed = [
            name for name, value in vars(found).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module
        ]  # fmt: skip
    return {name: parameters_of(getattr(found, name)) for name in sorted(listed)}


def parameters_of(thing: Any) -> list[str] | None:
    """Names of the parameters of a function, or of a class that says itself how it is made: what
    Python says of the others differs from version to version."""
    if inspect.isclass(thing):
        makers = (thing.__init__, thing.__new__)  # type: ignore[misc]
        own = any(inspect.isfunction(maker) for maker in makers)
        if not own or issubclass(thing, Enum) or getattr(thing, "_is_protocol", False):
            return None
    elif not inspect.isfunction(thing):
        return None
    return list(inspect.signature(thing).parameters)


def listed_in(path: Path) -> list[str]:
    """`__all__` of a module that is not imported."""
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return sorted(ast.literal_eval(node.value))
    raise LookupError(path)


def commands() -> dict[str, str]:
    """The help of every command and sub-command of `beam-ldp`, by its name."""
    from click.testing import CliRunner

    from beam_ldp.pipelines.cli import group
    from beam_ldp.release.commands import COMMANDS

    found: dict[str, str] = {}

    def look(name: tuple[str, ...]) -> None:
        found_there = COMMANDS.get(" ".join(name[:1] if name[:1] == ("plan",) else name))
        reads_itself = found_there and (found_there.in_jobs or found_there.target.endswith(":main"))
        everything = "--help-all" if reads_itself else "--help"
        told = CliRunner().invoke(group, [*name, everything], terminal_width=200)
        assert told.exit_code == 0, (name, told.output)
        if name:
            found[" ".join(name)] = told.output
        below = re.search(r"^Commands:\n((?:  .*\n?)+)", told.output, re.M)
        for child in re.findall(r"^  ([a-z-]+)", below[1], re.M) if below else ():
            look((*name, child))

    look(())
    return found


def facts() -> set[str]:
    """The fields that only records of some kinds of questions have."""
    return {
        key.value
        for path in (ROOT / "beam_ldp").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in FACTS
        for told in ast.walk(node) if isinstance(told, ast.Dict)
        for key in told.keys if isinstance(key, ast.Constant)
    }  # fmt: skip


def flags_of(help_text: str) -> list[str]:
    """The flags that a help text describes, and not those of its examples."""
    return sorted(set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z][a-z-]*)", help_text, re.M)))


def everything() -> dict[str, Any]:
    """All that is promised to stay."""
    from beam_ldp.ledger.store import SCHEMA
    from beam_ldp.log_events import EVENTS
    from beam_ldp.pipelines import programs
    from beam_ldp.randomizers import wire
    from beam_ldp.release import record
    from beam_ldp.transforms.elements.stages import METRICS

    return {
        "names": {
            **{module: names_of(module) for module in MODULES},
            **{name: listed_in(path) for name, path in WITHOUT_IMPORT.items()},
        },
        "flags": {name: flags_of(told) for name, told in commands().items()},
        "exit_codes": [programs.DONE, programs.FAILED, programs.MISUSED, programs.NOTHING_RELEASED],
        "record_fields": {
            "every record": sorted(
                {field.name for field in dataclasses.fields(record.PrivacyRecord)}
                - set(record.NOT_WRITTEN)
            ),
            "some records": sorted(facts() - set(record.NOT_WRITTEN)),
        },
        "events": {event.name: list(event.fields) for event in EVENTS},
        "metrics": {metric.name: metric.kind for metric in METRICS},
        "versions": {
            "wire_format": wire.FORMAT_VERSION,
            "release_terms": wire.TERMS_VERSION,
            "ledger_schema": SCHEMA,
            "record_schema": record.SCHEMA_VERSION,
        },
        "refusals": list(wire.REASONS),
    }


def configurations() -> dict[str, dict[str, Any]]:
    """The configuration of a mechanism of every kind, by name."""
    from tests.randomizers.frequency.all_oracles import oracles_of
    from tests.transforms.mean_mechanisms import MECHANISMS

    found = {name: oracle.to_config() for name, oracle in oracles_of(5, 1.0)}
    return found | {name: mechanism.to_config() for name, mechanism in MECHANISMS.items()}


def main() -> None:
    FILE.write_text(json.dumps(everything(), indent=1, sort_keys=True) + "\n")
    if not CONFIGURATIONS.exists():  # what was written once must be read for ever
        CONFIGURATIONS.write_text(json.dumps(configurations(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
