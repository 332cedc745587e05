"""Places that driver and workers reach by themselves: mounted folders, and object stores by `pyarrow.fs`.

There Python reads and writes files itself, which is several times as fast as to pass rows through the JVM.  How a store
is reached is what Spark's own Hadoop configuration says: keys, endpoint, region.  Where it has no keys, both find them
in the environment (instance roles).  `folder_of` asks the driver only; whether the workers reach a place, too, is tried
before anything is written (`walreplay.spark.staging.reached`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from walreplay.errors import SparkFailure
from walreplay.sink.folders import NO_NAME, Folder, MountedFolder, Options, StoreFolder, silence_of
from walreplay.spark.delta.mounted import local_folder
from walreplay.spark.session.isolation import has_own_sessions
from walreplay.spark.session.places import mounted_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Asked = Callable[[str], "str | None"]
"""Gives a value of Spark's Hadoop configuration."""

_KEYED: Final = {"access_key", "account_key", "sas_token", "anonymous"}
"""The options of Arrow's clients by which they need nothing of the environment's."""

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_AZURES: Final = "org.apache.hadoop.fs.azurebfs."
_CLASSES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "s3a": (None, _S3A),
    # Nobody's, if nothing is said.  EMR has a file system of its own behind it, with keys and encryption of its own.
    "s3": (_S3A,),
    "gs": (
        None,
        "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ),
    "abfs": (None, f"{_AZURES}AzureBlobFileSystem"),
    "abfss": (None, f"{_AZURES}SecureAzureBlobFileSystem"),
}
"""The classes (``fs.SCHEME.impl``) whose settings are known here; what another one makes of a place, it alone knows."""

_KEYS: Final = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_BY_ENVIRONMENT: Final = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "ContainerCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
)
"""Classes that look for credentials where Arrow's client does, too."""

_NOT_BY_ARROW: Final = (
    "access.grants.enabled",
    "accesspoint.arn",
    "accesspoint.required",
    "acl.default",
    "create.storage.class",
    "custom.signers",
    "delegation.token.binding",
    "encryption.algorithm",
    "endpoint.fips",
    "proxy.host",
    "requester.pays.enabled",
    "server-side-encryption-algorithm",
    "signing-algorithm",
)
"""Settings of S3 that Arrow's client would not heed: it might read another bucket, or write what nobody else reads."""

_AMAZON: Final = re.compile(r"s3(?:[.-][a-z]{2}(?:-[a-z]+)+-\d+)?\.amazonaws\.com")
"""The addresses of Amazon's that Arrow finds by the region; others (within a network, by FIPS) it is told."""
_REGION: Final = re.compile(r"[.-]([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:vpce\.)?amazonaws\.com")

_NOT_BY_GOOGLES: Final = (
    "fs.gs.auth.impersonation.service.account",
    "fs.gs.auth.service.account.json.keyfile",
    "fs.gs.encryption.key",
    "fs.gs.proxy.address",
    "google.cloud.auth.service.account.json.keyfile",
)
"""The same of Google's: with them Spark is somebody else, or encrypts by a key of its own."""

_AZURE: Final = ".dfs.core.windows.net"
"""Behind an account's name; other clouds have accounts of the same names."""

_OTHERWISE: Final = re.compile(r"[\x00-\x1f\x7f?#%]|//|/\.\.?(?:/|$)")
"""What means something else in a URI's path to Spark than to Arrow, or to `urlsplit`, which leaves line breaks out."""


def folder_of(spark: SparkSession, path: str | None) -> Folder | None:
    """Give a path's folder, if the driver reaches it by itself; None for any other place.

    Args:
        path: None (a table in a catalog) is no folder.

    Raises:
        SparkFailure: nothing answers at the address that Spark has been told.
    """
    local = local_folder(spark, path)
    if local is not None:
        return MountedFolder(local)
    store = None if path is None else _store_of(spark, path)
    return store if store is not None and _driver_reaches(spark, store) else None


