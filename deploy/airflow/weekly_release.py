"""An Airflow DAG: a release every week, charged to the ledger that BEAM_LDP_LEDGER names.

For Airflow 2.9 and later with the provider `standard`; `beam-ldp` is on the path of its workers.
Tested without Airflow: tests/pipelines/test_airflow.py loads this file with stand-ins for the two
classes below, and runs its commands with bash on a small file: a week, its retry, too few people.

Orchestrators need exit codes and one JSON object on stdout. 0: done; 1: failed, try again; 2: a
setting or an input is wrong, which no retry mends; 3: nothing was released, which is no fault.
A retry is the same release under the same names: with the key of `job.yaml` it sends the same
reports and is charged once. Give every week a key of its own where weeks must not be linked.
"""

from __future__ import annotations

from datetime import datetime

from airflow import DAG
from airflow.providers.standard.operators.bash import BashOperator

FOLDER = "${BEAM_LDP_FOLDER:-/srv/beam-ldp}"  # job.yaml, answers.txt, week.key, in/, out/
RUN = (
    f'cd "{FOLDER}" && beam-ldp run job.yaml --input "in/{{{{ ds }}}}.csv" '
    '--output "out/{{ ds }}" --release-id "week {{ ds }}" --run-id "week {{ ds }}" --format json'
)

with DAG(
    dag_id="weekly_release",
    schedule="@weekly",
    start_date=datetime(2026, 1, 4),
    catchup=False,
    max_active_runs=1,
) as dag:
    plan = BashOperator(
        task_id="plan",  # columns, lists and names are checked, nobody's budget moves
        bash_command=f"{RUN} --dry-run",
        append_env=True,
        retries=0,
    )
    release = BashOperator(
        task_id="release",
        bash_command=f'{RUN} --overwrite > "{FOLDER}/{{{{ ds }}}}.json"',
        append_env=True,
        retries=2,
        skip_on_exit_code=3,
    )
    audit = BashOperator(
        task_id="audit",
        bash_command=f'beam-ldp audit --workers 1 --format json > "{FOLDER}/audit.json"',
        append_env=True,
        retries=0,
    )
    plan >> release >> audit
