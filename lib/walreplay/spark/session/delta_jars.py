"""Delta's JARs for the pyspark and delta-spark that are installed: fetched once, and kept in the user's cache.

Spark would fetch them by Ivy, which prints a page, asks its repositories at every start, and fails in sixty lines.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from walreplay.errors import ConfigError
from walreplay.progress import Progress

_MAVEN: Final = "https://repo1.maven.org/maven2"
_MIRROR: Final = "MAVEN_REPOSITORY"
_TRIES: Final = 3
_PATIENCE: Final = 30.0
"""Seconds that a repository may be silent."""

_OWN_JARS: Final = "bring the JARs yourself by spark.jars or spark.jars.packages"


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A version of Spark, by its first two numbers, and one of Delta."""

    spark: str
    delta: str

    @classmethod
    def installed(cls) -> Pair:
        """Give the pair that is installed.

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
        return _path(name, self.delta), _path("delta-storage", self.delta)


def delta_jars(progress: Progress | None = None) -> list[Path]:
    """Give the JARs for what is installed, from the cache, into which they are fetched if they are not there.

    Args:
        progress: told when something is fetched.

    Raises:
        ConfigError: there are none for this pair, or they cannot be fetched.
    """
    pair, known = Pair.installed(), known_jars()
    missing = [path for path in pair.paths if path not in known]
    if missing or (pair.delta.startswith("4.0.") and pair.spark != "4.0"):
        raise ConfigError(
            f"no JARs of Delta are known for delta-spark {pair.delta} with pyspark {pyspark.__version__}",
            remedy=_known_pair(pair.spark, known),
        )
    folder = jar_folder()
    jars = [folder / path.rpartition("/")[2] for path in pair.paths]
    absent = [(path, jar) for path, jar in zip(pair.paths, jars, strict=True) if not jar.is_file()]
    if absent and progress is not None:
        progress.stage(f"fetch Delta {pair.delta} for Spark {pair.spark} into {folder}", None)
    for path, jar in absent:
        _save(_fetched(path, known[path], folder), jar)
    if absent and progress is not None:
        progress.done()
    return jars


def known_jars() -> Mapping[str, str]:
    """Give the SHA-256 of each JAR that is known, by its path in a Maven repository."""
    lines = Path(__file__).with_name("delta_jars.lock").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if line and not line.startswith("#"))
    return {path: digest for digest, path in pairs}


def jar_folder() -> Path:
    """Give the folder in which JARs are kept.

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
    """Give a version's first two numbers."""
    return ".".join(version.split(".")[:2])


def _path(name: str, version: str) -> str:
    return f"io/delta/{name}/{version}/{name}-{version}.jar"


def fitting_package() -> str:
    """Say how Spark is given the newest Delta for the pyspark that is installed."""
    best, _ = _best(minor(pyspark.__version__), known_jars())
    *group, artifact, version, _ = best.paths[0].split("/")
    return f"Start Spark with --packages {'.'.join(group)}:{artifact}:{version}"


def _known_pair(spark: str, known: Mapping[str, str]) -> str:
    """Say what to install: the newest Delta for a Spark, or the newest pair if there is none."""
    best, fits = _best(spark, known)
    wanted = f"'delta-spark=={best.delta}'" if fits else f"'pyspark=={best.spark}.*' 'delta-spark=={best.delta}'"
    return f"Install a pair that fits: pip install {wanted}; or {_OWN_JARS}"


def _best(spark: str, known: Mapping[str, str]) -> tuple[Pair, bool]:
    """Give the newest pair for a Spark, or of all, and say whether it is one for that Spark."""
    pairs = set()
    for path in known:
        found = re.fullmatch(r"delta-spark_(?:(\d+\.\d+)_)?2\.13-(.+)\.jar", path.rpartition("/")[2])
        if found:
            pairs.add(Pair(found[1] or "4.0", found[2]))
    here = [pair for pair in pairs if pair.spark == spark]
    return max(here or pairs, key=lambda pair: (_numbers(pair.spark), _numbers(pair.delta))), bool(here)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _fetched(path: str, digest: str, folder: Path) -> bytes:
    """Fetch a JAR, and check that it is the one that is known."""
    url = f"{os.environ.get(_MIRROR, _MAVEN).rstrip('/')}/{path}"
    problem = ""
    for _ in range(_TRIES):
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
                data: bytes = answer.read()
        except urllib.error.HTTPError as error:
            problem = f"the answer was {error.code}"
            if error.code < 500:
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


__all__ = ["Pair", "delta_jars", "jar_folder", "known_jars", "minor"]
