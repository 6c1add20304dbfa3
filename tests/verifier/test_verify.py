"""The verifier confirms what is true, refuses what is false, and rounds outward."""

from __future__ import annotations

import ast
import copy
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Context, localcontext
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import pytest

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.certificates import SLACK, certificate_for
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, REFUTED, Table, delta_at, verify
from tests.verifier.statements import IDENTITY, events, several_messages, statement

pytestmark = pytest.mark.exact

SOURCE = Path(program.__file__)


@pytest.fixture(scope="module")
def statements() -> list[dict[str, Any]]:
    return [statement(event, delta) for event, delta in events(36)]


# What it is ------------------------------------------------------------------------------


def test_it_is_one_short_program_of_the_standard_library() -> None:
    source = SOURCE.read_text()
    assert len(source.splitlines()) <= 500
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names
    assert "numpy" not in source.replace("NumPy", "")


def test_as_a_program(tmp_path: Path, statements: list[dict[str, Any]]) -> None:
    """Exit codes 0, 1 and 2 with a line each; it runs where nothing is installed."""
    good, bad, none = (tmp_path / name for name in ("good", "bad", "none"))
    good.write_text(json.dumps(statements[1]))
    bad.write_text(json.dumps(statements[1] | {"delta": statements[1]["delta"] / 2}))
    none.write_text("{}")
    for path, code, begins in (
        (good, 0, "confirmed at epsilon "),
        (bad, 1, "not confirmed, because "),
        (none, 2, "not independently checkable: "),
    ):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SOURCE), str(path)], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.startswith(begins)) == (code, True), done


