"""Fingerprints and sizes of safetensors files, without the package of that name."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity import safetensors
from otel_specdecode.identity.files import joined
from otel_specdecode.identity.safetensors import SafetensorsFiles, read_safetensors, weight_files
from otel_specdecode.tiny_pair import model_path
from tests.identity.weight_files import GB, KIB, SAMPLED, Readings, changed_in_one_byte, in_hub


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header(content: Any) -> bytes:
    packed = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(packed)) + packed


def written(path: Path, tensors: dict[str, Any], data: bytes) -> Path:
    path.write_bytes(header({"__metadata__": {"format": "mlx"}, **tensors}) + data)
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file whose data is longer than all that is sampled."""
    size = len(SAMPLED)
    return written(tmp_path / "model.safetensors", {"a": tensor("F16", [size // 2], 0, size)}, SAMPLED)


def test_a_shipped_model_is_told_in_full() -> None:
    told = read_safetensors(weight_files(model_path("target")))
    assert (told.parameters, told.dtypes, told.size_bytes) == (820_352, ("float16",), 2 * 820_352)
    assert told.fingerprint != read_safetensors(weight_files(model_path("draft-weak"))).fingerprint


def test_the_fingerprint_is_of_the_content_and_not_of_the_name(weights: Path, tmp_path: Path) -> None:
    """And of the same content it is the same from release to release."""
    other = tmp_path / "renamed.safetensors"
    other.write_bytes(weights.read_bytes())
    print_ = read_safetensors([weights]).fingerprint
    assert read_safetensors([other]).fingerprint == print_
    assert print_ == "7e7998b254af5eaf6c1ff9812853861290ce94f5e0684b418e080b76204540a8"


def test_another_byte_is_another_fingerprint(weights: Path) -> None:
    """In the header, at the beginning and at the end of the data, and in one of the samples between."""
    prints = {read_safetensors([weights]).fingerprint}
    for content in changed_in_one_byte(weights.read_bytes(), b"mlx"):
        weights.write_bytes(content)
        prints.add(safetensors._read(weights).fingerprint)
    assert len(prints) == 5


def test_a_hub_caches_link_is_told_as_any_other_file(weights: Path, tmp_path: Path) -> None:
    link = in_hub(tmp_path / "models--acme--Tiny", "model.safetensors", weights.read_bytes())
    assert read_safetensors([link]) == read_safetensors([weights])


def test_shards_are_taken_in_order_of_their_names(tmp_path: Path) -> None:
    shards = [
        written(tmp_path / f"model-0000{n}-of-00002.safetensors", {"a": tensor("F32", [n], 0, 4 * n)}, bytes(4 * n))
        for n in (1, 2)
    ]
    told = read_safetensors(shards)
    assert told == read_safetensors(shards[::-1])
    assert (told.parameters, told.size_bytes) == (3, 12)
    assert told.fingerprint == joined(read_safetensors([shard]).fingerprint for shard in shards)


def test_packed_weights_are_not_counted(tmp_path: Path) -> None:
    """Eight weights of 4 bits stand in one integer of a quantised tensor; how many, the header does not say."""
    tensors = {"w": tensor("U32", [2], 0, 8), "w.scales": tensor("BF16", [1], 8, 10)}
    told = read_safetensors([written(tmp_path / "q.safetensors", tensors, bytes(10))])
    assert told == SafetensorsFiles(told.fingerprint, None, ("bfloat16", "u32"), 10)


def test_mlx_lms_files_are_the_weights(tmp_path: Path) -> None:
    """An adapter or a copy in another layout beside them is not. Where there are none, all files are."""
    for name in ("consolidated.safetensors", "adapters.safetensors"):
        (tmp_path / name).touch()
    assert [path.name for path in weight_files(tmp_path)] == ["adapters.safetensors", "consolidated.safetensors"]
    (tmp_path / "model-00001-of-00001.safetensors").touch()
    assert [path.name for path in weight_files(tmp_path)] == ["model-00001-of-00001.safetensors"]


def test_a_hundred_gigabytes_take_a_few_megabytes_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    start = header({"a": tensor("F32", [25 * GB], 0, 100 * GB)})
    path.write_bytes(start)
    os.truncate(path, len(start) + 100 * GB)
    readings = Readings(safetensors, monkeypatch)
    assert read_safetensors([path]).parameters == 25 * GB
    assert 16 * 64 * KIB <= readings.total < 5 * 1000 * 1000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a safetensors file"),
        (b"1234567", "is not a safetensors file"),
        (b"GGUF" * 8, "is not a safetensors file, or its header takes more than"),
        (header({})[:-1], "is truncated: it has 9 of 10 bytes"),
        (header({"a": tensor("F32", [4], 0, 16)}) + bytes(15), "is truncated: it has "),
        (header(b"{"), "is broken"),
        (header([]), "is broken"),
        (header({"a": 1}), "is broken"),
        (header({"a": {"dtype": "F32"}}), "is broken"),
        (header({"a": tensor("F32", [-1], 0, 0)}), "is broken"),
        (header({"a": tensor("F32", [2**64], 0, 0)}), "is broken"),
        (header({"a": tensor("F32", [True], 0, 0)}), "is broken"),
        (header({"a": tensor("F32", [1] * 17, 0, 0)}), "is broken"),
        (header({"a": tensor("/home/ada/weights", [1], 0, 0)}), "is broken"),
        (header({"a": tensor("F\n", [1], 0, 0)}), "is broken"),
        (header(b"[" * 100_000), "is broken"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_files_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        read_safetensors([path])
    assert str(caught.value).startswith("bad.safetensors is")
    assert str(tmp_path) not in str(caught.value)


def test_no_file_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no safetensors files"):
        read_safetensors(weight_files(tmp_path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries({}, optional={"dtype": JSON, "shape": JSON, "data_offsets": st.lists(JSON, max_size=3)})


@given(st.binary(max_size=40) | st.dictionaries(st.text(max_size=3), JSON | ENTRY, max_size=4), st.integers(-3, 3))
def test_whatever_stands_in_a_header_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, content: Any, longer: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    packed = header(content)
    path.write_bytes(packed[: len(packed) + min(longer, 0)] + bytes(max(longer, 0)))
    refused, told = "", None
    try:
        told = safetensors._read(path)
    except ValueError as error:
        refused = str(error)
    assert refused.startswith("is ") if told is None else len(told.fingerprint) == 64
