"""docs/glossary.md has the terms, the flags and the placeholders of every command's help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.flag_tables import flags_in
from tests.packaging.stable import commands

pytestmark = pytest.mark.exact

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text("utf-8")

# Nouns of the help that a newcomer to the field may ask about.
TERMS = (
    "adaptive", "anchor", "audit", "bins", "budget", "central epsilon", "charge", "clip",
    "dataset", "dead-letter", "delta", "device", "domain", "envelope", "error bar",
    "event", "fan-out", "frequency oracle", "group", "honest fraction", "identity", "interval",
    "ledger", "local epsilon", "mechanism", "mechanism-specific blanket", "memoized", "message",
    "noise multiplier", "outliers", "plan", "poisson", "population", "privacy cost",
    "privacy unit", "quantile", "question", "quota", "randomize", "reconstruction", "release",
    "report", "round", "seed", "shuffler", "split budget", "standard error", "target", "window",
)  # fmt: skip

# Flags whose own line says all there is to say.
SELF_EXPLANATORY = """
--algorithm --author --baselines --batch-size --by --classes --client-id --client-learning-rate
--curator --intended-use --name --region --registry
--clients --group-share
--csv-delimiter --data --format --html --input --input-format --job-endpoint --label
--job-timeout
--learning-rate --local-epochs --local-steps --memory --mlflow-experiment --mlflow-uri --no-mlflow
--output --overwrite --personal-learning-rate --plot --preset --prior --psi --psi-clip
--psi-learning-rate --psi-range --public-clients --resume --scale --shape --shards-per-client
--shared-learning-rate --staged --stop-after --test-data --top --users --why
"""


def says(term: str, text: str) -> bool:
    """Whether a text has the term, with a space or a hyphen."""
    return bool(re.search(rf"\b{re.sub('[ -]', '[ -]', term)}", text, re.IGNORECASE))


def entries(page: str) -> dict[str, str]:
    """Every term with its paragraph."""
    parts = page.split("\n## ")[0].split("\n\n")[2:]
    found = {}
    for part in filter(str.strip, parts):
        entry = re.match(r"\*\*([^*]+)\*\*( \([^)]+\))?: \S", part)
        assert entry, part
        found[entry[1]] = " ".join(part.split())
    return found


def missing_terms(page: str) -> set[str]:
    """Terms that stand in the help and in no entry."""
    text = " ".join(entries(page).values())
    return {term for term in TERMS if not says(term, text)}


def flags() -> tuple[set[str], set[str]]:
    """Every flag of every command, and every placeholder."""
    names, placeholders = set(), set()
    for text in commands().values():
        for flag, metavar, _ in flags_in(text):
            names.add(flag)
            if not re.search(r"[\[{/]", metavar):
                placeholders.update(re.findall(r"[A-Z][A-Za-z]*0?(?::[A-Z]+)?", metavar))
    return names, placeholders


def test_terms_of_the_help_are_in_the_glossary() -> None:
    text = " ".join(" ".join(commands().values()).split())
    unused = {term for term in TERMS if not says(term, text)}
    assert not unused, f"no help says {unused} any more"
    assert not missing_terms(PAGE)


def test_a_term_that_is_taken_out_is_missed() -> None:
    for term in ("quota", "envelope", "fan-out"):
        short = re.sub(rf"\b{term}", "thing", PAGE, flags=re.IGNORECASE)
        assert missing_terms(short) == {term}


def test_every_flag_has_an_entry_or_explains_itself() -> None:
    names, placeholders = flags()
    told = set(re.findall(r"`(--[a-z][a-z-]*)`", PAGE))
    assert len(names) > 120 and told <= names, told - names
    plain = set(SELF_EXPLANATORY.split())
    assert not told & plain and plain <= names, plain - names
    assert names - told == plain, names - told - plain
    listed = set(re.findall(r"`([A-Za-z0:]+)`", PAGE.split("\n## ")[1]))
    assert len(placeholders) > 20 and placeholders <= listed, placeholders - listed


def test_terms_are_in_order_and_short() -> None:
    found = entries(PAGE)
    assert len(found) > 50 and list(found) == sorted(found, key=str.casefold)
    for term, text in found.items():
        said = text.split("Flags: ")[0]
        assert said.rstrip().endswith("."), term
        assert len(said) < 420 and len(re.findall(r"[.;] ", said)) <= 4, term