def test_a_row_of_the_ledger_says_the_same(
    tmp_path: Path, statements: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    told = statements[1]
    names = ("epsilon", "delta", "num_reports", "certificate")
    row = {"event": told["event"], "about": {name: told[name] for name in names}}
    paths = [tmp_path / name for name in ("statement", "row", "fewer")]
    fewer = {**row, "about": {**row["about"], "num_reports": told["num_reports"] - 1}}
    for path, content in zip(paths, (told, row, fewer), strict=True):
        path.write_text(json.dumps(content))
    here, there, wrong = map(str, paths)
    assert program.main([here, "--row", there]) == CONFIRMED
    assert program.main([there]) == CONFIRMED
    assert program.main([here, "--row", wrong]) == REFUTED
    assert "another num_reports" in capsys.readouterr().out
    assert program.main([]) == program.main([str(tmp_path)]) == NOTHING


# True statements -------------------------------------------------------------------------


def test_it_confirms_what_the_accountant_states(statements: list[dict[str, Any]]) -> None:
    for told in statements:
        found = verify(told)
        assert found.code == CONFIRMED, (found.text, told["event"])
    kinds = [told["certificate"]["kind"] for told in statements]
    assert kinds.count("shuffle") >= 34  # hardly any is confirmed only for lack of a crowd
    assert {len(told["certificate"].get("sums", "")) for told in statements} >= {1, 2}


@pytest.mark.slow
def test_a_thousand_statements_take_less_than_a_minute() -> None:
    made = [statement(event, delta) for event, delta in events(1000, seed=1)]
    begun = time.process_time()
    assert [verify(told).code for told in made] == [CONFIRMED] * 1000
    assert time.process_time() - begun < 60


def test_pure_epsilons_need_no_sum() -> None:
    event = LocalReports(8.0).shuffled(5)
    told = statement(event, 1e-9)
    assert told["certificate"]["kind"] == "local"
    assert verify(told).text.startswith("confirmed at epsilon 8.004 delta 1e-09")


def test_what_has_no_certificate_says_so() -> None:
    told = statement(several_messages(), 1e-6)
    found = verify(told)
    assert found.code == NOTHING
    assert found.text == f"not independently checkable: {told['certificate']['why']}"
    conjectured = certificate_for(told | {"proof_status": "conjectured"})
    assert "conjectured" in conjectured["why"]
    assert "no finite" in certificate_for(told | {"epsilon": None})["why"]


def test_a_statement_that_is_too_small_gets_no_certificate(
    statements: list[dict[str, Any]],
) -> None:
    small = statements[1] | {"epsilon": statements[1]["epsilon"] * (1 - 2 * float(SLACK))}
    assert certificate_for(small)["kind"] == "none"


# False statements ------------------------------------------------------------------------


def _both(told: dict[str, Any], name: str, value: Any) -> None:
    told[name] = told["certificate"][name] = value


def _fewer(told: dict[str, Any], share: float) -> None:
    """Fewer reports than stated, in the event and the certificate alike."""
    event, found = told["event"]["event"], told["certificate"]
    event["num_reports"] -= int(event["num_reports"] * share)
    found["reports"] = event["num_reports"]
    found["honest"] = event["num_reports"] - event["num_fakes"]
    found["crowd"] = min(found["crowd"], found["honest"])


def _move(column: list[str], share: int) -> None:
    """A part of the first weight goes to the last one."""
    part = int(column[0]) // share
    column[0], column[-1] = str(int(column[0]) - part), str(int(column[-1]) + part)


def _more_blanket(found: dict[str, Any]) -> None:
    found["blanket"] = [str(int(b) * 101 // 100) for b in found["blanket"]]
    found["mass"] = f"{sum(map(int, found['blanket']))}/{found['scale']}"


Mutate = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]

MUTANTS: dict[str, Mutate] = {  # of a statement, its certificate and the content of its event
    "epsilon": lambda told, c, e: _both(told, "epsilon", told["epsilon"] * (1 - 1.1e-3)),
    "half of epsilon": lambda told, c, e: _both(told, "epsilon", told["epsilon"] / 2),
    "epsilon of the statement alone": lambda told, c, e: told.update(epsilon=0.9 * told["epsilon"]),
    "delta": lambda told, c, e: _both(told, "delta", told["delta"] * 0.95),
    "delta of the statement alone": lambda told, c, e: told.update(delta=0.99 * told["delta"]),
    "reports of the event": lambda told, c, e: e.update(num_reports=e["num_reports"] - 1),
    "a percent fewer reports": lambda told, c, e: _fewer(told, 0.01),
    "half of the reports": lambda told, c, e: _fewer(told, 0.5),
    "a larger crowd": lambda told, c, e: c.update(crowd=c["honest"] + 1),
    "fakes": lambda told, c, e: e.update(num_fakes=e["num_fakes"] + 1),
    "groups": lambda told, c, e: e["local_event"].update(public_groups=3),
    "messages": lambda told, c, e: e["local_event"].update(messages=2),
    "a part of a weight": lambda told, c, e: _move(c["first"], 10_000),
    "a weight": lambda told, c, e: c["second"].__setitem__(0, c["second"][0] + "1"),
    "a weight is text": lambda told, c, e: c["first"].__setitem__(0, "1e3"),
    "a larger blanket": lambda told, c, e: _more_blanket(c),
    "a mass": lambda told, c, e: c.update(mass="1/3"),
    "a row of the table": lambda told, c, e: [c[x].pop() for x in ("first", "second", "blanket")],
    "another budget": lambda told, c, e: e["local_event"].update(local_epsilon=5.0, pair=None),
    "a direction": lambda told, c, e: c["sums"].pop(),
    "too few nodes": lambda told, c, e: [one.update(nodes=8) for one in c["sums"]],
    "a wide spacing": lambda told, c, e: [one.update(spacing="1000") for one in c["sums"]],
    "another tilt": lambda told, c, e: [one.update(tilt="0.000000000001") for one in c["sums"]],
    "release": lambda told, c, e: told.update(identity_digest="00" * 32),
    "slack": lambda told, c, e: c.update(slack="1/100"),
    "version": lambda told, c, e: c.update(version=2),
    "kind": lambda told, c, e: c.update(kind="local"),
    "unknown kind": lambda told, c, e: c.update(kind="trust me"),
    "a sampled event": lambda told, c, e: e.update(kind="SubsampledShuffledDpEvent"),
    "an unknown field": lambda told, c, e: e.update(num_absent=3),
}


def _mutants(told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, mutate in MUTANTS.items():
        changed = copy.deepcopy(told)
        mutate(changed, changed["certificate"], changed["event"]["event"])
        yield name, changed


def test_a_thousand_false_statements_are_rejected(statements: list[dict[str, Any]]) -> None:
    """Each false by more than the slack of the certificate, in one way."""
    shuffled = [told for told in statements if told["certificate"]["kind"] == "shuffle"]
    made = [mutant for told in shuffled for mutant in _mutants(told)]
    assert len(made) >= 1000
    kept = [(name, verify(changed).text) for name, changed in made
            if verify(changed).code != REFUTED]  # fmt: skip
    assert kept == []


def test_what_is_malformed_never_escapes(statements: list[dict[str, Any]]) -> None:
    for name in statements[1]["certificate"]:
        for value in (None, [], {}, "x", -1, 1e400, "1" * 400, "1/0", "-1", True):
            changed = copy.deepcopy(statements[1])
            changed["certificate"][name] = value
            if name in ("any_randomizer",) or (name, value) == ("version", True):
                continue
            assert verify(changed).code in (REFUTED, NOTHING), (name, value)


# Rounding --------------------------------------------------------------------------------


def _exact(table: Table, crowd: int, odds: Fraction) -> Fraction:
    """E[max(X_1 + ... + X_crowd, 0)] / crowd, by every sequence of reports."""
    law = [((f - odds * s) / b, Fraction(b, table.scale)) for f, s, b in table.kinds()]
    law.append((Fraction(0), 1 - sum(p for _, p in law)))
    total = Fraction(0)
    for seen in product(law, repeat=crowd):
        value = sum((x for x, _ in seen), Fraction(0))
        if value > 0:
            total += value * math.prod(p for _, p in seen)
    return total / crowd


@pytest.mark.parametrize("crowd", [1, 2, 5])
@pytest.mark.parametrize("noise", ["0.5", "0.02"])
def test_every_sum_is_above_the_enumerated_one_and_close(crowd: int, noise: str) -> None:
    """By Jensen's inequality, at any grid; as the Gaussian narrows, no more than it adds."""
    table = Table([6, 1, 3], [1, 5, 4], [1, 1, 3], 10)
    epsilon = Fraction(1, 2)
    grid = {"tilt": "0.7", "noise": noise, "spacing": "0.05"}
    with localcontext(Context(prec=60)):
        grid["nodes"] = math.ceil(9 / (float(noise) * 0.05))
        found = delta_at(table, crowd, epsilon, grid)
        exact = _exact(table, crowd, program._exp(epsilon, "ROUND_FLOOR"))
    assert exact <= found <= exact + Fraction(noise) / 2 / crowd + Fraction(1, 10**9)


def test_a_sum_agrees_with_sixty_digits(statements: list[dict[str, Any]]) -> None:
    """The same series by mpmath, of which the program's is no less, and within 1e-25."""
    mpmath.mp.dps = 60
    for told in statements[1:4]:
        found, local = told["certificate"], told["event"]["event"]["local_event"]
        with localcontext(Context(prec=60)):
            table = program._table(found, local)
            epsilon = Fraction(told["epsilon"]) * (1 + SLACK)
            for side, grid in zip(table.sides(), found["sums"], strict=True):
                longer = grid | {"nodes": 3 * grid["nodes"]}  # what is left out is 1e-50
                cut, whole = (delta_at(side, found["crowd"], epsilon, g) for g in (grid, longer))
                exact = _series(side, found["crowd"], epsilon, longer)
                mine = mpmath.mpf(whole.numerator) / whole.denominator
                assert 0 <= (mine - exact) / exact < mpmath.mpf("1e-25")
                assert whole <= cut < whole * (1 + Fraction(1, 10**5))
    mpmath.mp.dps = 15


def _series(table: Table, crowd: int, epsilon: Fraction, grid: dict[str, Any]) -> mpmath.mpf:
    """The trapezoidal sum of the inverted transform, as `docs/certificates.md` has it."""
    tilt, noise, step = (mpmath.mpf(grid[name]) for name in ("tilt", "noise", "spacing"))
    odds = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    atoms = [((f - odds * s) / b, mpmath.mpf(b) / table.scale) for f, s, b in table.kinds()]
    rest = 1 - mpmath.fsum(p for _, p in atoms)

    def term(m: int) -> mpmath.mpf:
        z = mpmath.mpc(tilt, m * step)
        moment = rest + mpmath.fsum(p * mpmath.exp(z * x) for x, p in atoms)
        return mpmath.re(moment**crowd * mpmath.exp(z * z * noise**2 / 2) / (z * z))

    total = term(0) + 2 * mpmath.fsum(term(m) for m in range(1, grid["nodes"] + 1))
    return total * step / (2 * mpmath.pi) / crowd


def test_turns_and_exponentials_round_as_they_say() -> None:
    mpmath.mp.dps = 80
    with localcontext(Context(prec=60)):
        for angle in (Fraction(1, 3), Fraction(-22, 7), Fraction(10**6, 7), Fraction(1, 10**30)):
            cosine, sine = program._unit(angle)
            exact = mpmath.mpf(angle.numerator) / angle.denominator
            assert abs(mpmath.mpf(cosine) / program.ONE - mpmath.cos(exact)) < mpmath.mpf("1e-56")
            assert abs(mpmath.mpf(sine) / program.ONE - mpmath.sin(exact)) < mpmath.mpf("1e-56")
        for value in (Fraction(0), Fraction(1, 3), Fraction(20), Fraction(1, 10**12)):
            low, high = (program._exp(value, side) for side in ("ROUND_FLOOR", "ROUND_CEILING"))
            exact = mpmath.exp(mpmath.mpf(value.numerator) / value.denominator)
            assert mpmath.mpf(low.numerator) / low.denominator < exact
            assert mpmath.mpf(high.numerator) / high.denominator > exact
            assert high - low < high / 10**55
    mpmath.mp.dps = 15


def test_the_chance_of_a_smaller_group_is_added_up() -> None:
    """Exactly a binomial's lower tail: of 20 in 4 groups, fewer than 2."""
    exact = Fraction(3, 4) ** 20 + 20 * Fraction(1, 4) * Fraction(3, 4) ** 19
    with localcontext(Context(prec=60)):
        found = program._binomial_below(2, 20, 4)
    assert exact <= found <= exact * (1 + Fraction(1, 10**20))


def test_identities_bind(statements: list[dict[str, Any]]) -> None:
    assert {told["certificate"]["identity"] for told in statements} == {IDENTITY}
    event = LocalReports(2.0).shuffled(10_000)
    assert math.isclose(statement(event, 1e-6)["epsilon"], event_epsilon(event, 1e-6))
