"""What a GGUF file is: its name, a fingerprint and what its header tells, without an engine."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from otel_specdecode.identity.files import FileCache, fingerprint_of, hub_digest, joined, named, open_plain
from otel_specdecode.identity.gguf_header import Header, read_header
from otel_specdecode.identity.models import TokenizerIdentity
from otel_specdecode.identity.names import printable, public_name, short_text

FIRST_COMPARED_ID = 5
"""The id from which llama.cpp's own speculative decoding compares the texts of tokens: families differ in what the
first ones, control tokens, are called (common/speculative.cpp)."""

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.DOTALL | re.IGNORECASE)
_NAMED = re.compile(r"(?P<stem>.*?)((-\d{5}-of-\d{5})?\.gguf)?", re.DOTALL | re.IGNORECASE)
_MOST_SHARDS = 1_000

# llama.h's names of `enum llama_ftype`, without LLAMA_FTYPE_. Numbers that are not here are no longer in use.
_FILE_TYPES: dict[int, str] = {
    **dict(enumerate(("ALL_F32", "MOSTLY_F16", "MOSTLY_Q4_0", "MOSTLY_Q4_1"))),
    **dict(
        enumerate(("MOSTLY_Q8_0", "MOSTLY_Q5_0", "MOSTLY_Q5_1", "MOSTLY_Q2_K", "MOSTLY_Q3_K_S", "MOSTLY_Q3_K_M"), 7)
    ),
    **dict(enumerate(("MOSTLY_Q3_K_L", "MOSTLY_Q4_K_S", "MOSTLY_Q4_K_M", "MOSTLY_Q5_K_S", "MOSTLY_Q5_K_M"), 13)),
    **dict(enumerate(("MOSTLY_Q6_K", "MOSTLY_IQ2_XXS", "MOSTLY_IQ2_XS", "MOSTLY_Q2_K_S", "MOSTLY_IQ3_XS"), 18)),
    **dict(enumerate(("MOSTLY_IQ3_XXS", "MOSTLY_IQ1_S", "MOSTLY_IQ4_NL", "MOSTLY_IQ3_S", "MOSTLY_IQ3_M"), 23)),
    **dict(enumerate(("MOSTLY_IQ2_S", "MOSTLY_IQ2_M", "MOSTLY_IQ4_XS", "MOSTLY_IQ1_M", "MOSTLY_BF16"), 28)),
    **dict(enumerate(("MOSTLY_TQ1_0", "MOSTLY_TQ2_0", "MOSTLY_MXFP4_MOE", "MOSTLY_NVFP4"), 36)),
    **dict(enumerate(("MOSTLY_Q1_0", "MOSTLY_Q2_0"), 40)),
}


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What a GGUF file tells of the model in it; each fact is None where the file does not tell.

    Of a split model, what its first shard tells, with digests, parameters and bytes of all.

    Attributes:
        fingerprint: Of the file, or of all shards.
        content_sha256: Of the whole content, where all of it lies in a hub cache.
        architecture: `general.architecture`, such as `llama`.
        file_type: How the weights are quantised, by llama.h's name: `MOSTLY_Q4_K_M`, `MOSTLY_F16`, `ALL_F32`.
        tokenizer: The tokenizer in it.
        chat_template_sha256: Of its default chat template in UTF-8.
        context_length: Tokens of context that it was trained for.
        sliding_window: Tokens that its layers of sliding-window attention see.
        keeps_state: Whether it keeps a recurrent state, in all or some layers, which cannot be rewound token by token.
        parameters: Number of weights.
        size_bytes: Bytes of all tensors.
    """

    fingerprint: str
    content_sha256: str | None = None
    architecture: str | None = None
    file_type: str | None = None
    tokenizer: TokenizerIdentity = field(default_factory=TokenizerIdentity)
    chat_template_sha256: str | None = None
    context_length: int | None = None
    sliding_window: int | None = None
    keeps_state: bool = False
    parameters: int | None = None
    size_bytes: int | None = None


