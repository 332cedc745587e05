"""A standalone cluster: a master and two workers, whose Python has numpy, pandas and pyarrow alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.environments import (
    EXECUTORS,
    SMALL,
    Environment,
    Halves,
    free_port,
    installed,
    locked_jars,
    serving,
)
from support.pages import ROOT, block, with_places

SPARK = ("pyspark==4.2.0", "delta-spark==4.4.0", "pandas<3")


def test_executors_are_given_the_package_by_py_files_alone(tmp_path: Path) -> None:
    executors = installed(EXECUTORS, with_wheel=False)
    driver = Environment(
        installed(SPARK),
        tmp_path,
        {
            "PYSPARK_PYTHON": str(executors / "bin" / "python"),
            "PYSPARK_DRIVER_PYTHON": str(installed(SPARK) / "bin" / "python"),
        },
    )
    master = free_port()
    halves = Halves(driver, str(tmp_path / "mirror"))
    small = f"{SMALL} --conf spark.executor.memory=1g --conf spark.executor.cores=1"
    command = with_places(
        block("docs/running.md", "python -c").text,
        {
            "spark://host:7077": f"spark://127.0.0.1:{master} {small}",
            "--packages io.delta:delta-spark_4.2_2.13:4.4.0": f"--jars {','.join(map(str, locked_jars()))}",
            "jobs/apply.py": f"{ROOT}/jobs/apply.py",
            "/shared/captures": halves.captures,
            "/shared/mirror": f"{halves.target} --report {{report}}",
        },
    )
    started = "spark-class org.apache.spark.deploy"
    with ExitStack() as running:
        at = f"spark://127.0.0.1:{master}"
        host = "--host 127.0.0.1 --webui-port 0"
        running.enter_context(
            serving(driver, f"{started}.master.Master {host} --port {master}", master, tmp_path / "master.log")
        )
        for number in (1, 2):
            port, place = free_port(), tmp_path / f"worker{number}"
            line = f"{started}.worker.Worker {host} --port {port} --cores 1 --memory 1g --work-dir {place} {at}"
            machine = Environment(executors, tmp_path, _home())
            running.enter_context(serving(machine, line, port, place.with_suffix(".log")))
        halves.run(command)
    for number in (1, 2):
        assert list(tmp_path.glob(f"worker{number}/app-*")), "a worker had nothing to do"
    halves.tell(f"standalone cluster, two workers, --py-files ({driver.versions('pyspark', 'delta-spark')})")


def _home() -> dict[str, str]:
    (home,) = installed(SPARK).glob("lib/python*/site-packages/pyspark")
    return {"SPARK_HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin", "PYTHONPATH": ""}
