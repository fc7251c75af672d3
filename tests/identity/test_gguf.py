"""Names and fingerprints of GGUF files, without an engine."""

from __future__ import annotations

import hashlib
import io
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity import gguf
from otel_specdecode.identity.files import joined
from otel_specdecode.identity.gguf import fingerprint, gguf_name, read_gguf
from tests.identity.gguf_files import (
    ARRAY,
    F32,
    FLOAT64,
    NEWER,
    Q4_0,
    SETTINGS,
    STRING,
    UINT32,
    header,
    setting,
    tensor,
    text,
    written,
)
from tests.identity.weight_files import GB, KIB, SAMPLED, Readings, changed_in_one_byte, in_hub

# The name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("qwen3-0.6b-q4_k_m.gguf", "qwen3-0.6b-q4_k_m"),
        ("/Users/ada/models/Qwen3-0.6B.gguf", "Qwen3-0.6B"),
        ("C:\\Users\\ada\\models\\tiny.GGUF", "tiny"),
        ("~/models/tiny.gguf", "tiny"),
        ("./tiny.gguf", "tiny"),
        ("models/tiny.gguf", "tiny"),
        ("/models/big-00001-of-00003.gguf", "big"),
        ("/models/v1.5-00001-of-00003-draft.gguf", "v1.5-00001-of-00003-draft"),
        ("/models/tiny.gguf.bak", "tiny.gguf.bak"),
        ("/home/ada/.ollama/models/blobs/sha256-0123", "sha256-0123"),
        ("/home/ada/hub/models--acme--Tiny-GGUF/snapshots/0123abc/tiny-q8_0.gguf", "tiny-q8_0"),
        (Path("/models/tiny.gguf"), "tiny"),
        ("/models/.gguf", None),
        ("/models/-00001-of-00003.gguf", None),
        ("", None),
        ("/", None),
        (".", None),
        ("..", None),
        ("~", None),
        ("~ada", None),
        ("/home/ada", None),
        ("/home/ada/", None),
        ("C:\\Users\\ada", None),
        ("/root", None),
    ],
)
def test_the_name_is_the_files_own(path: str | Path, name: str | None) -> None:
    assert gguf_name(path) == name


def test_a_folder_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no model, and may be somebody's home, however it is written."""
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    assert [gguf_name(path) for path in (home, "ada", "./ada/", "ada/../ada")] == [None] * 4
    monkeypatch.chdir(home)
    assert [gguf_name(path) for path in (".", "./", "../ada")] == [None] * 3


@given(st.text(max_size=60))
def test_no_path_comes_through(path: str) -> None:
    name = gguf_name(f"/home/ada/{path}") or ""
    assert not {"/", "\\"} & set(name)
    assert name != "ada" or path.replace("\\", "/").rstrip("/").endswith(("ada", "ada.gguf"))


