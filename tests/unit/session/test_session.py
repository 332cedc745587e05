from types import SimpleNamespace

import pytest

from walreplay.errors import ConfigError
from walreplay.session import session


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def prefix(monkeypatch, tmp_path):
    """Put another environment in the place of this one, with no Delta of its own."""
    monkeypatch.setattr(session.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(session.pyspark, "__version__", "4.2.0")
    return tmp_path


def prepare(prefix):
    (prefix / "jars").mkdir()
    for name in ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"):
        (prefix / "jars" / name).touch()


def test_the_jars_of_the_environment_are_used(prefix):
    prepare(prefix)
    jars = session._delta({})["spark.jars"].split(",")
    assert [jar.rsplit("/", 1)[1] for jar in jars] == [
        "delta-spark_4.2_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
    ]


def test_jars_for_another_spark_are_left_alone(prefix, monkeypatch):
    prepare(prefix)
    monkeypatch.setattr(session.pyspark, "__version__", "4.1.2")
    monkeypatch.setattr(session, "delta_jars", lambda progress: ["/cache/delta-spark_4.1_2.13-4.4.0.jar"])
    assert session._delta({"spark.jars": "mine.jar"})["spark.jars"] == "mine.jar,/cache/delta-spark_4.1_2.13-4.4.0.jar"


@pytest.mark.parametrize("arguments", ["--jars mine.jar pyspark-shell", "--conf spark.jars=mine.jar"])
def test_jars_that_are_submitted_come_together_with_deltas(monkeypatch, arguments):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--name 'a b' {arguments}")
    session._submit("mine.jar,delta.jar")
    assert dict(session._submit_arguments())["spark.jars"] == "mine.jar,delta.jar"
    assert session.os.environ["PYSPARK_SUBMIT_ARGS"].startswith("--name 'a b' ")
    assert session.os.environ["PYSPARK_SUBMIT_ARGS"].split().count("pyspark-shell") == 1


@pytest.mark.parametrize("arguments", ["--master 'local[3]' --name 'a b'", "", "--name x pyspark-shell"])
def test_arguments_without_the_program_that_spark_starts_are_completed(monkeypatch, arguments):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    before = dict(session._submit_arguments())
    session._submit(None)
    *given, program = session.shlex.split(session.os.environ["PYSPARK_SUBMIT_ARGS"])
    assert (given, program) == (session.shlex.split(arguments.removesuffix("pyspark-shell")), "pyspark-shell")
    assert dict(session._submit_arguments()) == before
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    session._submit(None)
    assert "PYSPARK_SUBMIT_ARGS" not in session.os.environ


def test_arguments_that_cannot_be_read_are_a_configuration_error(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name 'a b pyspark-shell")
    with pytest.raises(ConfigError, match=r"PYSPARK_SUBMIT_ARGS cannot be read: No closing quotation\. Correct it"):
        session._configured()


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"])
def test_delta_that_was_given_is_not_given_again(prefix, key):
    prepare(prefix)
    settings = session._delta({key: "io.delta:delta-spark_4.2_2.13:4.4.0"})
    assert set(settings) == {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}


def test_other_extensions_stay(prefix):
    prepare(prefix)
    settings = session._delta({"spark.sql.extensions": "org.example.Other"})
    assert settings["spark.sql.extensions"] == "org.example.Other,io.delta.sql.DeltaSparkSessionExtension"


def test_what_the_user_configured_is_read(monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.master  spark://host:7077\nspark.driver.memory=3g\n", encoding="utf-8"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf a.b='x y' --packages=p:q:1 --driver-memory 1g pyspark-shell")
    assert session._configured() == {
        "spark.master": "spark://host:7077",
        "spark.driver.memory": "3g",
        "a.b": "x y",
        "spark.jars.packages": "p:q:1",
    }


def test_a_folder_called_conf_where_the_program_is_started_is_not_sparks(monkeypatch, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "spark.master" not in session._configured()


def java(directory, version):
    (directory / "bin").mkdir()
    program = directory / "bin" / "java"
    program.touch()
    program.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_17_and_21_are_taken(monkeypatch, tmp_path, version):
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    session._check_java()
    assert session._java_version(tmp_path / "bin" / "java") in (17, 21)


@pytest.mark.parametrize(("version", "name"), [("1.8.0_402", "Java 8"), ("11.0.2", "Java 11")])
def test_another_java_is_refused_by_name(monkeypatch, tmp_path, version, name):
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"{name}, and Spark needs 17 or 21"):
        session._check_java()


def test_a_missing_java_is_said_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"Java was not found.*apt-get install openjdk-17-jre-headless"):
        session._check_java()


def test_a_wrong_java_home_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=f"JAVA_HOME, which is {tmp_path}"):
        session._check_java()


@pytest.mark.parametrize(("folder", "used"), [("/tmp", True), ("/" + 60 * "t", True), ("/" + 61 * "t", False)])
def test_workers_are_reached_by_unix_sockets_where_spark_takes_their_folder(folder, used):
    assert ("spark.python.unix.domain.socket.enabled" in session._sockets(folder)) == used
    assert session._sockets(folder).get("spark.python.unix.domain.socket.dir", folder) == folder


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[ 2 , 4 ]", 2), ("local[*]", 12), ("local[*,5]", 12)]
    + [(master, None) for master in ("spark://host:7077", "yarn", "local-cluster[2,1,1024]", None)],
)
def test_cores_are_known_in_local_mode_alone(monkeypatch, master, cores):
    monkeypatch.setattr(session.os, "cpu_count", lambda: 12)
    settings = {} if master is None else {"spark.master": master}
    assert session.local_cores(SimpleNamespace(conf=settings)) == cores


def test_where_the_master_is_not_told_no_cores_are_known():
    assert session.local_cores(SimpleNamespace(conf=None)) is None