def staging_folder(spark: SparkSession, place: str) -> Folder | None:
    """Give the folder that the user has named for staged events, if the driver may reach it by itself.

    Only Python writes and reads there, so a path is one of the machines, whatever it means to Spark; of Databricks'
    volumes each name will do.
    """
    path = mounted_path(place)
    if path is not None:
        return MountedFolder(str(path))
    return folder_of(spark, place)


_REACHED: Final[dict[tuple[str, Options, str], bool]] = {}
"""Whether the driver reaches a bucket, by its client's options."""


def _driver_reaches(spark: SparkSession, store: StoreFolder) -> bool:
    """Say whether the driver can list something in a store; asked once for each bucket."""
    key = store.kind, store.options, store.bucket
    if key not in _REACHED:
        try:
            store.try_out()
        except Exception as problem:
            # Whatever is the matter, an Arrow without the store's client among it: Spark's own way is there.  Only
            # where nothing answers Spark's client would get no answer either, and would try for minutes.
            # A client of Spark Connect may be in another network than its server.
            told = _silence(store, problem) if has_own_sessions(spark) else None
            if told is not None and not _has_proxy(spark):
                raise told from None
            _REACHED[key] = False
        else:
            _REACHED[key] = True
    return _REACHED[key]


def _silence(store: StoreFolder, problem: Exception) -> SparkFailure | None:
    """Give the error if nothing answers where Spark has been told that the store is; None if it is something else."""
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
    """Say whether Java's clients may go through a proxy, which Arrow's does not know."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return True
    properties = spark._jvm.java.lang.System  # type: ignore[union-attr]
    return any(map(properties.getProperty, _JAVA_PROXIES))


class _Hadoop:
    """Spark's Hadoop configuration.  Some 25 values are asked for at each place, so answers are kept for a while."""

    def __init__(self, context: Any) -> None:
        self.of = context
        self.asked_at = time.monotonic()
        self._answers: dict[str, str | None] = {}

    def __call__(self, key: str) -> str | None:
        """Give a value."""
        if key not in self._answers:
            # Keys may lie in a store of their own (``hadoop.security.credential.provider.path``).
            found = self.of.hadoopConfiguration().getPassword(key)
            self._answers[key] = None if found is None else "".join(found)
        return self._answers[key]


class _Settings:
    """The same, of a session of Spark Connect: what its settings say of it, as far as the server tells."""

    def __init__(self, spark: SparkSession) -> None:
        self.of = spark
        self.asked_at = time.monotonic()
        try:
            self._told: Mapping[str, str] = spark.conf.getAll
        except Exception:
            # A platform may refuse to tell.
            self._told = {}

    def __call__(self, key: str) -> str | None:
        """Give a value."""
        return self._told.get(f"spark.hadoop.{key}")


_KEPT_FOR: Final = 30.0
_CONFIGURATION: Final[list[_Hadoop | _Settings]] = []
"""The one that was asked last."""


def _store_of(spark: SparkSession, path: str) -> StoreFolder | None:
    is_asked = has_own_sessions(spark)
    known, of = next(iter(_CONFIGURATION), None), spark._jsc if is_asked else spark
    if known is None or known.of is not of or time.monotonic() - known.asked_at > _KEPT_FOR:
        known = _Hadoop(of) if is_asked else _Settings(spark)
        _CONFIGURATION[:] = [known]
    found = store_of(path, known)
    if found is None or is_asked or _KEYED & {name for name, _ in found.options}:
        return found
    # What a server has in its environment, or in core-site.xml, its client does not know.
    return None


