"""`beam-ldp privacy`: what shuffled releases cost, by every method. Reads no data."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console

from beam_ldp.pipelines.flags import format_option, whole

if TYPE_CHECKING:
    from beam_ldp.accounting.lower import PrivacyBound
    from beam_ldp.accounting.schedule import Sampling, Schedule
    from beam_ldp.research.published.methods import MethodPrice

_UNKNOWNS = ("local-epsilon", "rounds", "users", "sampled")
_LEAST_LOCAL_EPSILON, _LARGEST_LOCAL_EPSILON = 0.01, 20.0
_MOST_ROUNDS, _MOST_USERS = 1e6, 1e9


@dataclass(frozen=True)
class CostQuestion:
    """What was asked for; one of the numbers may be the unknown."""

    local_epsilon: float | None
    users: int | None
    sampled: int | None
    rounds: int
    points_per_client: int
    points_sampled: int
    sampling: str
    build: Callable[[float], Any] | None

    def schedule(self) -> Schedule:
        """The schedule, once nothing is unknown."""
        from beam_ldp.accounting.schedule import Schedule

        for flag, value in (
            ("--local-epsilon", self.local_epsilon),
            ("--expected-users", self.users),
        ):
            if value is None:
                raise ValueError(f"{flag} is missing; or name it as the unknown with --solve")
        assert self.local_epsilon is not None and self.users is not None
        if self.sampled is not None and self.sampled > self.users:
            raise ValueError(f"--sampled must be at most --expected-users, got {self.sampled}")
        return Schedule(
            self.local_epsilon,
            self.users,
            self.users if self.sampled is None else self.sampled,
            self.rounds,
            self.points_per_client,
            self.points_sampled,
            cast("Sampling", self.sampling),  # click has checked the choice
            None if self.build is None else self.build(self.local_epsilon),
        )


@click.command(short_help="What releases cost, by every method; or what fits a target.")
@click.option("--local-epsilon", type=float, help="local epsilon of each report")
@click.option("--expected-users", "users", type=whole, help="number of people, for example 1e6")
@click.option(
    "--sampled", type=whole, help="number of people who report in each round  [default: all]"
)
@click.option("--rounds", type=whole, default=1, show_default=True, help="number of releases")
@click.option(
    "--delta", type=float, required=True, help="delta of the central epsilon, far below 1/users"
)
@click.option(
    "--points-per-client",
    type=whole,
    default=1,
    show_default=True,
    help="number of data points that each person holds; one of them is protected",
)
@click.option(
    "--points-sampled",
    type=whole,
    default=1,
    show_default=True,
    help="number of points that a person who takes part draws and reports",
)
@click.option(
    "--sampling",
    type=click.Choice(["without_replacement", "self", "poisson", "shuffled_epochs"]),
    default="without_replacement",
    show_default=True,
    help="how people take part: a random set of --sampled people (without_replacement); each "
    "person by a coin of their own (self), or each data point (poisson), --sampled on average; or "
    "everybody once in every epoch of rounds (shuffled_epochs)",
)
@click.option("--mechanism",
              help="also give the cost by the mechanism-specific blanket of this one, such as "
              "SubsetSelection, or PACKAGE:CLASS for one of your own")  # fmt: skip
@click.option("--domain-size", type=whole, help="size of the domain, for a frequency mechanism")
@click.option("--dimension", type=whole, help="dimension, for a mean mechanism")
@click.option(
    "--epsilon", "target_epsilon", type=float, help="with --solve: central epsilon to aim at"
)
@click.option(
    "--solve",
    type=click.Choice(_UNKNOWNS),
    help="find the value of this unknown that meets the target",
)
@click.option(
    "--conjectured", is_flag=True, help="also show bounds that are conjectured but not proved"
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="plot epsilon against rounds, or against people for a single round, as a PNG",
)
@format_option
def privacy(
    delta: float,
    target_epsilon: float | None,
    solve: str | None,
    conjectured: bool,
    plot: Path | None,
    form: str,
    **asked: Any,
) -> None:
    """What a schedule of shuffled releases costs, by every method, and how tight that is.

    Bounds hold for every local randomizer with this local epsilon; --mechanism adds a
    mechanism-specific bound, which can be far lower. With --sampled, the cost holds against readers
    who cannot see who took part; the cost against those who can is shown beside it.

    \b
    examples:
      beam-ldp privacy --local-epsilon 2 --expected-users 60000 --sampled 2000 \\
          --rounds 6000 --delta 1e-5
      beam-ldp privacy --local-epsilon 4 --expected-users 1e5 --delta 1e-6 \\
          --mechanism SubsetSelection --domain-size 1000
      beam-ldp privacy --expected-users 1e6 --rounds 30 --delta 1e-8 \\
          --epsilon 1 --solve local-epsilon
      beam-ldp privacy --local-epsilon 2 --expected-users 1e6 --rounds 1e4 --delta 1e-8 \\
          --plot price.png
    """
    from beam_ldp.research.published.tables import as_json, show

    if not 0 < delta < 1:
        raise click.UsageError(f"--delta must lie in (0, 1), got {delta:g}")
    if (solve is None) != (target_epsilon is None):
        raise click.UsageError("--epsilon and --solve go together")
    try:
        question = _question(**asked)
        with Console(stderr=True).status("loading") as status:
            schedule, bound, prices = _priced(
                question, delta, solve, target_epsilon, conjectured, status.update
            )
            if plot is not None:
                _draw(schedule, delta, plot, status.update)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if form == "json":
        from beam_ldp.pipelines.views.terminal import printed_json

        print(printed_json(as_json(schedule, delta, bound, prices, solve)))
    else:
        show(schedule, delta, bound, prices, solve, plot)
    sys.stdout.flush()


def _question(
    *, mechanism: str | None, domain_size: int | None, dimension: int | None, **schedule: Any
) -> CostQuestion:
    """What was asked for, of the flags."""
    if mechanism is None and (domain_size is not None or dimension is not None):
        raise ValueError("--domain-size and --dimension go with --mechanism")
    return CostQuestion(**schedule, build=_builder(mechanism, domain_size, dimension))


def _priced(
    question: CostQuestion,
    delta: float,
    solve: str | None,
    target_epsilon: float | None,
    conjectured: bool,
    say: Callable[[str], None],
) -> tuple[Schedule, PrivacyBound, Sequence[MethodPrice]]:
    """The schedule, its unknown filled in; our price of it, and those of all methods."""
    from beam_ldp.accounting.schedule_prices import schedule_epsilon
    from beam_ldp.research.published.methods import compare

    if solve is not None and target_epsilon is not None:
        question = _solved(
            question, solve, target_epsilon, delta, lambda tried: say(f"trying {solve} = {tried}")
        )
    schedule = question.schedule()
    say("pricing")
    bound = schedule_epsilon(schedule, delta)
    prices = compare(
        schedule, delta, conjectured=conjectured, say=lambda name: say(f"pricing: {name}")
    )
    return schedule, bound, prices


def _draw(schedule: Schedule, delta: float, path: Path, say: Callable[[str], None]) -> None:
    """Write the picture; a usage error where that fails."""
    from beam_ldp.research.published.tables import plot_prices

    picture = plot_prices(schedule, delta, lambda what: say(f"plotting: {what}"))
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise click.UsageError(f"--plot {path}: {error.strerror}") from None


def _builder(
    mechanism: str | None, domain_size: int | None, dimension: int | None
) -> Callable[[float], Any] | None:
    if mechanism is None:
        return None
    from beam_ldp.pipelines.mechanisms import mechanism_builder

    return mechanism_builder(mechanism, domain_size, dimension)


def _solved(
    question: CostQuestion, unknown: str, target: float, delta: float, say: Callable[[str], None]
) -> CostQuestion:
    """The question with the unknown filled in, rounded to the safe side."""
    from beam_ldp.research.published.methods import solve_schedule

    if not target > 0:
        raise ValueError(f"--epsilon must be > 0, got {target:g}")

    def solved(fill: Callable[[float], CostQuestion], low: float, high: float) -> float:
        return solve_schedule(target, delta, lambda x: fill(x).schedule(), low, high, say)

    if unknown == "local-epsilon":
        found = solved(
            lambda x: replace(question, local_epsilon=x),
            _LEAST_LOCAL_EPSILON,
            _LARGEST_LOCAL_EPSILON,
        )
        return replace(question, local_epsilon=math.floor(found * 1e4) / 1e4)
    if unknown == "rounds":
        found = solved(lambda x: replace(question, rounds=int(x)), 1, _MOST_ROUNDS)
        return replace(question, rounds=int(found))
    if unknown == "sampled":
        if question.users is None:
            raise ValueError("--expected-users is missing")
        found = solved(lambda x: replace(question, sampled=int(x)), 1, question.users)
        return replace(question, sampled=int(found))
    # More people cost less: the parameter that grows with the price is 1 / users.
    least = max(question.sampled or 1, 2)
    found = solved(
        lambda x: replace(question, users=math.ceil(_MOST_USERS / x)), 1.0, _MOST_USERS / least
    )
    return replace(question, users=math.ceil(_MOST_USERS / found))
