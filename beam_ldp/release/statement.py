"""The privacy statement and the printed table of a release, which templates say of its record.

A kind of release is a template, `templates/KIND.md.j2`, of this package or of one that was named to
`say_by`: it extends `statement.md.j2` and says what differs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from beam_ldp.accounting.reconstruction_audit import at_least, at_most
from beam_ldp.questions.forging import forged_in_rounds, forged_list, forged_said, mechanism_of
from beam_ldp.randomizers.estimate import readable
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON, odds
from beam_ldp.wording import factor, many, number, promise, rounded_down

if TYPE_CHECKING:
    from jinja2 import Environment

_packages = [__package__]


def say_by(package: str) -> None:
    """Name a package whose folder `templates` says further kinds of release."""
    if package not in _packages:
        _packages.append(package)
        templates.cache_clear()


def statement(record: Mapping[str, Any]) -> str:
    """Markdown, for people who decide whether a release is acceptable.

    Args:
        record: as `PrivacyRecord.told` has it.

    Raises:
        jinja2.TemplateNotFound: if there is no template of its kind.
    """
    return "\n".join(_lines(_by_kind(record, "statement"))).rstrip() + "\n"


def price_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who is protected against whom, in a few lines: headings, and texts in Rich's markup."""
    rows = (line[2:].split(" | ", 1) for line in _lines(_by_kind(record, "table")) if line)
    return [(heading, text) for heading, text in rows]


def render(template: str, record: Mapping[str, Any], **more: Any) -> str:
    """A template with what it may know of a record, and more."""
    return templates().get_template(template).render(_facts(record) | more)


def _by_kind(record: Mapping[str, Any], layout: str) -> str:
    return render(f"{record['kind']}.md.j2", record, layout=layout)


# The only place that knows how a record of `schema_version` 1 is laid out -------------------------

_UNSAID: dict[str, Any] = {  # by records of other kinds
    "group_by": None, "in_ranges": False, "levels": (), "message_epsilon": None,
    "messages_per_user": 1, "model": "shuffle", "readers": (), "rounds": (), "sampling": "fixed",
    "statistic": None, "unit": None,
}  # fmt: skip


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    """What templates know: a record's fields, and what follows from them."""
    facts = _UNSAID | dict(record)
    if not facts["simulated"]:  # JSON has no infinity
        facts |= {name: math.inf for name in ("epsilon", "local_epsilon") if facts[name] is None}
    mechanism, parts = facts["mechanism"], facts.get("parts", ())
    return facts | {
        "alone_epsilon": facts.get("report_epsilon", facts["local_epsilon"]),
        "groups": list({part["group"]: part for part in parts}.values()),
        "highest_epsilon": MAX_LOCAL_EPSILON,
        "infinity": math.inf,
        "local": facts["model"] == "local",
        "mechanism_name": str(mechanism.get("mechanism", "")),
        "messages": facts["messages_per_user"] > 1,
        "questions": list(dict.fromkeys(part["question"] for part in parts)),
        "randomizer": mechanism_of(mechanism),
        "recoverable": mechanism.get("mechanism") == "RecoverableResponse",
        "uncharged": facts["charged"].removeprefix("no: "),
    }


# How templates write ------------------------------------------------------------------------------


@cache
def templates() -> Environment:
    """The templates of all packages that have some. Pages escape every value."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in _packages]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        finalize=lambda told: told.strip() if isinstance(told, str) else told,
    )
    found.filters |= _FILTERS
    return found


def _lines(text: str) -> list[str]:
    """Lines of Markdown: each paragraph, bullet and row in one, and one empty line at most between
    them, none within a list or a table."""
    found = [""]
    for line in map(str.strip, text.splitlines()):
        above, opens = found[-1], line[:2] in ("* ", "| ", "|-", "# ", "##")
        if opens and not above and found[-2:-1] and found[-2][:2] == line[:2]:
            found[-1] = line
        elif opens or not line or not above or above.startswith("#"):
            found += [line] if line or above else []
        else:
            found[-1] += line if line[0] in ",.;:" else f" {line}"
    return found[1:]


def _code(text: object) -> str:
    """A name between backquotes, on one line."""
    clean = "".join(c if c.isprintable() and c != "`" else " " for c in str(text))
    return f"`{clean}`"


def _escaped(text: object) -> str:
    from rich.markup import escape

    return escape(" ".join(str(text).split()))


def _described(config: Mapping[str, Any], bits: int | None = None) -> str:
    """A mechanism with its parameters; those of its rounds likewise, where it has rounds; what is
    told level by level stands elsewhere."""
    parameters = [
        f"{name}: {_described(value)}" if isinstance(value, Mapping) else f"{name} = {value}"
        for name, value in config.items()
        if name not in ("mechanism", "version", "protocol", "levels") and value is not None
    ]
    if bits is not None:
        parameters.append(f"{many(bits, 'bit')} per report")
    return f"{config.get('mechanism', '')} ({', '.join(parameters)})".lstrip()


_FILTERS: dict[str, Any] = {
    "at_least": at_least,
    "at_most": at_most,
    "code": _code,
    "commas": "{:,}".format,
    "described": _described,
    "distances": forged_list,
    "escaped": _escaped,
    "factor": factor,
    "forged": lambda config, unit: forged_said(mechanism_of(config), unit=unit),
    "forged_in_rounds": lambda config, *of: forged_in_rounds(mechanism_of(config), *of),
    "many": many,
    "number": number,
    "odds": odds,
    "plain": "{:g}".format,
    "promise": promise,
    "quoted": lambda text: _escaped(repr(text)),
    "readable": readable,
    "rounded_down": rounded_down,
    "said": lambda text: json.dumps(" ".join(filter(None, _lines(text)))) + "\n",
}
