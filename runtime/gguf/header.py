"""Bytes of a GGUF header to typed values, without building the token lists.

A vocabulary is a hundred thousand strings inside the header. They are stepped over, and an `ArrayRef` says where
they are: that reads the starter model's header in about 15 ms where a reader that builds them takes seconds.

Format: `ggml/include/gguf.h` of llama.cpp (version 3; version 2 is the same, version 1 is not read by llama.cpp
either). All numbers are little-endian, unless the low half of the version reads as zero: then the file is
big-endian.

A header is untrusted: no count or length is believed before it is checked against a limit, what is kept is bounded
(`MAX_KEPT_BYTES`), and so is the work (bytes, strings and lists that are stepped over).
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from runtime.errors import FileTruncated, ModelLoadFailed, NotGguf
from runtime.gguf.quantization import TENSOR_TYPES, tensor_bytes
from runtime.gguf.source import ByteSource
from runtime.units import format_bytes

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 128 * 1024 * 1024
"""The largest real headers (vocabularies of 260,000 tokens) are about 20 MB."""
MAX_KV = 10_000
MAX_TENSORS = 100_000
MAX_ARRAY_ELEMENTS = 2_000_000
"""The largest real lists are merges of some 500,000 strings."""
MAX_KEPT_ELEMENTS = 1024
"""Arrays up to this length (per-layer numbers, languages) become tuples; longer ones an `ArrayRef`."""
MAX_KEPT_TOTAL = 200_000
"""Elements of all tuples together; after that, short arrays become an `ArrayRef` too."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Names and strings that are kept, all together. A chat template may have 100 kB."""
MAX_SKIPPED_STRINGS = 4_000_000
MAX_LISTS = 50_000
"""Lists inside lists, all together (no model known uses one)."""
MAX_STRING_BYTES = 10_000_000
MAX_KEY_BYTES = 65_535  # the format's own limit
MAX_TENSOR_NAME_BYTES = 63  # GGML_MAX_NAME with its closing zero
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_DIM = 2**32
MAX_DATA_BYTES = 2**62
"""Of one tensor, and of all together: far over any disk, and far from where 64-bit sums wrap around."""
MAX_NESTING = 4
DEFAULT_ALIGNMENT = 32

_WINDOW_BYTES = 1024 * 1024


class ValueType(IntEnum):
    """Type ids of metadata values (`gguf_type`)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_CODES: Mapping[ValueType, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ArrayRef:
    """A long array that was stepped over: `count` elements of `element_type`, from `offset` in the file."""

    element_type: ValueType
    count: int
    offset: int
    size_bytes: int


MetaValue = Scalar | tuple[Scalar, ...] | ArrayRef


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the header announces it. `offset` counts from the start of the data part.

    `shape` is in ggml's order (`ne[0]` first, the row length).
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int

    @property
    def n_elements(self) -> int:
        """Product of the shape."""
        product = 1
        for length in self.shape:
            product *= length
        return product


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A whole header. `data_offset` is where tensor data begins, `size_bytes` the file's size now."""

    version: int
    is_big_endian: bool
    metadata: Mapping[str, MetaValue]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    size_bytes: int

    def text(self, key: str) -> str:
        """The string of `key`; "" if there is none or it is no string."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int | None:
        """The whole number of `key`; `None` if there is none or it is no whole number."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The number of `key`; `None` if there is none or it is no number."""
        value = self.metadata.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def array_length(self, key: str) -> int | None:
        """How many elements the array of `key` has, kept or stepped over."""
        value = self.metadata.get(key)
        if isinstance(value, ArrayRef):
            return value.count
        return len(value) if isinstance(value, tuple) else None