# Files to fingerprint


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file whose data is longer than all that is sampled."""
    return written(tmp_path / "model.gguf", SAMPLED)


# What the fingerprint covers


def test_it_is_of_the_content_and_not_of_the_name(model: Path, tmp_path: Path) -> None:
    """And of the same content it is the same from release to release."""
    other = tmp_path / "renamed.gguf"
    other.write_bytes(model.read_bytes())
    assert fingerprint(model) == fingerprint(str(other))
    assert fingerprint(model) == "b72244a451399106a4a11fd46c481da56452374217ab3a5d23036c9de33bbabb"


def test_another_byte_is_another_fingerprint(model: Path) -> None:
    """In a setting, at the beginning and at the end of the data, and in one of the samples between."""
    prints = {fingerprint(model)}
    for content in changed_in_one_byte(model.read_bytes(), b"llama"):
        model.write_bytes(content)
        prints.add(fingerprint(model))
    assert len(prints) == 5


def test_another_length_is_another_fingerprint(model: Path) -> None:
    before = fingerprint(model)
    with model.open("ab") as file:
        file.write(bytes(32))
    assert fingerprint(model) != before


def test_small_data_is_covered_whole(tmp_path: Path) -> None:
    prints = {fingerprint(written(tmp_path / "x.gguf", bytes(n) + b"\1" + bytes(63 - n))) for n in range(64)}
    assert len(prints) == 64


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_versions_and_alignments_are_read(tmp_path: Path, version: int, alignment: int) -> None:
    """A file that is complete under its own alignment, and one byte short of it is not."""
    settings = (*SETTINGS, setting("general.alignment", UINT32, struct.pack("<I", alignment)))
    path = written(tmp_path / "x.gguf", bytes(64), settings=settings, version=version, alignment=alignment)
    assert fingerprint(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="truncated"):
        fingerprint(path)


def test_quantised_tensors_have_the_size_of_their_blocks(tmp_path: Path) -> None:
    """64 x 3 weights of Q4_0 are 6 blocks of 18 bytes. A type that is newer than this code has its first byte."""
    path = tmp_path / "x.gguf"
    start = header(tensor("a", Q4_0, 0, 64, 3), tensor("b", NEWER, 64, 64, 3))
    path.write_bytes(start + bytes(6 * 18))
    assert fingerprint(path)
    path.write_bytes(start + bytes(6 * 18 - 1))
    with pytest.raises(ValueError, match="truncated"):
        fingerprint(path)


def test_a_file_of_a_vocabulary_alone_has_one(tmp_path: Path) -> None:
    """No tensor, and no padding."""
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(header(alignment=1))
    assert fingerprint(path)


def test_a_hundred_gigabytes_take_a_few_megabytes_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.gguf"
    start = header(tensor("output.weight", F32, 0, 25 * GB))
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 100 * GB)
    readings = Readings(gguf, monkeypatch)
    before = fingerprint(path)
    assert 16 * 64 * KIB <= readings.total < 4 * KIB * KIB
    with path.open("r+b") as file:
        file.seek(-1, io.SEEK_END)
        file.write(b"\1")
    assert fingerprint(path) != before


# Hub caches and shards


def test_a_hub_cache_has_the_contents_sha256_beside_the_fingerprint(model: Path, tmp_path: Path) -> None:
    """The fingerprint is that of any copy."""
    content = model.read_bytes()
    link = in_hub(tmp_path / "models--acme--Tiny", "tiny.gguf", content)
    told, alike = read_gguf(link), read_gguf(model)
    assert (told.content_sha256, alike.content_sha256) == (hashlib.sha256(content).hexdigest(), None)
    assert replace(told, content_sha256=None) == alike


def test_a_blob_that_is_no_model_has_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^readme\.gguf is not a GGUF file"):
        fingerprint(in_hub(tmp_path / "m", "readme.gguf", b"# Tiny"))


def test_a_split_model_is_all_its_shards(tmp_path: Path) -> None:
    """Whichever is asked about; one that changes changes the whole."""
    shards = [written(tmp_path / f"big-0000{n}-of-00003.gguf", bytes([n]) * 64) for n in (1, 2, 3)]
    (whole,) = {fingerprint(shard) for shard in shards}
    written(shards[2], bytes([9]) * 64)
    assert fingerprint(shards[0]) != whole


def test_a_split_model_in_a_hub_cache_has_the_sha256_over_all_its_shards(tmp_path: Path) -> None:
    """Of another folder with the same shards, the fingerprint is the same."""
    contents = [header(tensor("a", F32, 0, 1)) + bytes([n] * 4) for n in (1, 2)]
    names = [f"big-0000{n}-of-00002.gguf" for n in (1, 2)]
    links = [in_hub(tmp_path / "m", *each) for each in zip(names, contents, strict=True)]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    assert fingerprint(links[1]) == fingerprint(tmp_path / names[0])
    assert read_gguf(links[1]).content_sha256 == joined(hashlib.sha256(each).hexdigest() for each in contents)


def test_one_shard_of_one_is_a_file_as_any_other(model: Path, tmp_path: Path) -> None:
    """So is one whose number makes no sense."""
    for name in ("model-00001-of-00001.gguf", "model-00003-of-00002.gguf", "model-00000-of-00002.gguf"):
        path = tmp_path / name
        path.write_bytes(model.read_bytes())
        assert fingerprint(path) == fingerprint(model)


# What has none


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a GGUF file"),
        (b"GGU", "is not a GGUF file"),
        (b"{}" * 40, "is not a GGUF file"),
        (header(version=1), "is GGUF version 1; versions 2 and 3 are known"),
        (header(version=4), "is GGUF version 4; versions 2 and 3 are known"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "is GGUF version 50331648"),
        (header(settings=(setting("a", 13, b"\0" * 8),)), "its header has a value of the unknown type 13"),
        (header(settings=(setting("a", ARRAY, struct.pack("<IQ", ARRAY, 1)),)), "a value of the unknown type 9"),
        (header(settings=(setting("general.alignment", UINT32, bytes(4)),)), "its data is aligned to 0 bytes"),
        (header(settings=(setting("general.alignment", STRING, text("32")),)), "its data is aligned to b'32' bytes"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 100_000), "is truncated: it ends inside its header"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**63), f"is broken: its header claims {2**63} entries"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**63, 0), f"is broken: its header claims {2**63} entries"),
        (header(text("a") + struct.pack("<I", 2**31), settings=()), f"it has a tensor of {2**31} dimensions"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_files_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        fingerprint(path)
    assert str(caught.value).startswith("bad.gguf is")
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_is_cut_anywhere_is_truncated(tmp_path: Path) -> None:
    path = written(tmp_path / "cut.gguf", bytes(64))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"^cut\.gguf is (truncated|not a GGUF file)"):
            fingerprint(path)


def test_a_header_without_an_end_is_not_followed_forever(tmp_path: Path) -> None:
    """A gigabyte of zeros reads as empty strings."""
    path = tmp_path / "endless.gguf"
    claims = [
        setting("a", STRING, struct.pack("<Q", 300 * KIB * KIB)),
        setting("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2**40)),
        setting("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ", FLOAT64, 2**61)),
        setting("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQQ", STRING, 2, 2**62)),
    ]
    for claim in claims:
        with path.open("wb") as file:
            file.write(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + claim)
            file.truncate(GB)
        with pytest.raises(ValueError, match=r"^endless\.gguf is (broken: its header takes more than|truncated)"):
            fingerprint(path)


def test_a_file_that_is_not_there_is_named_without_its_folder(tmp_path: Path) -> None:
    """The file itself, a shard, and a hub's blob that was deleted."""
    written(tmp_path / "big-00001-of-00002.gguf", bytes(4))
    link = in_hub(tmp_path / "m", "tiny.gguf", header())
    link.resolve().unlink()
    missing = {"no.gguf": tmp_path / "no.gguf", "big-00002-of-00002.gguf": tmp_path / "big-00001-of-00002.gguf"}
    for name, path in {**missing, "tiny.gguf": link}.items():
        with pytest.raises(FileNotFoundError) as caught:
            fingerprint(path)
        assert caught.value.filename == name
        assert str(tmp_path) not in str(caught.value)
