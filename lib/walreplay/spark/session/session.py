"""Get a Spark session with Delta in it, wherever the program was started.

- In a notebook, on Databricks: the session that is there.
- Spark Connect: a session of the server that ``SPARK_REMOTE`` names, which brings its own Delta.  Its workers are given
  this package.
- spark-submit: what was submitted, completed by Delta's extension and catalog.
- Plain Python: ``spark-defaults.conf`` and ``PYSPARK_SUBMIT_ARGS`` as Spark would read them, and ``local[*]``
  where they name no master.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from walreplay.errors import ConfigError
from walreplay.progress import Progress
from walreplay.spark.session.delta_jars import delta_jars, minor
from walreplay.spark.session.remote import is_remote, remote_session

JAVA_VERSIONS: Final = (17, 21)

_EXTENSIONS: Final = "spark.sql.extensions"
_JARS: Final = "spark.jars"
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_TIME_ZONE: Final = ("spark.sql.session.timeZone", "UTC")
"""Values that are shown or written as text must not depend on where the job runs."""

_STORES: Final = {"spark.hadoop.fs.s3a.performance.flags": "mkdir"}
"""A table's log has two folders.  To make one in an object store, Hadoop asks for all that are above it, one after the
other: half a dozen requests for each new table, about folders that do not exist there."""

_GIB: Final = 1 << 30

_LONGEST_SOCKET_FOLDER: Final = 61
"""Spark refuses a longer one: with the socket's own name its path would be too long for the system."""


def build_session(app_name: str = "walreplay", progress: Progress | None = None) -> SparkSession:
    """Give the existing session, or start one with Delta.

    Args:
        progress: told when Delta's JARs are fetched, which happens once on a machine.

    Raises:
        ConfigError: Java is missing or has the wrong version, or Delta's JARs are not to be had; or pyspark has no
            Spark of its own, and no server is named.
        SparkFailure: the server of Spark Connect cannot be reached.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_remote():
        return remote_session(SparkSession.builder.appName(app_name).config(*_TIME_ZONE))
    configured = _configured()
    master = configured.get("spark.master", "local[*]")
    settings = {"spark.master": master, **_STORES, **_delta(configured, progress)}
    if master.startswith("local"):
        settings.update(_local())
    builder: SparkSession.Builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        if key in (_EXTENSIONS, _JARS) or key not in configured:
            builder = builder.config(key, value)
    if _JARS in settings:
        _submit_jars(settings[_JARS])
    if not _is_submitted():
        _check_java()
        if master.startswith("local"):
            # The driver's Python has the packages that workers need; another one on the PATH may not.
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return builder.config(*_TIME_ZONE).getOrCreate()


def local_cores(spark: SparkSession) -> int | None:
    """Give how many tasks run at a time in local mode; None on a cluster, of which more or less may come any time."""
    try:
        master = spark.conf.get("spark.master", None) or ""
    except Exception:
        # A platform may refuse to tell.
        return None
    found = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _configured() -> Mapping[str, str]:
    """Collect what the user has configured: it takes precedence over every default set here."""
    if _is_submitted():
        # The JVM runs already and has the settings; SparkConf asks it once it is connected.  pyspark-client has none.
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    return {**dict(_spark_defaults()), **dict(_submit_arguments())}


def _spark_defaults() -> Iterator[tuple[str, str]]:
    path = Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf", "spark-defaults.conf")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            found = re.fullmatch(r"\s*([^\s#=:]+)[\s=:]+(.*?)\s*", line)
            if found:
                yield found[1], found[2]


def _submit_arguments() -> Iterator[tuple[str, str]]:
    arguments = iter(shlex.split(os.environ.get(_SUBMIT, "")))
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option in ("--conf", "-c", "--master", "--packages", "--jars"):
            value = value if equals else next(arguments, "")
            if option in ("--conf", "-c"):
                key, _, value = value.partition("=")
            else:
                key = {
                    "--master": "spark.master",
                    "--packages": "spark.jars.packages",
                    "--jars": _JARS,
                }[option]
            yield key, value


def _delta(configured: Mapping[str, str], progress: Progress | None = None) -> dict[str, str]:
    extensions = [name for name in configured.get(_EXTENSIONS, "").split(",") if name]
    if _DELTA_EXTENSION not in extensions:
        extensions.append(_DELTA_EXTENSION)
    settings = {_EXTENSIONS: ",".join(extensions), _CATALOG: _DELTA_CATALOG}
    given = [configured.get(key, "") for key in (_JARS, "spark.jars.packages", "spark.driver.extraClassPath")]
    # Once the JVM runs, or where Delta was given, or lies with Spark itself, it is too late or not needed.
    if _is_submitted() or any("delta-spark" in text for text in given) or _has_delta(_spark_home() / "jars"):
        return settings
    prepared = Path(sys.prefix, "jars")
    jars = sorted(prepared.glob("*.jar")) if _has_delta(prepared) else delta_jars(progress)
    return {**settings, _JARS: _join(configured.get(_JARS), *map(str, jars))}


def _submit_jars(jars: str) -> None:
    """Put JARs in the place of those that the arguments for spark-submit name, which count more than a session's."""
    arguments = shlex.split(os.environ.get(_SUBMIT, ""))
    if _JARS not in dict(_submit_arguments()):
        return
    at = arguments.index("pyspark-shell") if "pyspark-shell" in arguments else len(arguments)
    os.environ[_SUBMIT] = shlex.join([*arguments[:at], "--jars", jars, *arguments[at:]])


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _has_delta(directory: Path) -> bool:
    """Say whether Delta's JAR for the running Spark lies in a directory."""
    spark = minor(pyspark.__version__)
    return any(directory.glob(f"delta-spark_{spark}_2.13-*.jar")) or any(directory.glob("delta-spark_2.13-4.0.*.jar"))