class _Cursor:
    """Walks a source through a window that is refilled as needed."""

    def __init__(self, source: ByteSource, start: int = 0, *, order: str = "<") -> None:
        self._source = source
        self._base = start
        self._window = b""
        self._pos = 0
        self.order = order
        self._u64 = struct.Struct(order + "Q")
        self._kept_bytes = 0
        self._kept_elements = 0
        self._n_strings = 0
        self._n_lists = 0

    def use_big_endian(self) -> None:
        self.order = ">"
        self._u64 = struct.Struct(">Q")

    @property
    def offset(self) -> int:
        return self._base + self._pos

    def need(self, n_bytes: int) -> None:
        """Have `n_bytes` from here in the window."""
        if self._pos + n_bytes <= len(self._window):
            return
        start = self.offset
        if start + n_bytes > MAX_HEADER_BYTES:
            raise _damaged(self._source, f"its header is over {format_bytes(MAX_HEADER_BYTES)}")
        want_bytes = min(max(n_bytes, _WINDOW_BYTES), MAX_HEADER_BYTES - start)  # so that no window hides the limit
        self._window = _read_some(self._source, start, n_bytes, want_bytes)
        self._base, self._pos = start, 0
        if len(self._window) < n_bytes:
            raise FileTruncated(
                f"{self._source.name} ends inside its own header, after {format_bytes(start + len(self._window))}.",
                hint="The download or copy is incomplete. Download the file again.",
                size_bytes=self._source.size_bytes,
                needed_bytes=start + n_bytes,
            )

    def take(self, n_bytes: int) -> bytes:
        self.need(n_bytes)
        start = self._pos
        self._pos = start + n_bytes
        return self._window[start : self._pos]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little" if self.order == "<" else "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little" if self.order == "<" else "big")

    def string(self) -> str:
        """A string that is kept. One that is not UTF-8 is a text of the author's, not worth a model."""
        raw = self.string_bytes()
        self.keep(len(raw))
        return raw.decode("utf-8", "replace")

    def name(self, what: str, max_bytes: int) -> str:
        """A key or the name of a tensor, which must be UTF-8: nothing can be found by a name that is guessed."""
        length = self.u64()
        if length > max_bytes:
            raise self.fail(f"the name of {what} claims {length} bytes")
        self.keep(length)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"the name of {what} is not UTF-8 text") from None

    def string_bytes(self) -> bytes:
        length = self.u64()
        if length > MAX_STRING_BYTES:
            raise self.fail(f"a string in its header claims {length} bytes")
        return self.take(length)

    def keep(self, n_bytes: int) -> None:
        """Count what stays in memory."""
        self._kept_bytes += n_bytes
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self.fail(f"its metadata is over {format_bytes(MAX_KEPT_BYTES)}")

    def may_keep(self, count: int) -> bool:
        """Whether a list of so many elements becomes a tuple."""
        if count > MAX_KEPT_ELEMENTS or self._kept_elements + count > MAX_KEPT_TOTAL:
            return False
        self._kept_elements += count
        return True

    def enter_list(self) -> None:
        """Count a list inside a list."""
        self._n_lists += 1
        if self._n_lists > MAX_LISTS:
            raise self.fail(f"it has over {MAX_LISTS} lists inside lists")

    def skip(self, n_bytes: int) -> None:
        if n_bytes <= len(self._window) - self._pos:
            self._pos += n_bytes
            return
        target = self.offset + n_bytes
        if target > MAX_HEADER_BYTES:
            raise _damaged(self._source, f"its header is over {format_bytes(MAX_HEADER_BYTES)}")
        self._base, self._window, self._pos = target - 1, b"", 0
        self.take(1)  # the last byte must exist

    def skip_strings(self, count: int) -> None:
        self._n_strings += count
        if self._n_strings > MAX_SKIPPED_STRINGS:
            raise self.fail(f"its lists hold over {MAX_SKIPPED_STRINGS} strings")
        unpack = self._u64.unpack_from
        while count:
            window, pos, end = self._window, self._pos, len(self._window) - 8
            while count and pos <= end:
                following = pos + 8 + unpack(window, pos)[0]
                if following > end + 8:
                    break
                pos = following
                count -= 1
            self._pos = pos
            if count:
                self.string_bytes()
                count -= 1

    def fail(self, reason: str) -> ModelLoadFailed:
        return _damaged(self._source, reason)


def _read_some(source: ByteSource, start: int, need_bytes: int, want_bytes: int) -> bytes:
    """Up to `want_bytes`, fewer than `need_bytes` only where the source ends."""
    found = source.read_at(start, want_bytes)
    while len(found) < need_bytes and (more := source.read_at(start + len(found), need_bytes - len(found))):
        found += more
    return found


