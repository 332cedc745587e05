"""Apply what was recorded every night, and verify the tables once a week.

For Airflow 3, and 2.10.  The recorder is no task: it runs on, as walreplay-record.service beside this file does.
"""

from datetime import datetime, timedelta, timezone

try:
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.sdk import DAG
except ImportError:  # Airflow 2
    from airflow import DAG
    from airflow.operators.bash import BashOperator

WALREPLAY = "/opt/walreplay/bin/walreplay"  # an environment of its own: Airflow's pins are other ones
CAPTURES = "s3a://bucket/captures"
TARGET = "s3a://bucket/mirror"

with DAG(
    "walreplay",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,  # one run applies all that is new, however many nights were left out
    max_active_runs=1,  # of two runs at once, the later is refused: the target is locked
    default_args={
        "retries": 3,  # each goes on where the one before stopped
        "retry_delay": timedelta(minutes=5),
        "env": {"PYSPARK_SUBMIT_ARGS": "--packages org.apache.hadoop:hadoop-aws:3.5.0 pyspark-shell"},  # for s3a://
        "append_env": True,
    },
    tags=["walreplay"],
) as dag:
    apply = BashOperator(
        task_id="apply",
        bash_command=f"{WALREPLAY} apply --captures {CAPTURES} --target {TARGET} --quiet",
        execution_timeout=timedelta(hours=6),
    )
    maintain = BashOperator(  # behind apply, as it takes the same lock
        task_id="maintain",
        bash_command=f"{WALREPLAY} maintain --target {TARGET} --quiet",
    )
    verify = BashOperator(
        task_id="verify",
        # By the machine's own day, as a run that somebody starts by hand has no interval.  Exit code 99 skips the task.
        bash_command='[ "$(date -u +%u)" = 7 ] || exit 99\n'
        f"{WALREPLAY} verify --captures {CAPTURES} --target {TARGET} --quiet",
        skip_on_exit_code=99,
        retries=0,  # exit code 3: a table differs, and would differ again
    )
    apply >> maintain >> verify
