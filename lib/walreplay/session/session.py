"""Get a Spark session with Delta in it, wherever the program was started (`build_session`).

- In a notebook, on Databricks: the session that is there.
- Spark Connect: a session of the server that ``SPARK_REMOTE`` names, which brings its own Delta; ``pyspark-client``
  alone is enough.  Its workers get this package.
- spark-submit: what was submitted, completed by Delta's extension and catalog.
- Plain Python: ``spark-defaults.conf`` and ``PYSPARK_SUBMIT_ARGS`` as Spark would read them, and ``local[*]``
  where they name no master.

`package_zip` writes this package as one file, compiled kernels included, for executors that do not have it installed.
Spark puts zips in front of the path of its Python workers: those of ``--py-files``, and on Spark Connect those of
``SparkSession.addArtifacts``.  `delta_jars` fetches Delta's JARs for the installed pyspark and delta-spark once, and
keeps them in the user's cache.  Spark would use Ivy, which prints a page, asks its repositories at every start, and
fails in sixty lines.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from walreplay.errors import ConfigError, SparkFailure
from walreplay.progress import Progress

if TYPE_CHECKING:
    from importlib.abc import Traversable


_NAME: Final = __name__.partition(".")[0]
_DATE: Final = (1980, 1, 1, 0, 0, 0)  # of all files: the same files make the same zip


def package_zip(file: str | Path) -> str:
    """Write a zip of this package, as it is installed here, for Spark's executors.

    Args:
        file: its path, which ends with ``.zip``, as Spark takes no other; a file that is there is replaced.

    Returns:
        the path: ``spark.addArtifacts(walreplay.package_zip("walreplay.zip"), pyfile=True)``.

    Raises:
        ConfigError: it ends with something else, or cannot be written.
    """
    path = Path(file)
    if path.suffix != ".zip":
        raise ConfigError("Spark takes a package only from a file .zip", path=str(path), remedy="Name it so")
    try:
        path.write_bytes(_zipped())
    except OSError as error:
        raise ConfigError(
            f"the package cannot be written ({error.strerror})", path=str(path), remedy="Give another file"
        ) from None
    return str(path)


def give_package(spark: SparkSession) -> None:
    """Send this package to the workers of a session of Spark Connect; a server that refuses may have it installed."""
    content = _zipped()
    # A session takes no other file of a name that it has had.
    name = f"{_NAME}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.zip"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        try:
            spark.addArtifacts(str(file), pyfile=True)
        except Exception:
            return
        finally:
            # pyspark has the driver import from it, too, which has the package already.
            sys.path[:] = [entry for entry in sys.path if entry != str(file)]


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, file in _files(resources.files(_NAME), _NAME):
            archive.writestr(zipfile.ZipInfo(path, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield path and file of all that is in a folder, which may lie in a zip, in the same order everywhere."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry


_SERVER: Final = "SPARK_REMOTE"
_NAMED: Final = (_SERVER, "SPARK_CONNECT_MODE_ENABLED")
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
_PORT: Final = 15002
# Seconds until a server has to accept a connection; pyspark tries for ten minutes, and says nothing.
_CONNECT_SECONDS: Final = 10.0


def is_remote() -> bool:
    """Return whether sessions are those of a server: one is named, or there is no Spark here."""
    return is_remote_only() or any(name in os.environ for name in _NAMED)


def remote_session(builder: SparkSession.Builder) -> SparkSession:
    """Return a session of the server that ``SPARK_REMOTE`` names, whose workers have this package.

    Raises:
        ConfigError: no server is named.
        SparkFailure: it cannot be reached.
    """
    if not any(name in os.environ for name in _NAMED):
        raise ConfigError(
            "the pyspark that is installed (pyspark-client) has no Spark of its own, and no server is named",
            remedy=f"Name a Spark Connect server: export {_SERVER}=sc://host:{_PORT}; or, to run Spark here: "
            "pip uninstall pyspark-client, then pip install 'walreplay[spark]'",
        )
    _check_server(os.environ.get(_SERVER, ""))
    spark = builder.getOrCreate()
    give_package(spark)
    return spark


def _check_server(address: str) -> None:
    """Raise if nothing takes a connection there."""
    url = urlsplit(address)
    if url.scheme != "sc" or not url.hostname or any(os.environ.get(name) for name in _PROXIES):
        return
    try:
        socket.create_connection((url.hostname, url.port or _PORT), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SparkFailure(
            f"the Spark Connect server cannot be reached ({reason})",
            path=f"sc://{url.netloc.rpartition('@')[2]}",
            remedy=f"See that it runs, and that {_SERVER} has its address, then run it again",
        ) from None


# Delta's JARs

_MAVEN: Final = "https://repo1.maven.org/maven2"
_MIRROR: Final = "MAVEN_REPOSITORY"
_TRIES: Final = 3
_DOWNLOAD_SECONDS: Final = 30.0  # a repository may be silent for so long

_OWN_JARS: Final = "bring the JARs yourself by spark.jars or spark.jars.packages"


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A version of Spark, by its first two numbers, and one of Delta."""

    spark: str
    delta: str

    @classmethod
    def installed(cls) -> Pair:
        """Return the pair that is installed.

        Raises:
            ConfigError: delta-spark is not.
        """
        try:
            delta = importlib.metadata.version("delta-spark")
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError(
                "delta-spark is not installed", remedy="Install it with: pip install 'walreplay[spark]'"
            ) from None
        return cls(minor(pyspark.__version__), delta)

    @property
    def paths(self) -> tuple[str, str]:
        """Where its two JARs are in a Maven repository."""
        # Since 4.1 Delta is built for each Spark version by itself.
        name = "delta-spark_2.13" if self.delta.startswith("4.0.") else f"delta-spark_{self.spark}_2.13"
        jar, storage = (f"io/delta/{part}/{self.delta}/{part}-{self.delta}.jar" for part in (name, "delta-storage"))
        return jar, storage


