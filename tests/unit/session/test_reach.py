"""What Spark's Hadoop configuration says of an object store becomes the options of Arrow's client, or nothing does."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from walreplay.delta.target import Target
from walreplay.errors import SparkFailure
from walreplay.session import folders, reach
from walreplay.session.folders import MountedFolder, StoreFolder
from walreplay.session.reach import store_of
from walreplay.writing.by_files import choose_writer

_PROVIDER = "fs.s3a.aws.credentials.provider"
_HADOOP = "org.apache.hadoop.fs.s3a."
_KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s"}


@pytest.mark.parametrize(
    ("told", "options"),
    [
        ({}, {"scheme": "https"}),
        (_KEYS, {"access_key": "a", "secret_key": "s", "scheme": "https"}),
        (
            {**_KEYS, "fs.s3a.session.token": "t"},
            {"access_key": "a", "secret_key": "s", "session_token": "t", "scheme": "https"},
        ),
        (
            {**_KEYS, "fs.s3a.session.token": "t", _PROVIDER: f"{_HADOOP}SimpleAWSCredentialsProvider"},
            {"access_key": "a", "secret_key": "s", "scheme": "https"},
        ),
        # What is said of other buckets does not matter.
        ({**_KEYS, "fs.s3a.bucket.lake2.access.key": "b"}, {"access_key": "a", "secret_key": "s", "scheme": "https"}),
        (
            {
                **_KEYS,
                _PROVIDER: "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider, "
                f"{_HADOOP}auth.IAMInstanceCredentialsProvider",
            },
            {"scheme": "https"},
        ),
        ({_PROVIDER: f"{_HADOOP}AnonymousAWSCredentialsProvider"}, {"anonymous": True, "scheme": "https"}),
        (
            {"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.path.style.access": "true"},
            {"scheme": "http", "endpoint_override": "minio:9000", "force_virtual_addressing": False},
        ),
        (
            {"fs.s3a.endpoint": "store.example.com", "fs.s3a.connection.ssl.enabled": "false"},
            {"scheme": "http", "endpoint_override": "store.example.com", "force_virtual_addressing": True},
        ),
        ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, {"region": "eu-west-1", "scheme": "https"}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {"scheme": "https"}),
        # An address that the region does not give: Arrow would go elsewhere.
        (
            {"fs.s3a.endpoint": "s3-fips.us-gov-west-1.amazonaws.com", "fs.s3a.endpoint.region": "us-gov-west-1"},
            {
                "region": "us-gov-west-1",
                "scheme": "https",
                "endpoint_override": "s3-fips.us-gov-west-1.amazonaws.com",
                "force_virtual_addressing": True,
            },
        ),
        # What says how fast or how patient Spark's client is, as Spark and users do.
        (
            {
                "fs.s3a.connection.maximum": "9",
                "fs.s3a.fast.upload": "true",
                "fs.s3a.impl": f"{_HADOOP}S3AFileSystem",
                "fs.s3a.performance.flags": "mkdir",
                "fs.s3a.retry.limit": "1",
                "fs.s3a.vectored.read.max.merged.size": "2M",
            },
            {"scheme": "https"},
        ),
    ],
)
def test_s3_is_reached_as_spark_reaches_it(told: Mapping[str, str], options: Mapping[str, str | bool]) -> None:
    store = store_of("s3a://lake/mirror/", told)
    assert store is not None
    assert (store.kind, store.path, store.uri) == ("S3FileSystem", "lake/mirror", "s3a://lake/mirror")
    assert dict(store.options) == options


_OTHERS = (
    "accesspoint.required",
    "acl.default",
    "create.storage.class",
    "encryption.algorithm",
    "endpoint.fips",
    "proxy.host",
    "requester.pays.enabled",
    "server-side-encryption-algorithm",
    "signing-algorithm",
    "ssl.channel.mode",
    "what.nobody.knows",
)


@pytest.mark.parametrize(
    "told",
    [
        {_PROVIDER: "com.example.OurProvider"},
        {_PROVIDER: f"com.example.DefaultCredentialsProvider,{_HADOOP}SimpleAWSCredentialsProvider"},
        {_PROVIDER: "com.example.SimpleAWSCredentialsProvider", **_KEYS},
        {_PROVIDER: f"{_HADOOP}SimpleAWSCredentialsProvider"},
        {_PROVIDER: f"{_HADOOP}auth.AssumedRoleCredentialProvider"},
        {"fs.s3a.access.key": "a"},
        {**_KEYS, "fs.s3a.bucket.lake.endpoint.region": "eu-north-1"},
        {**_KEYS, "hadoop.security.credential.provider.path": "jceks://file/keys"},
        *({**_KEYS, f"fs.s3a.{name}": "x"} for name in _OTHERS),
    ],
)
def test_with_any_other_setting_a_place_is_left_to_spark(told: Mapping[str, str]) -> None:
    assert store_of("s3a://lake/mirror", told) is None


@pytest.mark.parametrize(
    "uri",
    [
        "s3://lake/t",
        "hdfs://name/t",
        "s3a:///t",
        "dbfs:/t",
        "s3a://lake/a%20b",
        "/lake/t",
        # Hadoop makes another path of them.
        "s3a://lake/a//b",
        "s3a://lake/./t",
        "s3a://lake/a/../t",
        "s3a://lake/a/..",
        # Of these, Python's parts of a URI are not all.
        "s3a://lake/a?b",
        "s3a://lake/a#b",
        "s3a://lake/a\nb",
    ],
)
def test_other_places_are_left_to_spark(uri: str) -> None:
    assert store_of(uri, _KEYS) is None


_EMR = "com.amazon.ws.emr.hadoop.fs.EmrFileSystem"


@pytest.mark.parametrize(
    ("uri", "told", "is_reached"),
    [
        ("s3://lake/t", {"fs.s3.impl": f"{_HADOOP}S3AFileSystem"}, True),
        ("s3://lake/t", {"fs.s3.impl": _EMR}, False),
        ("s3://lake/t", {"fs.s3a.impl": f"{_HADOOP}S3AFileSystem"}, False),
        ("s3a://lake/t", {"fs.s3a.impl": f"{_HADOOP}S3AFileSystem"}, True),
        ("s3a://lake/t", {"fs.s3a.impl": _EMR}, False),
        ("s3a://lake/t", {"fs.s3.impl": _EMR}, True),
        ("gs://lake/t", {"fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"}, True),
        ("gs://lake/t", {"fs.gs.impl": "com.example.CachedFileSystem"}, False),
        (
            "abfss://box@account.dfs.core.windows.net/lake",
            {"fs.azure.account.key": "k", "fs.abfss.impl": "com.example.CachedFileSystem"},
            False,
        ),
    ],
)
def test_a_place_is_reached_if_the_class_that_spark_has_for_it_is_known(
    uri: str, told: Mapping[str, str], is_reached: bool
) -> None:
    store = store_of(uri, {**_KEYS, **told})
    assert (store is not None) == is_reached
    # It is named as Spark names it; keys and endpoint are those of S3A.
    assert store is None or store.uri == uri
    assert store is None or not uri.startswith("s3") or dict(store.options)["access_key"] == "a"


_HOST = "account.dfs.core.windows.net"
_BOX = f"abfss://box@{_HOST}/lake"


@pytest.mark.parametrize(
    ("uri", "told", "kind", "options"),
    [
        ("gs://lake/t", {}, "GcsFileSystem", {}),
        ("gs://lake/t", {"fs.gs.auth.type": "APPLICATION_DEFAULT", "fs.gs.project.id": "p"}, "GcsFileSystem", {}),
        ("gs://lake/t", {"fs.gs.auth.type": "UNAUTHENTICATED"}, None, {}),
        ("gs://lake/t", {"google.cloud.auth.service.account.json.keyfile": "/keys.json"}, None, {}),
        ("gs://lake/t", {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, None, {}),
        ("gs://lake/t", {"fs.gs.auth.service.account.json.keyfile": "/keys.json"}, None, {}),
        ("gs://lake/t", {"fs.gs.encryption.key": "k"}, None, {}),
        (_BOX, {}, None, {}),
        (_BOX, {f"fs.azure.account.key.{_HOST}": "k", f"fs.azure.account.auth.type.{_HOST}": "OAuth"}, None, {}),
        (_BOX, {"fs.azure.account.key": "k", "fs.azure.encryption.encoded.client-provided-key": "e"}, None, {}),
        (_BOX, {"fs.azure.account.key": "k", f"fs.azure.sas.fixed.token.box.{_HOST}": "s"}, None, {}),
        (_BOX, {f"fs.azure.account.key.{_HOST[1:]}": "k"}, None, {}),
        (
            "abfss://box@account.dfs.core.chinacloudapi.cn/lake",
            {"fs.azure.account.key": "k"},
            None,
            {},
        ),
        (
            _BOX,
            {f"fs.azure.account.key.{_HOST}": "k"},
            "AzureFileSystem",
            {"account_name": "account", "account_key": "k"},
        ),
        (
            _BOX,
            {
                f"fs.azure.account.key.{_HOST}": "k",
                "fs.azure.account.key": "l",
                f"fs.azure.sas.fixed.token.x{_HOST}": "s",
            },
            "AzureFileSystem",
            {"account_name": "account", "account_key": "k"},
        ),
    ],
)
def test_other_stores_are_reached_if_arrow_has_what_it_needs(
    uri: str, told: Mapping[str, str], kind: str | None, options: Mapping[str, str | bool]
) -> None:
    store = store_of(uri, told)
    assert (store and store.kind, {} if store is None else dict(store.options)) == (kind, options)
    assert store is None or store.uri == uri


def test_a_store_of_which_arrow_has_no_client_is_not_reached() -> None:
    store = StoreFolder("x", "lake", "lake", "SomeFileSystem", (("keys_of_tomorrow", "1"),))
    assert reach._driver_reaches(_driver(), store) is False


def _driver(**properties: str) -> Any:
    """Return a session whose Java has some properties."""
    java = SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=properties.get)))
    return SimpleNamespace(_jvm=SimpleNamespace(java=java), _jsparkSession=None)


def _at(endpoint: str, bucket: str = "lake", *, by_path: bool = True) -> StoreFolder:
    told = {**_KEYS, "fs.s3a.endpoint": f"http://{endpoint}", "fs.s3a.path.style.access": str(by_path).lower()}
    store = store_of(f"s3a://{bucket}/t", told)
    assert store is not None
    return store


@contextmanager
def _port(kind: str) -> Iterator[str]:
    """Return an address that swallows packets, or refuses connections, or takes them and is silent."""
    with socket.socket() as server, ExitStack() as held:
        server.bind(("127.0.0.1", 0))
        host, port = server.getsockname()
        if kind != "refuses":
            server.listen(0 if kind == "swallows" else 20)
        if kind == "swallows":
            # What is beyond the queue of those who wait is not answered.
            for _ in range(3):
                waiting = held.enter_context(socket.socket())
                waiting.setblocking(False)
                with suppress(BlockingIOError):
                    waiting.connect((host, port))
        yield f"{host}:{port}"


@pytest.fixture
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in reach._PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("_no_proxy")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("refuses", "the connection is refused"),
        pytest.param("swallows", "it is silent", marks=pytest.mark.full),
        pytest.param("listens", "it is silent", marks=pytest.mark.full),
    ],
)
def test_an_address_at_which_nothing_answers_is_named_within_20_seconds(kind: str, said: str) -> None:
    began = time.monotonic()
    with _port(kind) as address, pytest.raises(SparkFailure) as raised:
        reach._driver_reaches(_driver(), _at(address))
    assert str(raised.value).startswith(f"s3a://lake/t: nothing answers at {address}: {said}. See that")
    assert time.monotonic() - began < 20


@pytest.fixture
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no address tried again."""
    monkeypatch.setattr(folders, "_FEW_ATTEMPTS", 1)