def store_of(path: str, asked: Asked) -> StoreFolder | None:
    """Give a URI's place in an object store, as Arrow reaches it; None if it cannot do so as Spark does.

    Args:
        asked: gives a value of Spark's Hadoop configuration.
    """
    if _OTHERWISE.search(re.sub(r"^\w+://", "", path)):
        return None
    uri = urlsplit(path)
    bucket, host = uri.netloc, ""
    if "@" in bucket:
        bucket, _, host = bucket.partition("@")
    if not bucket:
        return None
    options: Mapping[str, str | int | bool] | None
    if asked(f"fs.{uri.scheme}.impl") not in _CLASSES.get(uri.scheme, ()):
        return None
    if uri.scheme in {"s3a", "s3"} and not host:
        kind, options = "S3FileSystem", _s3(bucket, asked)
    elif uri.scheme == "gs" and not host:
        kind, options = "GcsFileSystem", _gcs(asked)
    elif uri.scheme in {"abfs", "abfss"} and host.endswith(_AZURE):
        kind, options = "AzureFileSystem", _azure(host, asked)
    else:
        return None
    if options is None:
        return None
    kept: Options = tuple(options.items())
    place = f"{bucket}/{uri.path.strip('/')}".rstrip("/")
    return StoreFolder(uri.scheme, uri.netloc, place, kind, kept)


def _s3(bucket: str, asked: Asked) -> dict[str, str | int | bool] | None:
    """Give the options of Arrow's client for what ``fs.s3a`` says, of the bucket alone or of all."""

    def of(name: str) -> str | None:
        return asked(f"fs.s3a.bucket.{bucket}.{name}") or asked(f"fs.s3a.{name}") or None

    if any(of(name) not in (None, "false") for name in _NOT_BY_ARROW):
        return None
    credentials = _s3_credentials(of)
    if credentials is None:
        return None
    found: dict[str, str | int | bool] = {**credentials}
    endpoint = of("endpoint") or ""
    scheme, has_scheme, host = endpoint.rpartition("://")
    in_host = _REGION.search(host)
    region = of("endpoint.region") or (in_host[1] if in_host else None)
    if region:
        found["region"] = region
    secure = scheme != "http" if has_scheme else of("connection.ssl.enabled") != "false"
    found["scheme"] = "https" if secure else "http"
    if host and not _AMAZON.fullmatch(host):
        found["endpoint_override"] = host.rstrip("/")
        found["force_virtual_addressing"] = of("path.style.access") != "true"
    return found


def _s3_credentials(of: Asked) -> dict[str, str | bool] | None:
    providers = {name.strip().rpartition(".")[2] for name in (of("aws.credentials.provider") or "").split(",")} - {""}
    keys = {name: of(key) for name, key in (("access_key", "access.key"), ("secret_key", "secret.key"))}
    if all(keys.values()) and (not providers or providers & set(_KEYS)):
        token = of("session.token") if not providers or _KEYS[1] in providers else None
        return {name: value for name, value in (*keys.items(), ("session_token", token)) if value}
    if providers == {"AnonymousAWSCredentialsProvider"}:
        return {"anonymous": True}
    return {} if not providers or providers & set(_BY_ENVIRONMENT) else None


def _gcs(asked: Asked) -> dict[str, str | int | bool] | None:
    if any(map(asked, _NOT_BY_GOOGLES)):
        return None
    kind = asked("fs.gs.auth.type") or asked("google.cloud.auth.type") or "COMPUTE_ENGINE"
    if kind == "UNAUTHENTICATED":
        return {"anonymous": True}
    return {} if kind in {"COMPUTE_ENGINE", "APPLICATION_DEFAULT"} else None


def _azure(host: str, asked: Asked) -> dict[str, str | int | bool] | None:
    account = host.partition(".")[0]

    def of(name: str) -> str | None:
        return asked(f"fs.azure.{name}.{host}") or asked(f"fs.azure.{name}") or None

    if of("encryption.encoded.client-provided-key") or of("encryption.context.provider.type"):
        return None
    kind = of("account.auth.type")
    key, token, provider = of("account.key"), of("sas.fixed.token"), of("account.oauth.provider.type") or ""
    if key and kind in {None, "SharedKey"}:
        return {"account_name": account, "account_key": key}
    if token and kind in {None, "SAS"}:
        return {"account_name": account, "sas_token": token}
    # Of several identities that a machine may have, Arrow would take its first.
    is_machine = provider.endswith("MsiTokenProvider") and not of("account.oauth2.client.id")
    return {"account_name": account} if is_machine and kind in {None, "OAuth"} else None


__all__ = ["folder_of", "staging_folder", "store_of"]
