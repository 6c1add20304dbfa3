"""`beam-ldp bandit`: which action is best, from rewards that nobody holds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.decisions.commands.bandit.actions import MOST_ACTIONS, read_chosen
from beam_ldp.decisions.commands.bandit.start import rounding_option, start, width_option
from beam_ldp.pipelines.commands import part
from beam_ldp.pipelines.flags import format_option, whole

if TYPE_CHECKING:
    from beam_ldp.decisions.bandits.elimination import Rounding
    from beam_ldp.decisions.bandits.simulating import Actions, RegretCurve
    from beam_ldp.decisions.bandits.widths import Width
    from beam_ldp.decisions.commands.bandit.actions import Policies

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


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every part."""
    for option in (
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
                     help="of the simulated runs"),
        click.option("--delta", type=float, default=1e-6, show_default=True,
                     help="delta of the shuffled models"),
        click.option("--horizon", type=whole, required=True, help="people in all, as in 1e6"),
        click.option("--contexts", metavar="FILE",
                     help="instead of --actions: policies over contexts from a Parquet or CSV file "
                     "with columns context, action, and features, for each action open in a "
                     "context; with a column probability these are all contexts, without one "
                     "public draws of them"),
        click.option("--actions", metavar="FILE",
                     help="Parquet or CSV with a row for each action: its features, of length 1 at "
                     "most, are the columns of numbers; circle:K draws K directions of the plane"),
    ):  # fmt: skip
        command = option(command)
    return command


@bandit.command(short_help="Batches, what each report costs, and the regret to expect.")
@_shared
@click.option("--epsilon", type=float, default=1.0, show_default=True,
              help="central epsilon of a run; of the local model that of each report")  # fmt: skip
@click.option("--model", type=click.Choice(["shuffled", "local", "central", "none"]),
              default="shuffled", show_default=True,
              help="who is trusted: who permutes the reports, nobody, or the server")  # fmt: skip
@click.option("--amplify-over", type=click.Choice(["action", "batch"]), default="action",
              show_default=True,
              help="who hides among whom: people of one action, or all of a batch, where nobody "
              "can see who had which action")  # fmt: skip
@width_option("tight", "safe")
@rounding_option
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

    from beam_ldp.decisions.bandits.elimination import LinearBandit
    from beam_ldp.decisions.commands.bandit.actions import policies_json, show_policies
    from beam_ldp.decisions.commands.bandit.forecast import Forecast, plan_json, show_plan

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
@_shared
@click.option("--epsilon", "epsilons", default="0.1,0.2,0.5,1,2,5", show_default=True,
              help="epsilons between commas: central, of the local models local")  # fmt: skip
@click.option("--models", default="all", show_default=True,
              help=f"some of {', '.join(MODELS)}, between commas; central-all-actions besides, "
              "which asks about all actions equally and takes minutes where there are a "
              "thousand")  # fmt: skip
@width_option("tight", "safe", "printed")
@rounding_option
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

    from beam_ldp.decisions.bandits.elimination import LinearBandit
    from beam_ldp.decisions.bandits.simulating import simulate as simulated
    from beam_ldp.decisions.commands.bandit.actions import policies_json, show_policies
    from beam_ldp.decisions.commands.bandit.forecast import curves_json, plot, show_curves

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
        from beam_ldp.pipelines.outputs import as_json
        from beam_ldp.pipelines.views.pictures import png

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
    from beam_ldp.decisions.commands.bandit.forecast import curves_metrics
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
        from beam_ldp.pipelines.views.terminal import printed_json

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
    from beam_ldp.pipelines.outputs import OutputError, OutputFolder

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


for _part in (start, part("bandit advance"), part("bandit collect")):
    bandit.add_command(_part)