def delta_jars(progress: Progress | None = None) -> list[Path]:
    """Return the JARs for what is installed, from the cache, into which they are fetched if they are not there.

    Args:
        progress: reports downloads.

    Raises:
        ConfigError: there are none for this pair, or they cannot be fetched.
    """
    pair, digests = Pair.installed(), known_jars()
    missing = [path for path in pair.paths if path not in digests]
    # The JARs of Delta 4.0 do not name the Spark that they were built for.
    if missing or (pair.delta.startswith("4.0.") and pair.spark != "4.0"):
        raise ConfigError(
            f"no JARs of Delta are known for delta-spark {pair.delta} with pyspark {pyspark.__version__}",
            remedy=_known_pair(pair.spark, digests),
        )
    folder = jar_folder()
    jars = [folder / path.rpartition("/")[2] for path in pair.paths]
    absent = [(path, jar) for path, jar in zip(pair.paths, jars, strict=True) if not jar.is_file()]
    if absent and progress is not None:
        progress.stage(f"fetch Delta {pair.delta} for Spark {pair.spark} into {folder}", None)
    for path, jar in absent:
        _save(_fetched(path, digests[path], folder), jar)
    if absent and progress is not None:
        progress.done()
    return jars


def known_jars() -> Mapping[str, str]:
    """Return the SHA-256 of each JAR that is known, by its path in a Maven repository."""
    lines = Path(__file__).with_name("delta_jars.lock").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if line and not line.startswith("#"))
    return {path: digest for digest, path in pairs}


def jar_folder() -> Path:
    """Return the folder in which JARs are kept.

    Raises:
        ConfigError: the user has no home directory.
    """
    configured = os.environ.get("XDG_CACHE_HOME")
    try:
        cache = Path(configured) if configured else Path.home() / ".cache"
    except RuntimeError:
        raise ConfigError(
            "there is no folder to keep Delta's JARs in, because the user has no home directory",
            remedy=f"Name one by XDG_CACHE_HOME, or {_OWN_JARS}",
        ) from None
    return cache / "walreplay" / "jars"


def minor(version: str) -> str:
    """Return a version's first two numbers."""
    return ".".join(version.split(".")[:2])


def fitting_package() -> str:
    """Return how Spark is given the newest Delta for the pyspark that is installed."""
    best, _ = _best(minor(pyspark.__version__), known_jars())
    *group, artifact, version, _ = best.paths[0].split("/")
    return f"Start Spark with --packages {'.'.join(group)}:{artifact}:{version}"


def _known_pair(spark: str, digests: Mapping[str, str]) -> str:
    """Return what to install: the newest Delta for a Spark, or the newest pair if there is none."""
    best, fits = _best(spark, digests)
    packages = f"'delta-spark=={best.delta}'" if fits else f"'pyspark=={best.spark}.*' 'delta-spark=={best.delta}'"
    return f"Install a pair that fits: pip install {packages}; or {_OWN_JARS}"


def _best(spark: str, digests: Mapping[str, str]) -> tuple[Pair, bool]:
    """Return the newest pair for a Spark, or of all, and whether it is one for that Spark."""
    jars = (re.fullmatch(r"delta-spark_(?:(\d+\.\d+)_)?2\.13-(.+)\.jar", path.rpartition("/")[2]) for path in digests)
    pairs = {Pair(jar[1] or "4.0", jar[2]) for jar in jars if jar is not None}
    fitting = [pair for pair in pairs if pair.spark == spark]
    return max(fitting or pairs, key=lambda pair: (_numbers(pair.spark), _numbers(pair.delta))), bool(fitting)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _fetched(path: str, digest: str, folder: Path) -> bytes:
    """Fetch a JAR, and check that it is the one that is known."""
    url = f"{os.environ.get(_MIRROR, _MAVEN).rstrip('/')}/{path}"
    problem = ""
    for _ in range(_TRIES):
        try:
            with urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as answer:
                data: bytes = answer.read()
        except urllib.error.HTTPError as error:
            problem = f"the answer was {error.code}"
            if error.code < 500:  # the next try would get the same answer
                break
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "reason", error))
        else:
            if hashlib.sha256(data).hexdigest() == digest:
                return data
            problem = "its SHA-256 is another one than it should be"
    raise ConfigError(
        f"Delta's JAR cannot be fetched: {problem}",
        path=url,
        remedy=f"Name a mirror of Maven Central by {_MIRROR}, put the JAR into {folder}, or {_OWN_JARS}",
    )