@pytest.mark.usefixtures("_no_proxy", "_once")
def test_a_name_that_is_not_known_is_told() -> None:
    with pytest.raises(SparkFailure, match=r"nothing answers at store\.invalid: its name is not known"):
        reach._driver_reaches(_driver(), _at("store.invalid"))
    with pytest.raises(SparkFailure, match=r"nothing answers at lake\.store\.invalid: .*path\.style\.access=true"):
        reach._driver_reaches(_driver(), _at("store.invalid", by_path=False))
    # Spark may reach that one otherwise.
    assert reach._driver_reaches(_driver(), _at("127.0.0.1:9", "a.b", by_path=False)) is False


@pytest.mark.usefixtures("_no_proxy", "_once")
def test_behind_a_proxy_the_store_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    with _port("refuses") as address:
        assert reach._driver_reaches(_driver(**{"https.proxyHost": "proxy"}), _at(address)) is False
    with _port("refuses") as address:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        assert reach._driver_reaches(_driver(), _at(address)) is False


@pytest.mark.usefixtures("_no_proxy", "_once")
def test_what_a_client_of_spark_connect_does_not_reach_its_server_may() -> None:
    client: Any = SimpleNamespace()
    with _port("refuses") as address:
        assert reach._driver_reaches(client, _at(address)) is False


