"""`beam-ldp bandit`: which action is best, from rewards that nobody holds."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.decisions.actions import MOST_ACTIONS, read_chosen
from beam_ldp.pipelines.flags import format_option, part, whole
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.decisions.actions import Policies
    from beam_ldp.decisions.bandits.designs import Width
    from beam_ldp.decisions.bandits.elimination import Rounding
    from beam_ldp.decisions.bandits.simulating import Actions, RegretCurve

MODELS = ("none", "central", "shuffled", "shuffled-batch", "shuffled-laplace", "local",
          "local-laplace")  # fmt: skip


@click.group(
    short_help="Which action is best, from randomized rewards: `plan`, `start`, `advance`."
)
def bandit() -> None:
    """Linear bandits: each person has one action once, and one bit of her reward is sent.

    \b
    examples:
      beam-ldp bandit plan --actions actions.csv --horizon 1e6 --epsilon 1
      beam-ldp bandit simulate --actions circle:10 --horizon 1e6 --output regret
      beam-ldp bandit start --actions actions.csv --horizon 1e6 --epsilon 1 --dataset visitors \\
          --state service
      beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid
    """


_Command = Callable[..., None]


def _with(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Several options at once, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _of_learner(*widths: str, drawn: str = "") -> Callable[[_Command], _Command]:
    """What every part is told of the learner.

    Args:
        widths: those that it may have.
        drawn: what may stand in place of a file of actions.
    """
    printed = (
        "; printed: the text's, unproven, with noise that costs twice its epsilon, for comparison"
        if "printed" in widths
        else ""
    )
    return _with(
        click.option("--actions", metavar="FILE",
                     help="Parquet or CSV with a row for each action: its features, of length 1 at "
                     "most, are the columns of numbers; its name is the column `name`, or else its "
                     f"number{drawn}"),
        click.option("--contexts", metavar="FILE",
                     help="instead of --actions: policies over contexts from a Parquet or CSV file "
                     "with columns context, action, and features, for each action open in a "
                     "context; with a column probability these are all contexts, without one "
                     "public draws of them. People's devices choose by what each play says"),
        click.option("--horizon", type=whole, required=True, help="people in all, as in 1e6"),
        click.option("--delta", type=float, default=1e-6, show_default=True,
                     help="delta of the shuffled models"),
        click.option("--width", type=click.Choice(widths), default="tight", show_default=True,
                     help="by how much estimates may be off, which decides what is dropped; safe: "
                     f"in closed form, and larger{printed}"),
        click.option("--rounding", type=click.Choice(["real", "floor", "ceil"]), default="real",
                     show_default=True,
                     help="of the logarithm of the horizon, which sets how batches grow"),
    )  # fmt: skip


def _of_trust(*models: str) -> Callable[[_Command], _Command]:
    """Who is trusted, and what that promises."""
    return _with(
        click.option("--model", type=click.Choice(models), default="shuffled", show_default=True,
                     help="who is trusted: who permutes the reports, nobody, or the server with "
                     "every reward"),
        click.option("--epsilon", type=float, default=1.0, show_default=True,
                     help="central epsilon of each batch, and so of a run; of the local model that "
                     "of each report"),
        click.option("--amplify-over", type=click.Choice(["action", "batch"]), default="action",
                     show_default=True,
                     help="who hides among whom: people of one action, or all of a batch; the "
                     "second needs a secret assignment, which `start` writes to STATE.private"),
    )  # fmt: skip


_SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                     help="of the simulated runs")  # fmt: skip
_CIRCLE = "; circle:K draws K directions of the plane"


@bandit.command(short_help="A service folder with its first batch: which slots get which action.")
@_of_learner("tight", "safe")
@_of_trust("shuffled", "local", "central")
@click.option("--state", required=True, metavar="DIR", help="folder of the service")
@click.option("--dataset", required=True, metavar="NAME",
              help="public name of the people, whose budget is charged")  # fmt: skip
@click.option("--name", default=None, metavar="NAME",
              help="public name of the service (default: that of the folder); another service for "
              "the same people has another name")  # fmt: skip
@click.option("--smallest-batch", type=click.IntRange(1), default=100, show_default=True,
              help="batches of fewer people are left out at the beginning: they tell next to "
              "nothing, and hide hardly anybody")  # fmt: skip
@format_option
def start(
    actions: str | None, contexts: str | None, horizon: int, state: str, dataset: str,
    name: str | None, smallest_batch: int, form: str, **asked: Any,
) -> None:  # fmt: skip
    """Begin a service: its terms are fixed, and its first batch is written. Nobody is asked yet.

    The same terms again change nothing; other terms need another folder.

    \b
    example:
      beam-ldp bandit start --actions actions.csv --horizon 1e6 --epsilon 1 \\
          --dataset visitors --state service
    \b
    exit codes: 0 done; 2 a flag or the file does not fit
    """
    from beam_ldp.decisions.bandit_views import say_service
    from beam_ldp.decisions.bandits.elimination import LinearBandit
    from beam_ldp.decisions.bandits.progress import ServiceTerms
    from beam_ldp.decisions.service import ServiceFolder

    try:
        found = read_chosen(actions, contexts, horizon)
        asked |= dict(actions=found.rows, horizon=horizon, row_error=found.row_error)
        schedule = LinearBandit(**asked).schedule
        small = (schedule.size(i) < smallest_batch for i in range(1, schedule.batches))
        bandit = LinearBandit(skipped=sum(small), **asked)
        folder = os.path.abspath(state)
        terms = ServiceTerms(dataset, name or Path(folder).name, found.names, bandit, found.thetas)
        service = ServiceFolder.start(folder, terms)
    except (ValueError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    say_service(service, form)
    sys.stdout.flush()


@bandit.command(short_help="Batches, what each report costs, and the regret to expect.")
@_of_learner("tight", "safe", drawn=_CIRCLE)
@_of_trust("shuffled", "local", "central", "none")
@_SEED
@click.option("--repeat", type=click.IntRange(2), default=10, show_default=True,
              help="simulated runs of each model")  # fmt: skip
@format_option
def plan(
    actions: str | None, contexts: str | None, horizon: int, seed: int, repeat: int, form: str,
    **asked: Any,
) -> None:  # fmt: skip
    """How many people each batch asks, what a report costs, and the regret beside other models.

    Batches are those of a run in which no action is dropped; dropping some makes no batch cost
    more. The regret is that of simulated rewards of -1 and 1 with unknown effects drawn uniformly.

    \b
    example:
      beam-ldp bandit plan --actions circle:10 --horizon 1e6 --epsilon 1 --delta 1e-6
    \b
    exit codes: 0 done; 2 a flag or the file does not fit
    """
    import numpy as np

    from beam_ldp.decisions.actions import policies_json, show_policies
    from beam_ldp.decisions.bandit_views import Forecast, plan_json, show_plan
    from beam_ldp.decisions.bandits.elimination import LinearBandit

    try:
        drawn, policies, error_of_rows = _asked(actions, contexts, horizon)
        rows = drawn(np.random.default_rng(seed))
        question = LinearBandit(actions=rows, horizon=horizon, row_error=error_of_rows, **asked)
        forecast = Forecast.of(question, repeat=repeat, seed=seed)
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    def show() -> None:
        show_plan(forecast)
        show_policies(policies, question)

    _say(form, lambda: plan_json(forecast) | policies_json(policies, question), show)


@bandit.command(short_help="Regret of every model of trust, over random runs.")
@_of_learner("tight", "safe", "printed", drawn=_CIRCLE)
@_SEED
@click.option("--epsilon", "epsilons", default="0.1,0.2,0.5,1,2,5", show_default=True,
              help="epsilons between commas: central, of the local models local")  # fmt: skip
@click.option("--models", default="all", show_default=True,
              help=f"some of {', '.join(MODELS)}, between commas; central-all-actions besides, "
              "which asks about all actions equally and takes minutes where there are a "
              "thousand")  # fmt: skip
@click.option("--repeat", type=click.IntRange(2), default=30, show_default=True,
              help="runs of each model at each epsilon")  # fmt: skip
@click.option("--output", metavar="DIR", help="new folder for regret.json and regret.png")
@click.option("--mlflow-uri", metavar="URI", envvar="MLFLOW_TRACKING_URI",
              help="MLflow's store, or its server, for the curves and the picture (default: the "
              "environment variable MLFLOW_TRACKING_URI; without one, nothing is "
              "logged)")  # fmt: skip
@click.option("--mlflow-experiment", metavar="NAME", default="beam-ldp", show_default=True,
              help="MLflow experiment")  # fmt: skip
@format_option
def simulate(
    actions: str | None, contexts: str | None, horizon: int, seed: int, delta: float,
    epsilons: str, models: str, width: Width, rounding: Rounding, repeat: int,
    output: str | None, mlflow_uri: str | None, mlflow_experiment: str, form: str,
) -> None:  # fmt: skip
    """Regret as people come, and against epsilon: what trusting nobody, a shuffler or the server
    would cost.

    A simulation: sums of rewards are drawn by their exact law, so that ten million people take no
    longer than their batches. Nobody's data is read.

    \b
    example:
      beam-ldp bandit simulate --actions circle:10 --horizon 1e5 --epsilon 0.5,2 --models none,local
    \b
    exit codes: 0 done; 2 a flag or the file does not fit
    """
    import numpy as np

    from beam_ldp.decisions.actions import policies_json, show_policies
    from beam_ldp.decisions.bandit_views import curves_json, plot, show_curves
    from beam_ldp.decisions.bandits.elimination import LinearBandit
    from beam_ldp.decisions.bandits.simulating import simulate as simulated

    try:
        folder = _new_folder(output)
        drawn, policies, error_of_rows = _asked(actions, contexts, horizon)
        common = LinearBandit(
            actions=drawn(np.random.default_rng(seed)), horizon=horizon, delta=delta,
            width=width, rounding=rounding, row_error=error_of_rows,
        )  # fmt: skip
        curves = simulated(
            common,
            _numbers(epsilons),
            MODELS if models == "all" else tuple(name.strip() for name in models.split(",")),
            actions=drawn,
            repeat=repeat,
            seed=seed,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    told = curves_json(common, curves) | policies_json(policies, common)
    files = {}
    if folder is not None or mlflow_uri:
        from beam_ldp.questions.pictures import png
        from beam_ldp.release.outputs import as_json

        files = {"regret.json": as_json(told), "regret.png": png(plot(common, curves))}
    if folder is not None:
        with folder.writing() as writer:
            for name, content in files.items():
                writer.put(name, content)
    if mlflow_uri:
        params = {
            "actions": actions or contexts, "horizon": horizon, "delta": delta, "width": width,
            "rounding": rounding, "repeat": repeat, "seed": seed,
        }  # fmt: skip
        told |= _log(mlflow_uri, mlflow_experiment, params, curves, files)

    def show() -> None:
        show_curves(common, curves)
        show_policies(policies, common)

    _say(form, lambda: told, show)


def _log(
    uri: str,
    experiment: str,
    params: dict[str, Any],
    curves: list[RegretCurve],
    files: dict[str, bytes],
) -> dict[str, Any]:
    """A run of MLflow with the curves; its address, for programs."""
    from beam_ldp.decisions.bandit_views import curves_metrics
    from beam_ldp.pipelines.tracked import log_curves

    logged = log_curves(
        uri, experiment, "bandit simulate",
        "Regret of simulated runs by model of trust; a step is a number of people. Nobody's data "
        "was read.",
        params=params, steps=curves_metrics(curves), files=files,
    )  # fmt: skip
    return {"mlflow_run_id": None} if logged is None else logged.to_json()


def _say(form: str, told: Callable[[], dict[str, Any]], show: Callable[[], None]) -> None:
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(told()))
    else:
        show()
    sys.stdout.flush()


def _asked(
    actions: str | None, contexts: str | None, horizon: int
) -> tuple[Actions, Policies | None, float]:
    """What draws the actions of a run: always those of a file, or directions of the plane; the
    policies if they are that, and how far rows are off."""
    if actions is not None and contexts is None and actions.startswith("circle:"):
        from beam_ldp.decisions.bandits.simulating import circle

        count = actions.removeprefix("circle:")
        if not count.isdigit() or not 2 <= int(count) <= MOST_ACTIONS:
            raise ValueError(f"--actions circle:K needs K from 2 to {MOST_ACTIONS}, got {actions}")
        return circle(int(count)), None, 0.0
    found = read_chosen(actions, contexts, horizon)
    return lambda rng: found.rows, found.policies, found.row_error


def _new_folder(output: str | None) -> Any:
    if output is None:
        return None
    from beam_ldp.release.outputs import OutputError, OutputFolder

    try:
        return OutputFolder(output)
    except OutputError as error:
        raise ValueError(str(error)) from None


def _numbers(text: str) -> tuple[float, ...]:
    """Epsilons between commas."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(math.isfinite(e) and e > 0 for e in found):
        raise ValueError(f"--epsilon must be numbers > 0 between commas, got {text}")
    return found


for _part in ("bandit advance", "bandit collect"):
    bandit.add_command(part(_part))
