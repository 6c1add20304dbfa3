"""One MLflow run of figures that no release is behind: a simulation's curves and its files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import click

import mlflow_ldp
from beam_ldp.fast_start import load_mlflow
from mlflow_ldp.runs import LoggedRun, RunLog

Steps = Iterable[tuple[int, Mapping[str, float]]]


def log_curves(
    uri: str, experiment: str, name: str, about: str, *,
    params: Mapping[str, Any], steps: Steps, files: Mapping[str, Any],
) -> LoggedRun | None:  # fmt: skip
    """Log metrics by step, and files.

    Args:
        uri: MLflow's store, or its server.
        experiment: name of the experiment of a new run.
        name: of a new run.
        about: what the run says of itself.
        params: what was simulated; public.
        steps: each with its metrics.
        files: by name; dictionaries as JSON.

    Returns:
        Where the run is; None if not all of it arrived, which is said on standard error.
    """
    load_mlflow()
    if not mlflow_ldp.available():
        raise click.UsageError("MLflow is not installed: pip install 'beam-ldp[mlflow]'")
    for package in ("alembic", "mlflow"):
        logging.getLogger(package).setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in a program's words
        log = RunLog(tracking_uri=uri, experiment=experiment, run_name=name, params=params)
        log.start()
        log.describe(about)
        for step, metrics in steps:
            log.metrics(metrics, step)
        arrived = log.finish(files)
    if not arrived:
        click.echo("warning: not all was logged to MLflow: --mlflow-uri does not answer", err=True)
        return None
    return log.logged