def _save(data: bytes, jar: Path) -> None:
    """Write a file whole or not at all, though others may do the same at this moment."""
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        partial = jar.with_name(f"{jar.name}.{os.getpid()}.part")
        partial.write_bytes(data)
        partial.replace(jar)
    except OSError as error:
        raise ConfigError(
            f"Delta's JAR cannot be kept: {error.strerror}",
            path=str(jar),
            remedy=f"Name another folder by XDG_CACHE_HOME, or {_OWN_JARS}",
        ) from None


# The session

JAVA_VERSIONS: Final = (17, 21)

_EXTENSIONS: Final = "spark.sql.extensions"
_JARS: Final = "spark.jars"
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_SHELL: Final = "pyspark-shell"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# Values that are shown or written as text must not depend on where the job runs.
_TIME_ZONE: Final = ("spark.sql.session.timeZone", "UTC")

_STORES: Final = {"spark.hadoop.fs.s3a.performance.flags": "mkdir"}
"""A table's log has two folders.  To make one in an object store, Hadoop asks for all that are above it, one after the
other: half a dozen requests for each new table, about folders that do not exist there."""

_GIB: Final = 1 << 30

# Spark refuses a longer one: with the socket's own name its path would be too long for the system.
_LONGEST_SOCKET_FOLDER: Final = 61


def build_session(app_name: str = "walreplay", progress: Progress | None = None) -> SparkSession:
    """Return the existing session, or start one with Delta.

    Args:
        progress: reports the download of Delta's JARs, which happens once on a machine.

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
        if key in (_EXTENSIONS, _JARS) or key not in configured:  # these two include what is configured
            builder = builder.config(key, value)
    _submit(settings.get(_JARS))
    if not _is_submitted():
        _check_java()
        if master.startswith("local"):
            # The driver's Python has the packages that workers need; another one on the PATH may not.
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return builder.config(*_TIME_ZONE).getOrCreate()


def local_cores(spark: SparkSession) -> int | None:
    """Return how many tasks run at a time in local mode; None on a cluster, of which more or less may come any time."""
    try:
        master = spark.conf.get("spark.master", None) or ""
    except Exception:
        # A platform may refuse to tell.
        return None
    match = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?", master)
    if match is None:
        return None
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)


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
            match = re.fullmatch(r"\s*([^\s#=:]+)[\s=:]+(.*?)\s*", line)
            if match:
                yield match[1], match[2]


def _submit_arguments() -> Iterator[tuple[str, str]]:
    arguments = iter(_submitted())
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option in ("--conf", "-c", "--master", "--packages", "--jars"):
            value = value if equals else next(arguments, "")
            if option in ("--conf", "-c"):
                key, _, value = value.partition("=")
            else:
                key = {"--master": "spark.master", "--packages": "spark.jars.packages", "--jars": _JARS}[option]
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
    return {**settings, _JARS: ",".join(filter(None, (configured.get(_JARS), *map(str, jars))))}


def _submitted() -> list[str]:
    """Return the arguments for spark-submit, with the program at their end, which Spark does not start without."""
    try:
        arguments = shlex.split(os.environ.get(_SUBMIT, ""))
    except ValueError as error:
        raise ConfigError(f"{_SUBMIT} cannot be read: {error}", remedy="Correct it, or unset it") from None
    return arguments if _SHELL in arguments else [*arguments, _SHELL]


def _submit(jars: str | None) -> None:
    """Complete the arguments for spark-submit: JARs that these name count more than a session's."""
    if _SUBMIT not in os.environ:
        return
    arguments = _submitted()
    if jars is not None and _JARS in dict(_submit_arguments()):
        position = arguments.index(_SHELL)
        # What stands behind the program would be its own arguments.
        arguments[position:position] = ["--jars", jars]
    os.environ[_SUBMIT] = shlex.join(arguments)


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _has_delta(directory: Path) -> bool:
    """Return whether Delta's JAR for the running Spark lies in a directory."""
    spark = minor(pyspark.__version__)
    return any(directory.glob(f"delta-spark_{spark}_2.13-*.jar")) or any(directory.glob("delta-spark_2.13-4.0.*.jar"))


def _local() -> dict[str, str]:
    """Make Spark small and quiet: on one machine its defaults for clusters cost seconds a table."""
    log4j = Path(__file__).with_name("log4j2-local.properties").as_uri()
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = max(_GIB, min(4 * _GIB, machine // 2))  # in local mode the driver holds whole captures
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{memory >> 20}m",
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
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None
