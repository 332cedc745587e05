"""How delta-rs reaches a folder: its address, and the options of the store's client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from walreplay.session.folders import Folder, MountedFolder, StoreFolder

_MISREAD: Final = re.compile(r"[%\x00-\x1f\x7f]")

_SCHEMES: Final = {"S3FileSystem": "s3", "GcsFileSystem": "gs", "AzureFileSystem": "abfss"}

# The options of Arrow's clients by which delta-rs names them.
_NAMES: Final[Mapping[str, str]] = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key",
}


def taken(folder: Folder) -> Folder | None:
    """Return a folder that delta-rs finds; None for one with a name that it takes for another."""
    return None if _MISREAD.search(folder.uri) else folder


def storage_of(folder: Folder) -> tuple[str, dict[str, str]]:
    """Return the address of a folder, and how its store is reached; mounted folders need no options."""
    if isinstance(folder, MountedFolder):
        return folder.path, {}
    assert isinstance(folder, StoreFolder)
    arrow_options = dict(folder.options)
    delta_options = {_NAMES[name]: str(value) for name, value in arrow_options.items() if name in _NAMES}
    if arrow_options.get("anonymous"):
        delta_options["skip_signature"] = "true"
    if "endpoint_override" in arrow_options:
        scheme, host = arrow_options.get("scheme", "https"), str(arrow_options["endpoint_override"])
        is_virtual = bool(arrow_options.get("force_virtual_addressing"))
        delta_options["aws_endpoint"] = f"{scheme}://{folder.bucket}.{host}" if is_virtual else f"{scheme}://{host}"
        delta_options["aws_allow_http"] = str(scheme == "http").lower()
        delta_options["aws_virtual_hosted_style_request"] = str(is_virtual).lower()
    _, _, path = folder.path.partition("/")
    return f"{_SCHEMES[folder.kind]}://{folder.bucket}/{path}", delta_options