@pytest.mark.usefixtures("_no_proxy", "_once")
def test_a_silence_is_not_remembered() -> None:
    with _port("refuses") as address:
        store = _at(address)
        for _ in range(2):
            with pytest.raises(SparkFailure):
                reach._driver_reaches(_driver(), store)


def test_a_configuration_is_asked_once_for_many_tables_and_anew_for_another_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def settings(session: Any) -> Mapping[str, str]:
        asked.append(session._jsc)
        return {**_KEYS, "fs.s3a.access.key": session._jsc}

    monkeypatch.setattr(reach, "_hadoop_settings", settings)
    one, other = (SimpleNamespace(_jsc=key, _jsparkSession=None) for key in "ab")
    stores = [reach._store_of(one, f"s3a://lake/{number}") for number in range(100)]  # type: ignore[arg-type]
    stores.append(reach._store_of(other, "s3a://lake/1"))  # type: ignore[arg-type]
    assert asked == ["a", "b"]
    assert [dict(store.options)["access_key"] for store in stores if store] == ["a"] * 100 + ["b"]


_OF_SESSION = {f"spark.hadoop.{key}": value for key, value in _KEYS.items()}


class _Remote:
    """A session of Spark Connect that tells some settings, or none."""

    def __init__(self, told: Mapping[str, str] | None) -> None:
        self.conf = self
        self._told = told
        self.asked = 0

    @property
    def getAll(self) -> Mapping[str, str]:  # noqa: N802
        self.asked += 1
        if self._told is None:
            raise RuntimeError("[CONFIG_NOT_AVAILABLE]")
        return self._told


