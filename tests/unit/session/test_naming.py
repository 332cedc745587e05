"""Spark's UI is told what jobs are for, where it can be; where it cannot, nothing happens."""

# ruff: noqa: N802, N815 (the names are those of pyspark)

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from walreplay.session.naming import jobs_named


class Context:
    """A classic session's context, with the properties of this thread."""

    def __init__(self) -> None:
        self.properties: dict[str, str | None] = {"spark.job.description": "the caller's"}

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties[key]

    def setLocalProperty(self, key: str, value: str | None) -> None:
        self.properties[key] = value


class Connect:
    """A session of Spark Connect, with its tags."""

    def __init__(self, *tags: str) -> None:
        self.tags = {*tags}

    def getTags(self) -> set[str]:
        return {*self.tags}

    def addTag(self, tag: str) -> None:
        assert "," not in tag
        self.tags.add(tag)

    def removeTag(self, tag: str) -> None:
        self.tags.remove(tag)


def test_a_classic_session_describes_jobs_and_gets_back_what_it_had() -> None:
    context = Context()
    spark: Any = SimpleNamespace(_jsparkSession=None, sparkContext=context)
    with jobs_named(spark, "apply s.<t>"):
        with jobs_named(spark, "check s.t\n"):
            assert context.properties == {"spark.job.description": "walreplay: check s.t\\x0a"}
        assert context.properties == {"spark.job.description": "walreplay: apply s.‹t›"}
    assert context.properties == {"spark.job.description": "the caller's"}


def test_connect_tags_jobs_and_keeps_the_callers_tags() -> None:
    spark: Any = Connect("mine", "walreplay: same")
    with jobs_named(spark, "apply s.a,b"), jobs_named(spark, "same"):
        assert spark.tags == {"mine", "walreplay: same", "walreplay: apply s.a;b"}
    assert spark.tags == {"mine", "walreplay: same"}


class Refusing:
    """Whatever is asked of it is an error."""

    def __getattr__(self, name: str) -> Any:
        if name == "_jsparkSession":
            raise AttributeError(name)
        raise RuntimeError(name)


class RefusingClassic:
    _jsparkSession = None

    @property
    def sparkContext(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize("kind", [Refusing, RefusingClassic])
def test_a_platform_that_refuses_goes_on_without(kind: Any) -> None:
    with jobs_named(kind(), "apply s.t"):
        pass
    with pytest.raises(ValueError, match="of the work"), jobs_named(kind(), "apply s.t"):
        raise ValueError("of the work")
