"""Tables in a catalog: Spark's own, with a Hive metastore on Derby."""

from __future__ import annotations

import json
from pathlib import Path

from support.environments import SMALL, Environment, Halves, installed
from support.pages import block, with_places

_NOISE = ("HiveAlterHandler", "Traceback", "ERROR")


def test_a_hive_metastore_on_derby(tmp_path: Path) -> None:
    hive = "--conf spark.sql.catalogImplementation=hive"
    submitted = f"--master local[2] {SMALL} {hive} pyspark-shell"
    root = installed(("pyspark==4.2.0", "delta-spark==4.4.0", "pandas<3"))
    environment = Environment(root, tmp_path, {"PYSPARK_SUBMIT_ARGS": submitted})
    halves = Halves(environment, "spark_catalog")
    command = block("docs/running.md", "export PYSPARK_SUBMIT_ARGS='--conf").text
    places = {
        f"{hive} pyspark-shell": submitted,
        "/shared/captures": halves.captures,
        "spark_catalog": "spark_catalog --report {report}",
    }
    halves.run(with_places(command, places))
    assert (tmp_path / "metastore_db").is_dir()
    reports = [json.loads((tmp_path / f"report{number}.json").read_text(encoding="utf-8")) for number in range(2)]
    assert [report["writer"] for report in reports] == ["files", "files"]
    printed = "\n".join(halves.printed)
    assert [word for word in _NOISE if word in printed] == [], printed
    halves.tell(f"Hive metastore on Derby ({environment.versions('pyspark', 'delta-spark')})")
