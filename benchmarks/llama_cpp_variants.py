"""The synthetic llama.cpp in every variant that is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.installed import has_llama_cpp, has_peer
from benchmarks.peer import peer
from benchmarks.sdk import NOBODY, SDK
from benchmarks.synthetic_llama_cpp import SyntheticLlama, made, own_class, real_handles, watched_class

Llamas = dict[str, SyntheticLlama]
"""One by variant; each has a class of its own."""


@contextmanager
def synthetic_llamas(running: SDK) -> Iterator[dict[str, Llamas]]:
    """Give them by mode; none where llama-cpp-python is not installed."""
    if not has_llama_cpp():
        yield {}
        return
    classes = {
        "bare": own_class(),
        "ours, with an SDK": watched_class(running.listener),
        "ours, without": watched_class(NOBODY),
    }
    with real_handles() as real:
        if not has_peer():
            yield _by_mode(classes, real)
            return
        with peer() as theirs:
            classes["peer, with an SDK"] = own_class()
            theirs.instrument(classes["peer, with an SDK"])
            yield _by_mode(classes, real)


def _by_mode(classes: Mapping[str, type[SyntheticLlama]], real: object) -> dict[str, Llamas]:
    return {
        mode: {name: made(each, real, speculates=speculates) for name, each in classes.items()}
        for mode, speculates in (("AR", False), ("speculative", True))
    }
