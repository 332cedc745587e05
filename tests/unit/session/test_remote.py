"""Sessions of a Spark Connect server: what is said before one is asked for."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from walreplay.errors import ConfigError, SparkFailure
from walreplay.session import session as remote


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(remote, "give_package", found.append)
    return found


class Builder:
    def getOrCreate(self) -> str:  # noqa: N802
        return "a session"


BUILDER: Any = Builder()


def test_the_client_alone_needs_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not remote.is_remote()
    monkeypatch.setattr(remote, "is_remote_only", lambda: True)
    assert remote.is_remote()
    with pytest.raises(ConfigError, match="no server is named") as caught:
        remote.remote_session(BUILDER)
    assert "export SPARK_REMOTE=sc://host:15002" in (caught.value.remedy or "")


@pytest.mark.parametrize("user", ["", "token@"])
def test_a_server_that_is_not_there_is_named_at_once(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("SPARK_REMOTE", f"sc://{user}127.0.0.1:{port}/;user_id=somebody")
    with pytest.raises(SparkFailure, match=rf"^sc://127.0.0.1:{port}: .*cannot be reached \(Connection refused\)"):
        remote.remote_session(BUILDER)


@pytest.mark.parametrize("address", ["sc://127.0.0.1:{}", "sc://127.0.0.1:{}/;token=x", "local", "local[2]"])
def test_a_session_is_given_the_package(monkeypatch: pytest.MonkeyPatch, given: list[Any], address: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setenv("SPARK_REMOTE", address.format(server.getsockname()[1]))
        assert remote.is_remote()
        assert remote.remote_session(BUILDER) == "a session"
    assert given == ["a session"]


def test_what_a_proxy_reaches_is_not_tried(monkeypatch: pytest.MonkeyPatch, given: list[Any]) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://nowhere.invalid:1")
    monkeypatch.setenv("grpc_proxy", "http://proxy:3128")
    remote.remote_session(BUILDER)
    assert given == ["a session"]