def gguf_name(path: str | os.PathLike[str]) -> str | None:
    """Return the name a caller knows the model by: the file's name without `.gguf` and the number of a shard.

    Never a path, a home folder or a user's name; None where that leaves nothing.
    """
    location = os.fspath(path)
    posix = location.replace("\\", "/").rstrip("/")
    if public_name(posix) is None or Path(location).is_dir():
        return None
    name = _NAMED.fullmatch(posix.rpartition("/")[2])
    return printable(name["stem"]) if name else None


def read_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Tell what a GGUF file is, or all shards of a split one whichever of them is given.

    Reads a few MB of each file, once as long as it stays as it is.

    Raises:
        ValueError: A file is not a GGUF file, of another version, or truncated.
        OSError: A file or shard is not there or cannot be read. Both name the file without its folder.
    """
    shards = _shards(Path(path))
    files = [_FILES.facts(shard) for shard in shards]
    first = replace(files[0], content_sha256=hub_digest(shards))
    if len(files) == 1:
        return first
    return replace(
        first,
        fingerprint=joined(file.fingerprint for file in files),
        parameters=_total([file.parameters for file in files]),
        size_bytes=_total([file.size_bytes for file in files]),
    )


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the fingerprint alone; raises what read_gguf() does."""
    return read_gguf(path).fingerprint


def read_tokens(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the vocabulary in the order of ids, read anew each time; empty if the file holds none.

    Raises:
        ValueError: The file, or its first shard, is not a GGUF file, of another version, or truncated.
        OSError: It is not there or cannot be read. Both name the file without its folder.
    """
    first = _shards(Path(path))[0]
    with named(first), open_plain(first) as file:
        header = read_header(file)
        return [] if header.tokens is None else header.texts(header.tokens)


def file_type_name(number: int) -> str | None:
    """Return llama.h's name of a `general.file_type`, None if it is none that is known here."""
    return _FILE_TYPES.get(number)


def _shards(path: Path) -> list[Path]:
    """Return all files of a split model in order, else the file alone."""
    shard = _SHARD.fullmatch(path.name)
    if shard is None or not 1 <= int(shard["number"]) <= int(shard["count"]) <= _MOST_SHARDS:
        return [path]
    last = int(shard["count"])
    return [path.with_name(f"{shard['stem']}-{n:05}-of-{last:05}{shard['suffix']}") for n in range(1, last + 1)]


def _total(numbers: list[int | None]) -> int | None:
    """Return the sum over all shards, None if one does not tell. A first shard may hold no tensor."""
    return None if None in numbers else sum(number or 0 for number in numbers) or None


def _read(path: Path) -> GGUFFile:
    with open_plain(path) as file:
        header = read_header(file)
        return _facts(header, fingerprint_of(file, header.data, header.start))


_FILES = FileCache(_read)


def _facts(header: Header, print_: str) -> GGUFFile:
    architecture = _name(header, "general.architecture")
    template = header.settings.get(b"tokenizer.chat_template")
    file_type = _number(header, "general.file_type")
    return GGUFFile(
        fingerprint=print_,
        architecture=architecture,
        file_type=None if file_type is None else file_type_name(file_type),
        tokenizer=_tokenizer(header),
        chat_template_sha256=hashlib.sha256(template).hexdigest() if isinstance(template, bytes) else None,
        context_length=_number(header, f"{architecture}.context_length"),
        sliding_window=_number(header, f"{architecture}.attention.sliding_window"),
        keeps_state=header.keeps_state,
        parameters=header.parameters,
        size_bytes=header.tensor_bytes,
    )


def _tokenizer(header: Header) -> TokenizerIdentity:
    kind, pre = _name(header, "tokenizer.ggml.model"), _name(header, "tokenizer.ggml.pre")
    tokens = header.tokens
    if tokens is None:
        return TokenizerIdentity(kind=kind, pre=pre)
    # The array itself has each token's length before it.
    digest = hashlib.sha256(header.data[header.place_of(tokens, FIRST_COMPARED_ID) : tokens.end]).hexdigest()
    return TokenizerIdentity(kind=kind, pre=pre, vocabulary_size=tokens.count, vocabulary_sha256=digest)


def _name(header: Header, key: str) -> str | None:
    value = header.settings.get(key.encode())
    return short_text(value.decode(errors="replace")) if isinstance(value, bytes) else None


def _number(header: Header, key: str) -> int | None:
    value = header.settings.get(key.encode())
    return value if isinstance(value, int) else None