def _join(*parts: str | None) -> str:
    return ",".join(part for part in parts if part)


def _local() -> dict[str, str]:
    """Make Spark small and quiet: on one machine its defaults for clusters cost seconds a table."""
    log4j = Path(__file__).with_name("log4j2-local.properties").as_uri()
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{_driver_memory() >> 20}m",
        # What Spark 4.2 broadcasts for a join by integers has a page at least, of 32 MiB where nothing is set.
        "spark.buffer.pageSize": "1m",
        "spark.databricks.delta.snapshotPartitions": "2",
        # A run needs some 90 compiled plans; of the 100 that are kept by default, the next run finds few.
        "spark.sql.codegen.cache.maxEntries": "1000",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_sockets(tempfile.gettempdir()),
    }


def _sockets(folder: str) -> dict[str, str]:
    """Have Java talk to its Python workers by Unix sockets: by TCP each task waits some 20 ms for acknowledgements."""
    if not hasattr(socket, "AF_UNIX") or len(folder) > _LONGEST_SOCKET_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


def _driver_memory() -> int:
    """Give Java half of the machine, up to 4 GiB: in local mode the driver holds whole capture files."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_GIB, min(4 * _GIB, machine // 2))


def _check_java() -> None:
    """Raise one clear error where Spark's launcher would print a page."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = "Install Java 17 or 21 (Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless)"
    if java is None:
        where = f"JAVA_HOME, which is {home}, has no bin/java" if home else "Java was not found"
        raise ConfigError(where, remedy=f"{remedy}, or set JAVA_HOME to one")
    version = _java_version(Path(java))
    if version is not None and version not in JAVA_VERSIONS:
        raise ConfigError(f"{java} is Java {version}, and Spark needs 17 or 21", remedy=f"{remedy}, and set JAVA_HOME")


def _java_version(java: Path) -> int | None:
    """Read the version from a file of the JDK, which is faster than to start Java."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
