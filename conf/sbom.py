"""The bill of materials of a wheel: what is in it, and which packages it asks for.

CycloneDX 1.7, as JSON; PEP 770 has such files in ``.dist-info/sboms``.  Packages that pip installs beside the wheel are
external, each with the requirement that the wheel states; their licences are those of the locked versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timezone
from email.message import Message
from importlib.metadata import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot7
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENT = "python:requirement"
"""The property with what the wheel asks for: a name, versions, and where it is needed."""

DEVELOPMENT = "dev"  # the extra that nobody installs with a wheel
_SHORT = 60  # characters; some packages have their licence's whole text in place of its name


def bill_of_materials(wheel: Message, library: Path | None, epoch: int) -> str:
    """Return the bill of a wheel as JSON, the same for the same wheel.

    Args:
        wheel: its METADATA.
        library: the compiled kernels; None of a wheel without them.
        epoch: seconds since 1970, for the time in the bill.
    """
    name, version = wheel["Name"], wheel["Version"]
    licence = LicenseExpression(wheel["License-Expression"])
    package = Component(
        type=ComponentType.LIBRARY, name=name, version=version, licenses=[licence], **_identity(name, version)
    )
    bill = Bom(components=[*_requirements(wheel), *(() if library is None else _compiled(library))])
    bill.metadata.component = package
    bill.metadata.timestamp = datetime.fromtimestamp(epoch, timezone.utc)
    bill.serial_number = uuid5(NAMESPACE_URL, f"{package.purl}#{epoch}#{library and library.name}")
    bill.register_dependency(package, bill.components)
    return str(JsonV1Dot7(bill).output_as_string(indent=2)) + "\n"


def _identity(name: str, version: str | None = None) -> dict[str, object]:
    url = PackageURL("pypi", name=canonicalize_name(name), version=version)
    return {"purl": url, "bom_ref": str(url)}


def _compiled(library: Path) -> Iterator[Component]:
    """Yield the library of kernels, and numba, whose functions for arrays and numbers are compiled into it."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    yield Component(
        type=ComponentType.FILE,
        name=library.name,
        bom_ref=library.name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        scope=ComponentScope.REQUIRED,
    )
    about = metadata("numba")
    yield Component(
        type=ComponentType.LIBRARY,
        name="numba",
        version=about["Version"],
        description=f"Parts of it are compiled into {library.name}",
        licenses=[LicenseExpression("BSD-2-Clause")],
        scope=ComponentScope.REQUIRED,
        **_identity("numba", about["Version"]),
    )


def _requirements(wheel: Message) -> Iterator[Component]:
    for text in wheel.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        marker = str(requirement.marker or "")
        if f'extra == "{DEVELOPMENT}"' in marker:
            continue
        yield Component(
            type=ComponentType.LIBRARY,
            name=requirement.name,
            licenses=list(_licences(requirement.name)),
            scope=ComponentScope.OPTIONAL if "extra" in marker else ComponentScope.REQUIRED,
            is_external=True,
            properties=[Property(name=REQUIREMENT, value=text)],
            **_identity(requirement.name),
        )


def _licences(name: str) -> Iterator[License]:
    """Yield what an installed package says of its licence: an expression, a name, or a classifier."""
    about = metadata(name)
    if about.get("License-Expression"):
        yield LicenseExpression(about["License-Expression"])
        return
    stated = about.get("License", "")
    classifiers = [text for text in about.get_all("Classifier") or () if text.startswith("License ::")]
    if 0 < len(stated) <= _SHORT:
        yield DisjunctiveLicense(name=stated)
    elif classifiers:
        yield DisjunctiveLicense(name=classifiers[0].rpartition(" :: ")[2])
