"""Places that driver and workers reach by themselves: mounted folders, and object stores by `pyarrow.fs`.

There Python reads and writes files itself, several times as fast as rows pass through the JVM.  How a store is reached
is what Spark's own Hadoop configuration says: a few of its settings are translated, and if any other one is set, which
may mean another place, or another way to write, Spark does the work.  `folder_of` asks the driver only; whether the
workers reach a place, too, is tried before anything is written (`walreplay.spark.reached`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from walreplay.errors import SparkFailure
from walreplay.session.folders import NO_NAME, Folder, MountedFolder, Options, StoreFolder, silence_of
from walreplay.session.isolation import has_own_sessions, mounted_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_folder(spark: SparkSession, path: str | None) -> str | None:
    """Return the folder of a path that the driver has mounted; None for any other place.

    Args:
        path: None (a table in a catalog) is no folder.
    """
    if path is None or not has_own_sessions(spark):
        return None
    place = getattr(spark._jvm, "org.apache.hadoop.fs.Path")(path)  # py4j seeks each part of a dotted name in all JARs
    if place.toUri().getScheme() is None:
        # What a path without a scheme means depends on the cluster.
        system = getattr(spark._jvm, "org.apache.hadoop.fs.FileSystem")
        place = place.makeQualified(system.getDefaultUri(spark._jsc.hadoopConfiguration()), place)
    where = place.toUri()
    return str(where.getPath()) if where.getScheme() == "file" else None


_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# The classes (``fs.SCHEME.impl``, None for Hadoop's default) that know a place by the settings that are read here.
_CLASSES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "s3a": (None, _S3A),
    # EMR has a file system of its own behind it, with keys and encryption of its own.
    "s3": (_S3A,),
    "gs": (None, "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"),
    "abfss": (None,),
}

_KEYSTORE: Final = "hadoop.security.credential.provider.path"  # keys and encryption may be set there, out of sight

# The settings below ``fs.s3a`` that may be set where Python reads and writes.
_S3_KNOWN: Final = re.compile(
    r"(?:(?:access|secret)\.key|session\.token|aws\.credentials\.provider|endpoint(?:\.region)?|path\.style\.access"
    r"|connection\.ssl\.enabled|impl(?:\.disable\.cache)?)$"
    # How fast, how patient and how careful Spark's own client is: that changes no place and no object.
    r"|attempts\.|block\.size|buffer\.dir|change\.detection|committer\.|connection\.(?!ssl)|directory\.marker"
    r"|experimental\.input|fast\.upload|multi(?:part|object)|performance\.|readahead\.|retry\.|threads\.|vectored\."
)

_PROVIDERS: Final = "org.apache.hadoop.fs.s3a."
# Classes that look for credentials where Arrow's client and delta-rs do, too.
_OF_ENVIRONMENT: Final = re.compile(
    r"(?:org\.apache\.hadoop\.fs\.s3a|software\.amazon\.awssdk|com\.amazonaws)\.[\w.]*(?:EnvironmentVariable|IAMInstance|WebIdentityTokenFile|Container|InstanceProfile|Default)"
    r"(?:AWS)?Credentials(?:Provider|ProviderChain)"
)

# Amazon's addresses, which Arrow finds by the region; any other address is an option.
_AMAZON: Final = re.compile(r"s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-\d+))?\.amazonaws\.com")

_AZURE: Final = ".dfs.core.windows.net"  # behind an account's name; other clouds have accounts of the same names

# With one of these options Arrow's clients need no credentials of the environment.
_KEYED: Final = {"access_key", "account_key", "anonymous"}

# What means something else in a URI's path to Spark than to Arrow, or to `urlsplit`, which leaves line breaks out.
_OTHERWISE: Final = re.compile(r"[\x00-\x1f\x7f?#%]|//|/\.\.?(?:/|$)")


def folder_of(spark: SparkSession, path: str | None) -> Folder | None:
    """Return a path's folder, if the driver reaches it by itself; None for any other place.

    Args:
        path: None (a table in a catalog) is no folder.

    Raises:
        SparkFailure: nothing answers at the address in Spark's settings.
    """
    local = local_folder(spark, path)
    if local is not None:
        return MountedFolder(local)
    store = None if path is None else _store_of(spark, path)
    return store if store is not None and _driver_reaches(spark, store) else None


def staging_folder(spark: SparkSession, place: str) -> Folder | None:
    """Return the folder at a place for staged events, if the driver may reach it by itself.

    A path is one of the machines, whatever it means to Spark; of Databricks' volumes each name will do.
    """
    path = mounted_path(place)
    if path is None:
        return folder_of(spark, place)
    # Databricks lets Spark read volumes by their path alone; what a path means to a server of Spark Connect is tried.
    is_plain = path.is_relative_to("/Volumes") or not (has_own_sessions(spark) or place.startswith("file:"))
    return MountedFolder(str(path), "" if is_plain else "file:")


# Whether the driver reaches a bucket, by its client's options.
_REACHED: Final[dict[tuple[str, Options, str], bool]] = {}


def _driver_reaches(spark: SparkSession, store: StoreFolder) -> bool:
    """Check whether the driver can list something in a store; asked once for each bucket."""
    key = store.kind, store.options, store.bucket
    if key not in _REACHED:
        try:
            store.try_out()
        except Exception as problem:
            # Whatever is the matter, an Arrow without the store's client among it: Spark's own way is there.  Only
            # where nothing answers Spark's client would get no answer either, and would try for minutes.
            # A client of Spark Connect may be in another network than its server.
            failure = _silence(store, problem) if has_own_sessions(spark) else None
            if failure is not None and not _has_proxy(spark):
                raise failure from None
            _REACHED[key] = False
        else:
            _REACHED[key] = True
    return _REACHED[key]


def _silence(store: StoreFolder, problem: Exception) -> SparkFailure | None:
    """Return the error if nothing answers at the store's address in Spark's settings; None for any other problem."""
    options, silence = dict(store.options), silence_of(problem)
    address, is_virtual = options.get("endpoint_override"), options.get("force_virtual_addressing")
    if not address or silence is None or (is_virtual and "." in store.bucket):
        # In front of an IP address a bucket with dots in its name is a part of the path to Spark, and not to Arrow.
        return None
    remedy = (
        "See that Spark's fs.s3a.endpoint is right, that the store runs, and that the network lets this machine there"
    )
    if silence == NO_NAME and is_virtual:
        address = f"{store.bucket}.{address}"
        remedy += "; stores that have no name for each bucket need spark.hadoop.fs.s3a.path.style.access=true"
    return SparkFailure(
        f"nothing answers at {address}: {silence}",
        path=store.uri,
        remedy=f"{remedy}. Then run it again; whatever was applied counts once",
    )


_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_JAVA_PROXIES: Final = ("http.proxyHost", "https.proxyHost", "socksProxyHost", "java.net.useSystemProxies")


def _has_proxy(spark: SparkSession) -> bool:
    """Check whether Java's clients may go through a proxy, which Arrow's does not know."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return True
    properties = spark._jvm.java.lang.System  # type: ignore[union-attr]
    return any(map(properties.getProperty, _JAVA_PROXIES))


