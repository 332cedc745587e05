"""Plans as JSON, for the ledger."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from walreplay.transactions.plan import Plan, Resume


class _Stored(BaseModel):
    """A plan or a resume; bytes are written in base64, because JSON has none."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    plan: Plan | None = None
    resume: Resume | None = None


@cache
def _adapter() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


def plan_to_json(plan: Plan) -> str:
    """Write a plan."""
    return _Stored(plan=plan).model_dump_json(exclude={"resume"})


def plan_from_json(text: str) -> Plan:
    """Read what `plan_to_json` wrote."""
    stored = _adapter().validate_json(text)
    assert stored.plan is not None
    return stored.plan


def resume_to_json(resume: Resume) -> str:
    """Write where the next run goes on."""
    return _Stored(resume=resume).model_dump_json(exclude={"plan"})


def resume_from_json(text: str) -> Resume:
    """Read what `resume_to_json` wrote."""
    stored = _adapter().validate_json(text)
    assert stored.resume is not None
    return stored.resume


__all__: list[Any] = ["plan_from_json", "plan_to_json", "resume_from_json", "resume_to_json"]
