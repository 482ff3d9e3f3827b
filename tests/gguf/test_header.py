import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import FileTruncated, ModelLoadFailed, NotGguf
from runtime.gguf import header as header_module
from runtime.gguf.header import ArrayRef, ValueType, iterate_strings, read_header, read_numbers
from runtime.gguf.source import FileSource, MemorySource
from tests.support.gguf_files import ARRAY, STRING, pack_entry, pack_header, pack_string, write_tiny_model


def read(data: bytes) -> header_module.GgufHeader:
    return read_header(MemorySource(data, name="test.gguf"))


def message_or_header(data: bytes) -> header_module.GgufHeader | str:
    try:
        return read(data)
    except ModelLoadFailed as error:
        return error.message


def strings_entry(key: str, count: int, size: int = 3) -> bytes:
    return pack_entry(key, ARRAY, struct.pack("<IQ", STRING, count) + pack_string("x" * size) * count)


def test_every_scalar_type_when_read_then_has_its_value() -> None:
    values: list[tuple[ValueType, str, object]] = [
        (ValueType.UINT8, "B", 200),
        (ValueType.INT8, "b", -3),
        (ValueType.UINT16, "H", 60_000),
        (ValueType.INT16, "h", -30_000),
        (ValueType.UINT32, "I", 4_000_000_000),
        (ValueType.INT32, "i", -7),
        (ValueType.FLOAT32, "f", 0.5),
        (ValueType.BOOL, "?", True),
        (ValueType.UINT64, "Q", 2**63),
        (ValueType.INT64, "q", -(2**62)),
        (ValueType.FLOAT64, "d", 0.1),
    ]
    entries = [pack_entry(kind.name, kind, struct.pack("<" + code, value)) for kind, code, value in values]
    found = read(pack_header([*entries, pack_entry("s", STRING, pack_string("größe"))])).metadata
    assert found == {kind.name: value for kind, _, value in values} | {"s": "größe"}


def test_short_array_when_read_then_is_a_tuple() -> None:
    entry = pack_entry("per_layer", ARRAY, struct.pack("<IQ3i", ValueType.INT32, 3, 4, 0, -4))
    assert read(pack_header([entry])).metadata["per_layer"] == (4, 0, -4)


def test_long_array_when_read_then_is_stepped_over_and_can_be_read_later() -> None:
    texts = b"".join(pack_string(f"token{i}") for i in range(5000))
    data = pack_header(
        [
            pack_entry("tokens", ARRAY, struct.pack("<IQ", STRING, 5000) + texts),
            pack_entry("kinds", ARRAY, struct.pack("<IQ5000i", ValueType.INT32, 5000, *range(5000))),
            pack_entry("after", STRING, pack_string("still here")),
        ]
    )
    source = MemorySource(data)
    header = read_header(source)
    assert isinstance(header.metadata["tokens"], ArrayRef)
    assert header.array_length("tokens") == 5000
    assert header.text("after") == "still here"
    assert list(iterate_strings(source, header, "tokens"))[4999] == b"token4999"
    assert read_numbers(source, header, "kinds")[1234] == 1234


def test_array_over_several_windows_when_stepped_over_then_ends_at_the_right_place() -> None:
    data = pack_header([strings_entry("big", 50_000, 60), pack_entry("after", STRING, pack_string("here"))])
    assert len(data) > 3 * header_module._WINDOW_BYTES
    assert read(data).text("after") == "here"


def test_string_over_a_window_when_stepped_over_then_ends_at_the_right_place() -> None:
    data = pack_header([strings_entry("big", 2000, 100), strings_entry("huge", 1100, 1_500)])
    assert read(data).array_length("huge") == 1100


def test_nested_array_when_read_then_is_stepped_over() -> None:
    inner = struct.pack("<IQ2B", ValueType.UINT8, 2, 1, 2)
    entry = pack_entry("nested", ARRAY, struct.pack("<IQ", ARRAY, 3) + inner * 3)
    found = read(pack_header([entry, pack_entry("after", STRING, pack_string("x"))]))
    assert found.array_length("nested") == 3
    assert found.text("after") == "x"