_CACHE_SECONDS: Final = 30.0
# The last session whose settings were read, when (monotonic seconds), and the settings.
_CACHED: Final[list[tuple[object, float, Mapping[str, str]]]] = []


def _store_of(spark: SparkSession, path: str) -> StoreFolder | None:
    is_classic = has_own_sessions(spark)
    owner, now = spark._jsc if is_classic else spark, time.monotonic()
    settings = next((values for key, since, values in _CACHED if key is owner and now - since < _CACHE_SECONDS), None)
    if settings is None:
        settings = _hadoop_settings(spark) if is_classic else _session_settings(spark)
        _CACHED[:] = [(owner, time.monotonic(), settings)]
    store = store_of(path, settings)
    if store is None or is_classic or _KEYED & {name for name, _ in store.options}:
        return store
    # What a server has in its environment, or in core-site.xml, its client does not know.
    return None


def _hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """Return what of Spark's Hadoop configuration differs from Hadoop's defaults, as far as stores are concerned."""
    hadoop = spark._jsc.hadoopConfiguration()
    defaults = spark._jvm.org.apache.hadoop.conf.Configuration(False)  # type: ignore[union-attr]
    defaults.addResource("core-default.xml")
    names = [_KEYSTORE]
    for prefix in ("fs.", "google."):
        properties = hadoop.getPropsWithPrefix(prefix)
        properties.entrySet().removeAll(defaults.getPropsWithPrefix(prefix).entrySet())
        names += [f"{prefix}{name}" for name in properties]
    return {name: value for name in names if (value := hadoop.get(name))}


def _session_settings(spark: SparkSession) -> dict[str, str]:
    """Return the same of a session of Spark Connect: its own settings, as far as the server returns them."""
    try:
        values: Mapping[str, str] = spark.conf.getAll
    except Exception:
        # A platform may refuse to tell.
        return {}
    # What was set for the session, without the prefix, counts more.
    return {name.removeprefix("spark.hadoop."): values[name] for name in sorted(values, reverse=True) if values[name]}


