"""`beam-ldp privacy`: what shuffled releases cost, by every method. Reads no data."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from beam_ldp.pipelines.flags import format_option, whole

if TYPE_CHECKING:
    from beam_ldp.accounting.lower import PrivacyBound
    from beam_ldp.accounting.schedule import Schedule
    from beam_ldp.research.published.methods import MethodPrice

_UNKNOWNS = ("local-epsilon", "rounds", "users", "sampled")
_LEAST_LOCAL_EPSILON, _LARGEST_LOCAL_EPSILON = 0.01, 20.0
_MOST_ROUNDS, _MOST_USERS = 1e6, 1e9


Asked = dict[str, Any]  # the flags about the schedule, by their names
Builder = Callable[[float], Any]


def _schedule(asked: Asked, build: Builder | None) -> Schedule:
    """The schedule, once nothing is unknown."""
    from beam_ldp.accounting.schedule import Schedule

    for flag, name in (("--local-epsilon", "local_epsilon"), ("--expected-users", "users")):
        if asked[name] is None:
            raise ValueError(f"{flag} is missing; or name it as the unknown with --solve")
    told = dict(asked)
    local_epsilon, users, sampled = (told.pop(n) for n in ("local_epsilon", "users", "sampled"))
    if sampled is not None and sampled > users:
        raise ValueError(f"--sampled must be at most --expected-users, got {sampled}")
    randomizer = None if build is None else build(local_epsilon)
    return Schedule(
        local_epsilon, users, users if sampled is None else sampled, randomizer=randomizer, **told
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
        build = _builder(*(asked.pop(name) for name in ("mechanism", "domain_size", "dimension")))
        with Console(stderr=True).status("loading") as status:
            if solve is not None and target_epsilon is not None:
                asked |= _solved(asked, build, solve, target_epsilon, delta, status.update)
            schedule = _schedule(asked, build)
            bound, prices = _priced(schedule, delta, conjectured, status.update)
            if plot is not None:
                _draw(schedule, delta, plot, status.update)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(as_json(schedule, delta, bound, prices, solve)))
    else:
        show(schedule, delta, bound, prices, solve, plot)
    sys.stdout.flush()


def _priced(
    schedule: Schedule, delta: float, conjectured: bool, say: Callable[[str], None]
) -> tuple[PrivacyBound, Sequence[MethodPrice]]:
    """Our price of a schedule, and those of all methods."""
    from beam_ldp.accounting.schedule_prices import schedule_epsilon
    from beam_ldp.research.published.methods import compare

    say("pricing")
    bound = schedule_epsilon(schedule, delta)
    return bound, compare(
        schedule, delta, conjectured=conjectured, say=lambda name: say(f"pricing: {name}")
    )


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
) -> Builder | None:
    """What makes the mechanism of a local epsilon; None where none was named."""
    if mechanism is None:
        if domain_size is not None or dimension is not None:
            raise ValueError("--domain-size and --dimension go with --mechanism")
        return None
    from beam_ldp.planning.mechanisms import mechanism_builder

    return mechanism_builder(mechanism, domain_size, dimension)


def _solved(
    asked: Asked,
    build: Builder | None,
    unknown: str,
    target: float,
    delta: float,
    say: Callable[[str], None],
) -> Asked:
    """The unknown, rounded to the safe side."""
    from beam_ldp.research.published.methods import solve_schedule

    if not target > 0:
        raise ValueError(f"--epsilon must be > 0, got {target:g}")

    def solved(name: str, value: Callable[[float], float], low: float, high: float) -> float:
        return solve_schedule(
            target,
            delta,
            lambda x: _schedule(asked | {name: value(x)}, build),
            low,
            high,
            lambda tried: say(f"trying {unknown} = {tried}"),
        )

    if unknown == "local-epsilon":
        found = solved("local_epsilon", float, _LEAST_LOCAL_EPSILON, _LARGEST_LOCAL_EPSILON)
        return {"local_epsilon": math.floor(found * 1e4) / 1e4}
    if unknown == "rounds":
        return {"rounds": int(solved("rounds", int, 1, _MOST_ROUNDS))}
    if unknown == "sampled":
        if asked["users"] is None:
            raise ValueError("--expected-users is missing")
        return {"sampled": int(solved("sampled", int, 1, asked["users"]))}

    # More people cost less: the parameter that grows with the price is 1 / users.
    def people(x: float) -> int:
        return math.ceil(_MOST_USERS / x)

    least = max(asked["sampled"] or 1, 2)
    return {"users": people(solved("users", people, 1.0, _MOST_USERS / least))}
