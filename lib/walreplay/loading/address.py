"""The address of a PostgreSQL server for JDBC, and who asks it: of the environment, as libpq has it.

A password stands in ``PGPASSWORD`` or in the file that ``PGPASSFILE`` names, never in an address: addresses are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from walreplay.errors import ConfigError

SCHEME: Final = "jdbc:"

_POSTGRESQL: Final = "jdbc:postgresql:"
_URL: Final = re.compile(r"jdbc:postgresql://(?P<hosts>[^/?#]+)/(?P<database>[^/?#]+)(?:\?(?P<parameters>[^#]*))?")
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+)(?::(?P<port>\d+))?")
_PORT: Final = "5432"
_EVERYBODY: Final = 0o077


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is.

    Attributes:
        url: for the driver.
        shown: without parameters, for people and the ledger.
        hosts: names and ports.
        user: if the address names one.
    """

    url: str
    shown: str
    hosts: tuple[tuple[str, str], ...]
    database: str
    user: str | None


def read_address(text: str) -> Address:
    """Read an address like ``jdbc:postgresql://host:5432/database?sslmode=require``.

    Raises:
        ConfigError: it is none, or has a password in it; the text is not shown then.
    """
    if not text.startswith(_POSTGRESQL):
        raise ConfigError("of the sources for JDBC, PostgreSQL alone can be read", remedy=_HOW)
    found = _URL.fullmatch(text)
    hosts = [] if found is None else [_HOST.fullmatch(host) for host in found["hosts"].split(",")]
    if found is None or not all(hosts):
        raise ConfigError("the address is not one of PostgreSQL", remedy=_HOW)
    parameters = dict(parse_qsl(found["parameters"] or "", keep_blank_values=True))
    if any("password" in name.lower() for name in parameters):
        raise ConfigError("the address has a password in it, and addresses are shown and kept", remedy=_WHERE)
    return Address(
        text,
        f"jdbc:postgresql://{found['hosts']}/{found['database']}",
        tuple((host["name"].strip("[]"), host["port"] or _PORT) for host in hosts if host is not None),
        unquote(found["database"]),
        parameters.get("user"),
    )


_HOW: Final = "Write it like jdbc:postgresql://host:5432/database, with parameters as the driver has them"
_WHERE: Final = "Set PGPASSWORD, or PGPASSFILE to a file with lines host:port:database:user:password"


def credentials_of(address: Address, environment: Mapping[str, str]) -> dict[str, str]:
    """Give user and password, as the driver takes them; no password if none is known.

    Args:
        environment: has PGUSER, PGPASSWORD and PGPASSFILE.

    Raises:
        ConfigError: nobody is named, or the file with passwords cannot be used.
    """
    user = address.user or environment.get("PGUSER")
    if not user:
        raise ConfigError("it is not said who asks the database", path=address.shown, remedy="Set PGUSER")
    password = environment.get("PGPASSWORD") or _kept(address, user, environment)
    return {"user": user} if password is None else {"user": user, "password": password}


def _kept(address: Address, user: str, environment: Mapping[str, str]) -> str | None:
    """Look a password up in a file as libpq has it."""
    said = environment.get("PGPASSFILE")
    file = Path(said) if said else Path.home() / ".pgpass"
    try:
        if file.stat().st_mode & _EVERYBODY:
            raise ConfigError("others may read the file with passwords", path=str(file), remedy=f"chmod 600 {file}")
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        if said is None:
            return None
        raise ConfigError("there is no such file with passwords", path=said, remedy="Check PGPASSFILE") from None
    except (OSError, UnicodeDecodeError):
        raise ConfigError("the file with passwords cannot be read", path=str(file), remedy="Check PGPASSFILE") from None
    for line in lines:
        fields = [re.sub(r"\\(.)", r"\1", field) for field in re.findall(r"(?:^|:)((?:\\.|[^\\:])*)", line)]
        if line.startswith("#") or len(fields) != 5:
            continue
        if any(
            all(has in ("*", wanted) for has, wanted in zip(fields, (*host, address.database, user), strict=False))
            for host in address.hosts
        ):
            return fields[4]
    return None


__all__ = ["SCHEME", "Address", "credentials_of", "read_address"]