@pytest.mark.parametrize(
    ("told", "reached"),
    [
        (_OF_SESSION, True),
        ({**_OF_SESSION, "spark.hadoop.fs.s3a.proxy.host": "", "spark.sql.x": "y"}, True),
        ({**_OF_SESSION, "spark.hadoop.fs.s3a.proxy.host": "proxy"}, False),
        ({**_OF_SESSION, "fs.s3a.encryption.algorithm": "SSE-KMS"}, False),
        # The server may have keys elsewhere, of which its client knows nothing: the one's own might be others.
        ({"spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000"}, False),
        ({}, False),
        (None, False),
    ],
    ids=["keys", "nothing more", "a proxy", "encryption", "no keys", "nothing", "refused"],
)
def test_a_client_of_spark_connect_goes_by_the_keys_that_its_session_has(
    told: Mapping[str, str] | None, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = _Remote(told)
    found = [reach._store_of(session, f"s3a://lake/{number}") for number in range(9)]
    assert [store is not None for store in found] == [reached] * 9
    assert session.asked == 1
    # What it reaches it writes files in.
    monkeypatch.setattr(reach, "_driver_reaches", lambda *_: True)
    assert choose_writer(session, Target.parse("s3a://lake/mirror")).kind == ("files" if reached else "statements")


@pytest.mark.parametrize(
    ("place", "spark_name"),
    [
        ("/mnt/staging", "/mnt/staging"),
        ("file:/mnt/staging", "file:/mnt/staging"),
        ("dbfs:/Volumes/main/archive/staging", "/Volumes/main/archive/staging"),
        ("file:/Volumes/main/archive/staging", "/Volumes/main/archive/staging"),
        ("/Volumes/main/archive/staging", "/Volumes/main/archive/staging"),
        ("s3a://lake/staging", None),
        ("hdfs://host/staging", None),
    ],
)
def test_the_users_folder_for_staged_events_is_one_of_the_machines_or_a_store(
    place: str, spark_name: str | None
) -> None:
    found = reach.staging_folder(_Remote({}), place)  # type: ignore[arg-type]
    if spark_name is None:
        assert found is None
    else:
        assert isinstance(found, MountedFolder)
        assert (found.path, found.uri) == (spark_name.removeprefix("file:"), spark_name)