def store_of(path: str, settings: Mapping[str, str]) -> StoreFolder | None:
    """Return a URI's place in an object store, as Arrow reaches it; None if it may not do so as Spark does.

    Args:
        settings: the settings of Hadoop that were set, without its defaults.
    """
    if _OTHERWISE.search(re.sub(r"^\w+://", "", path)) or _KEYSTORE in settings:
        return None
    uri = urlsplit(path)
    bucket, _, host = uri.netloc.partition("@")
    if not bucket or settings.get(f"fs.{uri.scheme}.impl") not in _CLASSES.get(uri.scheme, ()):
        return None
    options: Mapping[str, str | int | bool] | None = None
    if uri.scheme in {"s3a", "s3"} and not host:
        kind, options = "S3FileSystem", _s3(bucket, _below("fs.s3a.", settings))
    elif uri.scheme == "gs" and not host:
        kind, options = "GcsFileSystem", _gcs(settings)
    elif uri.scheme == "abfss" and host.endswith(_AZURE):
        kind, options = "AzureFileSystem", _azure(host, _below("fs.azure.", settings))
    if options is None:
        return None
    place = f"{bucket}/{uri.path.strip('/')}".rstrip("/")
    return StoreFolder(uri.scheme, uri.netloc, place, kind, tuple(options.items()))


def _below(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}


def _s3(bucket: str, settings: Mapping[str, str]) -> dict[str, str | int | bool] | None:
    """Return the options of Arrow's client for the settings below ``fs.s3a``; None if there is any other one."""
    others = [name for name in settings if _S3_KNOWN.match(name) is None]
    credentials = _s3_credentials(settings)
    if credentials is None or any(re.match(rf"bucket\.{re.escape(bucket)}\.|(?!bucket\.)", name) for name in others):
        return None
    options: dict[str, str | int | bool] = {**credentials}
    scheme, has_scheme, host = settings.get("endpoint", "").rstrip("/").rpartition("://")
    of_amazon = _AMAZON.fullmatch(host)
    region = settings.get("endpoint.region") or (of_amazon[1] if of_amazon else None)
    if region:
        options["region"] = region
    is_secure = scheme != "http" if has_scheme else settings.get("connection.ssl.enabled") != "false"
    options["scheme"] = "https" if is_secure else "http"
    if host and not of_amazon:
        options["endpoint_override"] = host
        options["force_virtual_addressing"] = settings.get("path.style.access") != "true"
    return options


def _s3_credentials(settings: Mapping[str, str]) -> dict[str, str | bool] | None:
    """Return the keys, or nothing where Hadoop's default provider has none and asks the environment, as Arrow does."""
    names, provider = ["access.key", "secret.key"], settings.get("aws.credentials.provider")
    if provider and all(map(_OF_ENVIRONMENT.fullmatch, re.split(r"[\s,]+", provider.strip()))):
        return {}
    if provider == f"{_PROVIDERS}AnonymousAWSCredentialsProvider":
        return {"anonymous": True}
    if provider in (None, f"{_PROVIDERS}TemporaryAWSCredentialsProvider"):
        names.append("session.token")
    elif provider != f"{_PROVIDERS}SimpleAWSCredentialsProvider":
        return None
    keys = {name.replace(".", "_"): settings[name] for name in names if name in settings}
    if {"access_key", "secret_key"} <= keys.keys():
        return {**keys}
    return None if keys or provider else {}


def _gcs(settings: Mapping[str, str]) -> dict[str, str | int | bool] | None:
    """Return no options, for credentials of the environment; None if Spark has others, or any other setting."""
    others = {name for name in settings if name.startswith(("fs.gs.", "google."))}
    others -= {"fs.gs.impl", "fs.gs.project.id", "fs.gs.auth.type"}
    kind = settings.get("fs.gs.auth.type", "COMPUTE_ENGINE")
    return {} if not others and kind in {"COMPUTE_ENGINE", "APPLICATION_DEFAULT"} else None


def _azure(host: str, settings: Mapping[str, str]) -> dict[str, str | int | bool] | None:
    """Return the options for an account and its key; None if there is any other setting below ``fs.azure``."""
    # Of an account alone counts more, and what is said of another account does not matter.
    here = f".{host}"
    account_settings = {
        name.removesuffix(here): settings[name]
        for name in sorted(settings)
        if name.endswith(here) or not name.endswith(".core.windows.net")
    }
    key, kind = account_settings.pop("account.key", None), account_settings.pop("account.auth.type", "SharedKey")
    if key is None or kind != "SharedKey" or account_settings:
        return None
    return {"account_name": host.partition(".")[0], "account_key": key}
