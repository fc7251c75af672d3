"""The short run with the tiny pair, in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest

from otel_specdecode.doctor.children import ask_child


def ran(engine: str) -> Any:
    answer = ask_child("otel_specdecode.doctor.short_run", engine, "0.1", timeout=120)
    assert answer.failure == ""
    return answer.found


def check(found: Any) -> None:
    alone, drafted = found["counts"]["autoregressive"], found["counts"]["speculative"]
    assert alone["requests"] == drafted["requests"] >= 1
    assert alone["tokens"] == drafted["tokens"] > 0
    assert alone["proposed"] == 0
    assert drafted["proposed"] == drafted["accepted"] + drafted["rejected"] + drafted["unverified"] > 0
    assert drafted["accepted"] > 0
    memory = found["memory"]
    assert memory["peak"]["resident"] > 20 * 1024**2
    assert memory["readings"] >= len(memory["window"]["resident"]) > 0
    assert memory["window"]["footprint"].keys() == memory["window"]["resident"].keys()


@pytest.mark.mlx
def test_mlx_lm_counts_what_it_accepted_and_tells_its_allocators_memory() -> None:
    found = ran("mlx_lm")
    check(found)
    assert found["memory"]["allocator"]["peak"] >= found["memory"]["allocator"]["active"] > 0


@pytest.mark.llama_cpp
def test_llama_cpp_counts_what_it_accepted() -> None:
    pytest.importorskip("gguf", reason="needs the [demo] extra")
    check(ran("llama_cpp"))


def test_an_engine_that_is_not_there_is_told_without_a_run() -> None:
    answer = ask_child("otel_specdecode.doctor.short_run", "vllm", "0", timeout=60)
    assert answer.found == {"failure": "the tiny pair cannot be loaded (KeyError)"}
