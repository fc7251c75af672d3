"""What the header of a GGUF file tells of the model, without an engine."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_specdecode.identity import gguf, gguf_header
from otel_specdecode.identity.gguf import FIRST_COMPARED_ID, GGUFFile, fingerprint, read_gguf, read_tokens
from otel_specdecode.identity.models import TokenizerIdentity
from tests.identity.gguf_files import (
    ARRAY,
    F32,
    FLOAT64,
    NEWER,
    Q4_0,
    STRING,
    UINT32,
    header,
    number,
    setting,
    tensor,
    text,
    tokens,
    written,
)

FULL = (
    number("general.file_type", 15),
    number("gemma3.context_length", 4_096),
    number("gemma3.attention.sliding_window", 512),
    number("other.context_length", 1),
    setting("general.architecture", STRING, text("gemma3")),
    setting("general.name", STRING, text("not asked for")),
    setting("tokenizer.ggml.model", STRING, text("llama")),
    setting("tokenizer.ggml.pre", STRING, text("default")),
    setting("tokenizer.chat_template", STRING, text("{{ messages }}\n")),
    tokens("a", "", "\u2581the", "b", "c", "d", "", "e"),
)


def test_one_reading_tells_all_facts(tmp_path: Path) -> None:
    """The digest of a vocabulary is that of its tokens from the fifth on, each after its length in 8 bytes."""
    path = tmp_path / "x.gguf"
    path.write_bytes(header(tensor("a", F32, 0, 3, 5), tensor("b", Q4_0, 64, 32, 2), settings=FULL) + bytes(100))
    vocabulary = text("d") + text("") + text("e")
    assert read_gguf(path) == GGUFFile(
        fingerprint=fingerprint(path),
        architecture="gemma3",
        file_type="MOSTLY_Q4_K_M",
        tokenizer=TokenizerIdentity("llama", "default", 8, hashlib.sha256(vocabulary).hexdigest()),
        chat_template_sha256=hashlib.sha256(b"{{ messages }}\n").hexdigest(),
        context_length=4_096,
        sliding_window=512,
        keeps_state=False,
        parameters=15 + 64,
        size_bytes=60 + 36,
    )
    assert read_tokens(str(path)) == [b"a", b"", "\u2581the".encode(), b"b", b"c", b"d", b"", b"e"]


def test_what_a_file_does_not_tell_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(settings=()))
    assert read_gguf(path) == GGUFFile(fingerprint(path), parameters=0, size_bytes=0)
    assert read_tokens(path) == []


def test_bytes_of_a_newer_type_of_tensor_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(tensor("a", NEWER, 0, 64)))
    assert (read_gguf(path).parameters, read_gguf(path).size_bytes) == (64, None)


@pytest.mark.parametrize(
    ("value", "name"),
    [(b"x" * 128, "x" * 128), (b"x" * 129, None), (b"", None), (b"two\nlines", None), (b"\xffx", "\ufffdx")],
)
def test_a_name_is_short_and_printable(tmp_path: Path, value: bytes, name: str | None) -> None:
    path = tmp_path / "x.gguf"
    packed = struct.pack("<Q", len(value)) + value
    path.write_bytes(header(settings=(setting("general.architecture", STRING, packed),)))
    assert read_gguf(path).architecture == name


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("mamba.ssm.state_size", True),
        ("lfm2.shortconv.l_cache", True),
        ("rwkv6.wkv.head_size", True),
        ("kimi-linear.kda.head_dim", True),
        ("llama.attention.head_count", False),
        ("ssm.llama", False),
    ],
)
def test_a_recurrent_architecture_has_settings_of_its_own(tmp_path: Path, key: str, kept: bool) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(settings=(number(key, 4),)))
    assert read_gguf(path).keeps_state is kept


VOCABULARY = st.lists(st.text(max_size=4), max_size=10)


@given(VOCABULARY, VOCABULARY)
def test_other_tokens_are_another_vocabulary(
    tmp_path_factory: pytest.TempPathFactory, one: list[str], other: list[str]
) -> None:
    """Also where all in a row read the same. What the first ones, control tokens, are called is not compared."""
    digests = []
    for values in (one, other):
        path = tmp_path_factory.getbasetemp() / "vocabulary.gguf"
        path.write_bytes(header(settings=(tokens(*values),)))
        digests.append(gguf._read(path).tokenizer.vocabulary_sha256)
        assert read_tokens(path) == [value.encode() for value in values]
    assert (digests[0] == digests[1]) == (one[FIRST_COMPARED_ID:] == other[FIRST_COMPARED_ID:])


def test_a_long_vocabulary_gives_way_to_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read to its end."""
    given_way: list[float] = []
    monkeypatch.setattr(gguf_header, "time", SimpleNamespace(sleep=given_way.append))
    path, texts = tmp_path / "x.gguf", [str(number) for number in range(10_001)]
    path.write_bytes(header(settings=(tokens(*texts),)))
    assert gguf._read(path).tokenizer.vocabulary_size == 10_001
    assert len(given_way) == 5
    assert read_tokens(path)[-1] == b"10000"


def test_a_file_type_has_llama_hs_name() -> None:
    """Every one that this release of llama-cpp-python knows, but for the mark of a guess."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs the [llama-cpp] extra")
    known = {value: name for name, value in vars(llama_cpp).items() if name.startswith("LLAMA_FTYPE_")}
    known.pop(llama_cpp.LLAMA_FTYPE_GUESSED, None)
    named = {number: f"LLAMA_FTYPE_{gguf.file_type_name(number)}" for number in known}
    assert named == known
    assert gguf.file_type_name(999) is None


def test_a_split_model_tells_what_its_first_shard_does_and_the_weights_of_all(tmp_path: Path) -> None:
    first = written(tmp_path / "big-00001-of-00002.gguf", bytes(64), settings=FULL)
    second = written(tmp_path / "big-00002-of-00002.gguf", bytes(32), settings=())
    told = read_gguf(second)
    assert told == read_gguf(first)
    assert (told.architecture, told.parameters, told.size_bytes) == ("gemma3", 16 + 8, 96)
    assert read_tokens(second) == read_tokens(first) != []


ENTRIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(["tokenizer.ggml.tokens", "general.architecture", "a.ssm.b", "a.context_length"]).flatmap(
        lambda key: st.builds(
            setting,
            st.just(key),
            st.sampled_from([UINT32, FLOAT64, STRING, ARRAY, 13]),
            st.one_of(st.binary(max_size=40), st.builds(lambda n: struct.pack("<IQ", STRING, n), st.integers(0, 9))),
        )
    ),
)


@given(st.lists(ENTRIES, max_size=5), st.sampled_from([2, 3]), st.integers(0, 3), st.integers(0, 4))
def test_whatever_follows_the_magic_raises_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, entries: list[bytes], version: int, tensors: int, settings: int
) -> None:
    """And a vocabulary that is told can be read."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", version, tensors, settings) + b"".join(entries))
    refused, file = "", None
    try:
        file = gguf._read(path)
    except ValueError as error:
        refused = str(error)
    if file is None:
        assert refused.startswith("is ")
    else:
        assert len(file.fingerprint) == 64
        assert len(read_tokens(path)) == (file.tokenizer.vocabulary_size or 0)