def test_file_made_by_the_gguf_package_when_read_then_agrees(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with FileSource(path) as source:
        header = read_header(source)
    assert header.text("general.name") == "Tiny Test"
    assert [tensor.name for tensor in header.tensors] == ["token_embd.weight", "output_norm.weight"]
    assert header.tensors[0].shape == (64, 100)
    assert header.data_offset % header.alignment == 0
    last = header.tensors[-1]
    assert header.data_offset + last.offset + 64 * 4 <= path.stat().st_size


def test_big_endian_file_when_read_then_is_understood() -> None:
    name, text = b"general.name", b"big"
    data = b"GGUF" + struct.pack(">IQQ", 3, 0, 1)
    data += struct.pack(">Q", len(name)) + name + struct.pack(">IQ", STRING, len(text)) + text
    header = read(data)
    assert header.is_big_endian
    assert header.text("general.name") == "big"


@pytest.mark.parametrize(
    "data", [b"", b"GG", b"GGML" + b"\0" * 60, b"<html>not found</html>", b"PK\x03\x04" + b"\0" * 99]
)
def test_other_file_when_read_then_is_not_gguf(data: bytes) -> None:
    with pytest.raises(NotGguf) as caught:
        read(data)
    assert "test.gguf" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("version", [1, 4, 99])
def test_unknown_version_when_read_then_says_which(version: int) -> None:
    with pytest.raises(NotGguf, match=str(version)):
        read(pack_header([], version=version))


def test_header_cut_anywhere_when_read_then_is_truncated_or_not_gguf(tmp_path: Path) -> None:
    raw = write_tiny_model(tmp_path / "tiny.gguf").read_bytes()
    for length in (*range(400), *range(400, 40_000, 997)):
        expected = NotGguf if length < 4 else FileTruncated
        with pytest.raises(expected) as caught:
            read(raw[:length])
        if expected is FileTruncated:
            assert caught.value.details["size_bytes"] == length
            assert int(caught.value.details["needed_bytes"]) > length


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        pack_header([pack_entry("k", STRING, struct.pack("<Q", 2**62))]),
        pack_header([pack_entry("k", ARRAY, struct.pack("<IQ", STRING, 2**62))]),
        pack_header([pack_entry("k", ARRAY, struct.pack("<IQ", ARRAY, 2**20))]),
        pack_header([pack_entry("k", 77, b"")]),
        pack_header([pack_entry("k", STRING, pack_string("a"))] * 2),
        pack_header([pack_entry("general.alignment", ValueType.UINT32, struct.pack("<I", 33))]),
        pack_header([pack_entry("general.alignment", ValueType.UINT32, struct.pack("<I", 0))]),
        pack_header([], [pack_string("t") + struct.pack("<I", 200)]),
        pack_header([], [pack_string("t") + struct.pack("<IQQIQ", 2, 0, 5, 0, 0)]),
        pack_header([], [pack_string("t") + struct.pack("<IQQIQ", 2, 2**40, 5, 0, 0)]),
    ],
)
def test_impossible_number_when_read_then_is_refused_as_damaged(data: bytes) -> None:
    with pytest.raises(ModelLoadFailed, match="damaged") as caught:
        read(data + b"\0" * 64)
    assert type(caught.value) is ModelLoadFailed
    assert caught.value.details["reason"]


def tensor(name: str | bytes, shape: tuple[int, ...], type_id: int, offset: int) -> bytes:
    return pack_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([tensor("a", (32,), 0, 0), tensor("a", (32,), 0, 128)], "twice"),
        ([tensor("a", (32,), 0, 0), tensor("b", (32,), 0, 96)], "overlaps"),
        ([tensor("a", (32,), 0, 0), tensor("b", (32,), 0, 0)], "overlaps"),
        ([tensor("a", (32,), 0, 0), tensor("b", (32,), 0, 160)], "gap"),
        ([tensor("a", (32,), 0, 32)], "gap"),
        ([tensor("a", (32,), 0, 4)], "aligned"),
        ([tensor("a", (48, 2), 2, 0)], "multiple of 32"),
        ([tensor("a", (2**32, 2**32, 2**32, 2**32), 0, 0)], "impossible shape"),
        ([tensor("a", (2**32, 2**31), 0, 0)], "impossible shape"),
        ([tensor("a", (32,), 99, 2**63)], "impossible shape"),
        ([tensor("a", (1, 1, 1, 1, 1), 0, 0)], "5 dimensions"),
        ([tensor("a" * 64, (32,), 0, 0)], "64 bytes"),
        ([tensor(b"caf\xe9", (32,), 0, 0)], "not UTF-8"),
    ],
)
def test_tensors_that_do_not_lie_one_behind_the_other_when_read_then_are_refused(
    tensors: list[bytes], reason: str
) -> None:
    with pytest.raises(ModelLoadFailed, match=reason):
        read(pack_header([], tensors))


