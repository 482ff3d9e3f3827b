"""Asks a node whether it can be used, before llama.cpp is told of it.

llama.cpp ends the process when a node does not answer or speaks another version (`ggml-rpc.cpp`: `GGML_ABORT`), and
waits without end for one that serves somebody else (llama.cpp's own `rpc-server` takes one client at a time). So its
handshake is tried here first: one command byte, the length of the request as 8 bytes, the request; back come the
length and the version (`rpc_msg_hello_req`, `rpc_msg_hello_rsp`).
"""

import socket
import struct

from runtime.errors import ModelLoadFailed

TIMEOUT_S = 3.0
RPC_MAJOR = 7
"""`RPC_PROTO_MAJOR_VERSION` of the llama.cpp that is built in (`ggml-rpc.h`); the minor one may not be newer."""
RPC_MINOR = 0
HELLO = 14  # enum rpc_cmd
CAPS_BYTES = 24
"""`RPC_CONN_CAPS_SIZE` (`transport.h`); all zero asks for plain TCP."""
_ANSWER = struct.Struct(f"<QBBBB{CAPS_BYTES}x")


def check_node(address: str, timeout_s: float = TIMEOUT_S) -> None:
    """Say hello to the node at `host:port`.

    Raises:
        ModelLoadFailed: it does not answer, is busy, or is of another version. Details: `node`, `reason`.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout_s) as sock:
            sock.sendall(struct.pack("<BQ", HELLO, CAPS_BYTES) + bytes(CAPS_BYTES))
            found = b""
            while len(found) < _ANSWER.size:
                part = sock.recv(_ANSWER.size - len(found))
                if not part:
                    break
                found += part
    except TimeoutError:
        raise ModelLoadFailed(
            f"The node {address} does not answer.",
            hint="It may be switched off, or be in use by somebody else.",
            node=address,
            reason="no answer in time",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelLoadFailed(
            f"The node {address} cannot be reached: {reason}.",
            hint="Start 'deskside node' there, or remove the node.",
            node=address,
            reason=reason,
        ) from error
    if len(found) < _ANSWER.size:
        raise ModelLoadFailed(
            f"What listens at {address} is no node.",
            hint="Start 'deskside node' there.",
            node=address,
            reason="no hello",
        )
    _length, major, minor, _patch, _padding = _ANSWER.unpack(found)
    if major != RPC_MAJOR or minor > RPC_MINOR:
        raise ModelLoadFailed(
            f"The node {address} speaks version {major}.{minor} of llama.cpp's protocol, "
            f"this program {RPC_MAJOR}.{RPC_MINOR}.",
            hint="Install the same version of Deskside on both machines.",
            node=address,
            reason="other version",
        )