def _damaged(source: ByteSource, reason: str) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"{source.name} is damaged: {reason}.",
        hint="Download the file again, or choose another one.",
        reason=reason,
    )


def read_header(source: ByteSource) -> GgufHeader:
    """Read and check a header.

    Raises:
        NotGguf: if the first bytes are not GGUF's, or its version is one that llama.cpp does not read.
        FileTruncated: if the source ends inside the header. Details: `size_bytes`, `needed_bytes`.
        ModelLoadFailed: if a count or length in it cannot be true.
        OSError: if the source cannot be read.
    """
    cursor = _Cursor(source)
    version = _read_version(source, cursor)
    n_tensors, n_kv = cursor.u64(), cursor.u64()
    if n_tensors > MAX_TENSORS:
        raise cursor.fail(f"it claims {n_tensors} tensors")
    if n_kv > MAX_KV:
        raise cursor.fail(f"it claims {n_kv} metadata entries")
    metadata: dict[str, MetaValue] = {}
    for _ in range(n_kv):
        key = cursor.name("a metadata entry", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.fail(f"the metadata entry {key[:80]!r} is there twice")
        metadata[key] = _read_value(cursor, _value_type(cursor))
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.fail(f"its alignment {repr(alignment)[:40]} is not a power of two")
    tensors = tuple(_read_tensor(cursor) for _ in range(n_tensors))
    _check_layout(cursor, tensors, alignment)
    return GgufHeader(
        version=version,
        is_big_endian=cursor.order == ">",
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_offset=-(-cursor.offset // alignment) * alignment,
        size_bytes=source.size_bytes,
    )


def _check_layout(cursor: _Cursor, tensors: tuple[TensorInfo, ...], alignment: int) -> None:
    """Tensors must follow one another without a gap, as llama.cpp wants them; a file may end before them."""
    names: set[str] = set()
    expected: int | None = 0
    for tensor in tensors:
        if tensor.name in names:
            raise cursor.fail(f"the tensor {tensor.name!r} is there twice")
        names.add(tensor.name)
        n_bytes = tensor_bytes(tensor.type_id, tensor.shape)
        if tensor.n_elements > MAX_DATA_BYTES or (n_bytes or 0) > MAX_DATA_BYTES or tensor.offset > MAX_DATA_BYTES:
            raise cursor.fail(f"the tensor {tensor.name!r} has the impossible shape {tensor.shape}")
        kind = TENSOR_TYPES.get(tensor.type_id)
        if kind is not None and tensor.shape and tensor.shape[0] % kind.block_size:
            raise cursor.fail(
                f"a row of the tensor {tensor.name!r} has {tensor.shape[0]} numbers, {kind.name} needs a multiple of "
                f"{kind.block_size}"
            )
        if tensor.offset % alignment:
            raise cursor.fail(f"the tensor {tensor.name!r} is not aligned to {alignment} bytes")
        if expected is not None and tensor.offset != expected:
            what = "overlaps the one before" if tensor.offset < expected else "leaves a gap behind the one before"
            raise cursor.fail(f"the tensor {tensor.name!r} {what}")
        # A format that is not in the table has an unknown size: what follows cannot be checked.
        expected = None if n_bytes is None else -(-(tensor.offset + n_bytes) // alignment) * alignment


def _read_version(source: ByteSource, cursor: _Cursor) -> int:
    head = _read_some(source, 0, 8, 8)
    if head[:4] != MAGIC:
        what = "is empty" if not head else "is not a GGUF model file"
        raise NotGguf(
            f"{source.name} {what}.",
            hint="Deskside runs models in the GGUF format; look for a file that ends in .gguf.",
            reason=f"the first bytes are {head[:4]!r}, not {MAGIC!r}",
        )
    cursor.take(4)
    version = cursor.u32()
    if version and version & 0xFFFF == 0:
        cursor.use_big_endian()
        version = int.from_bytes(head[4:8], "big")
    if version not in (2, 3):
        raise NotGguf(
            f"{source.name} is a GGUF file of version {version}; versions 2 and 3 can be read.",
            hint="Look for a newer conversion of this model.",
            reason=f"version {version}",
        )
    return version


def _value_type(cursor: _Cursor) -> ValueType:
    type_id = cursor.u32()
    try:
        return ValueType(type_id)
    except ValueError:
        raise cursor.fail(f"a metadata entry has the unknown type {type_id}") from None


def _read_value(cursor: _Cursor, value_type: ValueType) -> MetaValue:
    if value_type is ValueType.STRING:
        return cursor.string()
    if value_type is ValueType.ARRAY:
        return _read_array(cursor)
    code = struct.Struct(cursor.order + _CODES[value_type])
    value: int | float | bool = code.unpack(cursor.take(code.size))[0]
    return value


def _read_array(cursor: _Cursor) -> MetaValue:
    element_type, count = _array_head(cursor)
    if element_type is not ValueType.ARRAY and cursor.may_keep(count):
        if element_type is ValueType.STRING:
            return tuple(cursor.string() for _ in range(count))
        code = struct.Struct(f"{cursor.order}{count}{_CODES[element_type]}")
        return tuple(code.unpack(cursor.take(code.size)))
    start = cursor.offset
    _skip_elements(cursor, element_type, count, depth=1)
    return ArrayRef(element_type, count, start, cursor.offset - start)


def _array_head(cursor: _Cursor) -> tuple[ValueType, int]:
    element_type, count = _value_type(cursor), cursor.u64()
    if count > MAX_ARRAY_ELEMENTS:
        raise cursor.fail(f"a list in its header claims {count} elements")
    return element_type, count


def _skip_elements(cursor: _Cursor, element_type: ValueType, count: int, depth: int) -> None:
    if element_type is ValueType.STRING:
        cursor.skip_strings(count)
    elif element_type is not ValueType.ARRAY:
        if count:
            cursor.skip(count * struct.calcsize("<" + _CODES[element_type]))
    else:
        if depth >= MAX_NESTING:
            raise cursor.fail("lists in its header are nested too deeply")
        if count > MAX_LISTS:
            raise cursor.fail(f"a list of lists in its header claims {count} elements")
        for _ in range(count):
            cursor.enter_list()
            inner_type, inner_count = _array_head(cursor)
            _skip_elements(cursor, inner_type, inner_count, depth + 1)


def _read_tensor(cursor: _Cursor) -> TensorInfo:
    name = cursor.name("a tensor", MAX_TENSOR_NAME_BYTES)
    n_dims = cursor.u32()
    if n_dims > MAX_DIMS:
        raise cursor.fail(f"the tensor {name[:80]!r} claims {n_dims} dimensions")
    shape = tuple(cursor.u64() for _ in range(n_dims))
    if any(not 0 < length <= MAX_DIM for length in shape):
        raise cursor.fail(f"the tensor {name[:80]!r} has the impossible shape {shape}")
    return TensorInfo(name, shape, cursor.u32(), cursor.u64())


def read_numbers(source: ByteSource, header: GgufHeader, key: str) -> tuple[int | float, ...]:
    """The numbers of an array, also of one that was stepped over; empty if there is no such array.

    Raises:
        FileTruncated, OSError: as `read_header`.
    """
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        return tuple(element for element in value if not isinstance(element, str))
    if not isinstance(value, ArrayRef) or value.element_type not in _CODES:
        return ()
    order = ">" if header.is_big_endian else "<"
    data = _Cursor(source, value.offset, order=order).take(value.size_bytes)
    return struct.unpack(f"{order}{value.count}{_CODES[value.element_type]}", data)


def iterate_strings(source: ByteSource, header: GgufHeader, key: str) -> Iterator[bytes]:
    """The strings of an array one after the other, as bytes; nothing if there is no such array.

    Raises:
        FileTruncated, OSError: as `read_header`.
    """
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        yield from (element.encode() for element in value if isinstance(element, str))
    elif isinstance(value, ArrayRef) and value.element_type is ValueType.STRING:
        cursor = _Cursor(source, value.offset, order=">" if header.is_big_endian else "<")
        for _ in range(value.count):
            yield cursor.string_bytes()
