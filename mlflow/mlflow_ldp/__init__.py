"""MLflow keeps the record of private releases.

`log_release` writes what a release cost and how accurate it is into one MLflow run, once, from
the program that launched the pipeline. Raw data never comes near it: it takes the privacy record
and the files of the output folder, both of which are public once the release is.

MLflow is optional. Nothing here imports it before it is used; `available()` says whether it is
there.
"""

from mlflow_ldp.release import LoggedRun, MlflowMissingError, available, log_release

__all__ = ["LoggedRun", "MlflowMissingError", "available", "log_release"]
