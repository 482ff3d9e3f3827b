"""The devices llama.cpp can compute on in this process, those of nodes included.

ggml names the devices of nodes `RPC0`, `RPC1`, … in the order in which they were registered in this process. That name
would mean another device in a process that registered them in another order, so here they are called as ggml calls
their memory: `RPC0[10.0.0.5:50052]` is the first device of the node at that address.
"""

import ctypes
import threading
from collections.abc import Collection, Sequence
from ctypes import c_bool, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass

import psutil

from runtime.errors import ModelLoadFailed
from runtime.messages.load import ComputeDevice, DeviceKind
from runtime.worker import ggml
from runtime.worker.rpc_hello import check_node

CPU = "CPU"
MAX_NODES = 16  # GGML_RPC_MAX_SERVERS (ggml-rpc.h)

_AddServer = ctypes.CFUNCTYPE(c_void_p, c_char_p)


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`."""

    _fields_ = (
        ("name", c_char_p),
        ("description", c_char_p),
        ("memory_free", c_size_t),
        ("memory_total", c_size_t),
        ("type", c_int),
        ("device_id", c_char_p),
        ("capabilities", c_bool * 8),
    )


_register = ggml.bind(ggml.registry, "ggml_backend_register", None, c_void_p)
_properties = ggml.bind(ggml.base, "ggml_backend_dev_get_props", None, c_void_p, ctypes.POINTER(_Properties))

_lock = threading.Lock()
_nodes: list[str] = []
"""Addresses registered in this process, in order; ggml forgets none, so neither do we (at most `MAX_NODES`)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        name: ours, the same in every process.
        ggml_name: ggml's, good in this process only.
        handle: its `ggml_backend_dev_t`.
        node: address of the machine that lends it, else empty.
        free_bytes: free at this moment; an integrated GPU may report 0 of both. For the processor both are those of
            the system.
    """

    name: str
    ggml_name: str
    description: str
    kind: DeviceKind
    handle: int
    node: str
    free_bytes: int
    total_bytes: int

    @property
    def is_gpu(self) -> bool:
        """Whether layers can be moved to it: a GPU, or what a node lends (llama.cpp makes no difference)."""
        return self.kind in ("gpu", "igpu", "node")


def register_nodes(addresses: Sequence[str]) -> None:
    """Make the devices of these nodes known in this process; those known already are left as they are.

    Raises:
        ModelLoadFailed: a node does not answer, is busy or of another version, or there are too many.
    """
    with _lock:
        for address in addresses:
            check_node(address)
            if address in _nodes:
                continue
            if len(_nodes) >= MAX_NODES:
                raise ModelLoadFailed(
                    f"llama.cpp takes at most {MAX_NODES} nodes.", node=address, reason="too many nodes"
                )
            add_server = ggml.backend_function(b"RPC", b"ggml_backend_rpc_add_server")
            if not add_server:
                raise ModelLoadFailed(
                    "This llama.cpp was built without RPC, so it cannot use nodes.", node=address, reason="no RPC"
                )
            registered = _AddServer(add_server)(address.encode())
            if not registered:
                raise ModelLoadFailed(f"The node {address} lends no device.", node=address, reason="no device")
            _register(registered)
            _nodes.append(address)


def list_devices(nodes: Collection[str] = ()) -> tuple[Device, ...]:
    """Ask ggml, in its order: this machine's devices and those of registered `nodes`.

    Asking a GPU for its memory starts its driver in this process. Nodes that are not named are left out: they may be
    gone since they were registered, and asking one that is gone ends the process.
    """
    counted: dict[str, int] = {}
    found: list[Device] = []
    for handle in ggml.device_handles():
        name, node = handle.name, ""
        if handle.kind == "node":
            node = handle.description
            counted[node] = counted.get(node, -1) + 1
            name = f"RPC{counted[node]}[{node}]"
            if node not in nodes:
                continue
        if handle.kind == "cpu":
            # ggml counts all memory as free there.
            system = psutil.virtual_memory()
            free, total = system.available, system.total
        else:
            free, total = handle.memory()
        found.append(Device(name, handle.name, handle.description, handle.kind, handle.handle, node, free, total))
    return tuple(found)


def compute_devices(nodes: Sequence[str]) -> tuple[tuple[ComputeDevice, ...], dict[str, str]]:
    """The devices a model can be put on, the processor last, and what is wrong with nodes that cannot be used."""
    problems: dict[str, str] = {}
    for address in nodes:
        try:
            register_nodes((address,))
        except ModelLoadFailed as error:
            problems[address] = error.message
    usable = [address for address in nodes if address not in problems]
    devices = tuple(
        ComputeDevice(
            name=device.name,
            description=device.description,
            kind=device.kind,
            total_bytes=device.total_bytes,
            free_bytes=device.free_bytes,
            pci_bus_id=_pci_bus_id(device),
            node=device.node,
        )
        for device in sorted(list_devices(usable), key=lambda device: device.kind == "cpu")
    )
    return devices, problems


def _pci_bus_id(device: Device) -> str:
    if device.kind not in ("gpu", "igpu"):
        return ""
    properties = _Properties()
    _properties(device.handle, ctypes.byref(properties))
    return (properties.device_id or b"").decode("ascii", "replace")
