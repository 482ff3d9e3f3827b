"""Typed client of the host's private API.

`HostClient` (in `runtime.client.host_client`) is loaded on first use, so that importing this package for its
types costs no HTTP library.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.client.host_client import HostClient

__all__ = ["HostClient"]


def __getattr__(name: str) -> object:
    if name == "HostClient":
        from runtime.client.host_client import HostClient

        return HostClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
