"""Keep llama.cpp from using Intel's AMX tiles, which a common compiler breaks.

GCC before 12.4 and 13.3 drops the stores that fill the tile configuration (GCC bug 114098: `_tile_loadconfig`
declares only eight bytes of it as read), so llama.cpp 0c1e57098 built with Debian 12's GCC 12.2 ends with SIGILL
at the first batch of two tokens on a processor that has AMX (seen 2026-11-30; the disassembly shows one byte of
64 stored before `ldtilecfg`). llama.cpp has no switch for it at run time, but it asks the kernel for permission
first and does without when refused; and the kernel refuses while any thread has a signal stack too small for the
larger register state (Documentation/arch/x86/xstate.rst). So such a stack is set for the moment of asking.

This can go when the engine is always built by a compiler without the bug.
"""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

from runtime.worker import native

_SMALL_STACK_BYTES = 4096
_SS_DISABLE = 2


class _Stack(ctypes.Structure):
    """`stack_t` (signal.h)."""

    _fields_ = [("ss_sp", ctypes.c_void_p), ("ss_flags", ctypes.c_int), ("ss_size", ctypes.c_size_t)]


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Inside, llama.cpp is refused AMX; it asks once a process, when the first model is loaded."""
    if not sys.platform.startswith("linux") or b"AMX_INT8 = 1" not in (native.print_system_info() or b""):
        yield
        return
    sigaltstack = ctypes.CDLL(None)["sigaltstack"]
    memory = ctypes.create_string_buffer(_SMALL_STACK_BYTES)
    small = _Stack(ctypes.addressof(memory), 0, _SMALL_STACK_BYTES)
    before = _Stack()
    is_set = sigaltstack(ctypes.byref(small), ctypes.byref(before)) == 0
    try:
        yield
    finally:
        if is_set:
            if not before.ss_sp:
                before.ss_flags = _SS_DISABLE
            sigaltstack(ctypes.byref(before), None)
