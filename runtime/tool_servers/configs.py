"""Settings of tool servers with and without their secrets, and what else is made of values alone."""

from collections.abc import Mapping
from typing import Any

import msgspec

from runtime.errors import BadRequest
from runtime.messages.tools import ToolServerConfig
from runtime.tool_servers.secrets import Secrets


def bare(config: ToolServerConfig) -> ToolServerConfig:
    """Without the values of secrets."""
    return msgspec.structs.replace(config, env=dict.fromkeys(config.env, ""), headers=dict.fromkeys(config.headers, ""))


def filled(config: ToolServerConfig, secrets: Secrets) -> ToolServerConfig:
    """With them; a value that is not empty is newer than the kept one."""

    def join(names: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
        return {name: value or kept.get(name, "") for name, value in names.items()}

    return msgspec.structs.replace(
        config, env=join(config.env, secrets.env), headers=join(config.headers, secrets.headers)
    )


def free_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken."""
    free, serial = name, 2
    while free in taken:
        free = f"{name[:44]} {serial}"
        serial += 1
    return free


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call.

    Raises:
        BadRequest: they are no JSON object.
    """
    if not text.strip():
        return {}
    try:
        arguments = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadRequest(f"The arguments are no JSON ({error}).", hint="Send an object.", param="arguments") from None
    if not isinstance(arguments, dict):
        raise BadRequest("The arguments are no JSON object.", hint='Begin with "{".', param="arguments")
    return arguments


def takes_sign_in(config: ToolServerConfig) -> bool:
    """Whether a person may sign in by browser: to an address, and without a token of their own."""
    return config.transport != "stdio" and not any(name.lower() == "authorization" for name in config.headers)


def keeps_sign_in(config: ToolServerConfig, before: ToolServerConfig | None) -> bool:
    """Whether a server keeps the tokens it has with new settings: they hold for one address."""
    return before is not None and before.signed_in and before.url == config.url and takes_sign_in(config)