def test_tensors_behind_one_of_an_unknown_format_when_read_then_are_believed() -> None:
    header = read(pack_header([], [tensor("a", (32,), 999, 0), tensor("b", (32,), 0, 4096)]))
    assert [info.offset for info in header.tensors] == [0, 4096]


def test_tensor_without_dimensions_when_read_then_is_one_number() -> None:
    header = read(pack_header([], [tensor("a", (), 0, 0), tensor("b", (8,), 0, 32)]))
    assert header.tensors[0].n_elements == 1


def test_key_that_is_not_utf8_when_read_then_is_refused() -> None:
    with pytest.raises(ModelLoadFailed, match="not UTF-8"):
        read(pack_header([pack_string(b"caf\xe9") + struct.pack("<IB", ValueType.UINT8, 1)]))


def test_text_that_is_not_utf8_when_read_then_does_not_cost_the_model() -> None:
    assert (
        read(pack_header([pack_entry("s", STRING, pack_string(b"caf\xe9"))])).text("s")
        == "caf\N{REPLACEMENT CHARACTER}"
    )


def test_metadata_larger_than_what_is_kept_when_read_then_is_refused() -> None:
    piece = pack_string("x" * 4_000_000)
    with pytest.raises(ModelLoadFailed, match="metadata is over"):
        read(pack_header([pack_entry(f"k{index}", STRING, piece) for index in range(9)]))


def test_many_short_lists_when_read_then_are_stepped_over_after_a_while() -> None:
    count = header_module.MAX_KEPT_ELEMENTS
    value = struct.pack(f"<IQ{count}B", ValueType.UINT8, count, *([7] * count))
    n_lists = header_module.MAX_KEPT_TOTAL // count + 5
    header = read(pack_header([pack_entry(f"k{index}", ARRAY, value) for index in range(n_lists)]))
    assert isinstance(header.metadata["k0"], tuple)
    assert isinstance(header.metadata[f"k{n_lists - 1}"], ArrayRef)
    assert header.array_length(f"k{n_lists - 1}") == count


def test_lists_of_empty_lists_when_read_then_are_counted_and_refused() -> None:
    inner = struct.pack("<IQ", ValueType.UINT8, 0) * 40_000
    entry = struct.pack("<IQ", ARRAY, 40_000) + inner
    with pytest.raises(ModelLoadFailed, match="lists inside lists"):
        read(pack_header([pack_entry("a", ARRAY, entry), pack_entry("b", ARRAY, entry)]))


def test_more_strings_than_anyone_needs_when_read_then_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_module, "MAX_SKIPPED_STRINGS", 3000)
    with pytest.raises(ModelLoadFailed, match="strings"):
        read(pack_header([strings_entry("a", 2000), strings_entry("b", 2000)]))


def test_lists_nested_without_end_when_read_then_are_refused() -> None:
    level = struct.pack("<IQ", ARRAY, 1)
    with pytest.raises(ModelLoadFailed, match="nested"):
        read(pack_header([pack_entry("k", ARRAY, level * 100)]))


def test_number_array_that_claims_more_than_the_file_when_read_then_is_truncated_without_memory() -> None:
    entry = pack_entry("k", ARRAY, struct.pack("<IQ", ValueType.FLOAT64, 1_900_000))
    with pytest.raises(FileTruncated):
        read(pack_header([entry]))


@given(st.binary(max_size=400))
def test_any_bytes_when_read_then_give_a_header_or_a_clear_error(noise: bytes) -> None:
    assert message_or_header(b"GGUF" + struct.pack("<I", 3) + noise)


@given(st.data())
def test_real_header_with_damaged_bytes_when_read_then_gives_a_header_or_a_clear_error(data: st.DataObject) -> None:
    entries = [
        pack_entry("general.architecture", STRING, pack_string("llama")),
        strings_entry("tokenizer.ggml.tokens", 40),
        pack_entry("per_layer", ARRAY, struct.pack("<IQ3i", ValueType.INT32, 3, 4, 0, -4)),
    ]
    raw = bytearray(pack_header(entries, [tensor("token_embd.weight", (64, 100), 0, 0)]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(8, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert message_or_header(bytes(raw))
