"""The LSNs and times that people give: where a backfill begins and ends, and as of which LSN a base load's rows are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from walreplay.decode.until import Until
from walreplay.errors import ConfigError
from walreplay.lsn import POSTGRES_EPOCH, parse_lsn


def until_of(lsn: str | int | None, time: str | datetime | None) -> Until | None:
    """Read the end that is asked for; None if there is none.

    Raises:
        ConfigError: there are two, or it cannot be read.
    """
    if lsn is not None and time is not None:
        raise ConfigError(
            "an LSN and a time are given as the end", remedy="Give one of them: --until-lsn or --until-time"
        )
    if lsn is not None:
        try:
            return Until(lsn=parse_lsn(lsn) if isinstance(lsn, str) else lsn)
        except ValueError as error:
            raise ConfigError(f"--until-lsn: {error}") from None
    return None if time is None else Until(time=_micros(time))


def _micros(time: str | datetime) -> int:
    """Give a time in microseconds since 2000-01-01 UTC."""
    try:
        moment = datetime.fromisoformat(time.strip().replace("Z", "+00:00")) if isinstance(time, str) else time
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return (zoned - POSTGRES_EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"--until-time: not a time: {time!s}", remedy="Write it like 2026-03-01T00:00:00+00:00"
        ) from None


def first_lsn_of(lsn: str | int | None) -> int | None:
    """Read the commit LSN from which on changes are wanted; None if it is not given.

    Raises:
        ConfigError: it is no LSN.
    """
    return None if lsn is None else _lsn_of(lsn, "--from-lsn")


def last_lsn_of(at_lsn: int | str | None, consistent_point: int | str | None) -> int:
    """Give the last commit LSN that is among a base load's rows.

    Raises:
        ConfigError: none or both are given, or one cannot be read.
    """
    if (at_lsn is None) == (consistent_point is None):
        raise ConfigError(
            "it is not said as of which LSN the rows are" if at_lsn is None else "two LSNs are given",
            remedy="Give --consistent-point, which a slot's snapshot comes with, or --at-lsn, the last commit's",
        )
    if at_lsn is not None:
        return _lsn_of(at_lsn, "--at-lsn")
    assert consistent_point is not None
    # It is a position between two records: the next commit may begin just there.
    return _lsn_of(consistent_point, "--consistent-point") - 1


def _lsn_of(text: int | str, option: str) -> int:
    try:
        lsn = text if isinstance(text, int) else parse_lsn(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", remedy="Give it as PostgreSQL writes it") from None
    if not 0 < lsn < 1 << 63:
        raise ConfigError(f"{option} is no LSN that a server can have", remedy="Give it as PostgreSQL writes it")
    return lsn


__all__ = ["first_lsn_of", "last_lsn_of", "until_of"]
