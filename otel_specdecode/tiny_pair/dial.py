"""Pairs derived from a trained folder: a draft of a chosen accept rate, a shallower draft, a slower target.

Each function writes a complete folder (weights, configuration, tokenizer) and returns its path.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from .folders import read_config, read_weights, write_model

PADDED_BLOCKS_KEY = "otel_specdecode_padded_blocks"
"""In `config.json` of a padded target: how many of its blocks do nothing. Engines ignore the key; whoever shows speeds
of such a target must say so."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def with_noise(source: Path | str, out: Path | str, sigma: float, seed: int = 1) -> Path:
    """A draft that is the source plus noise: every matrix W becomes W + sigma * std(W) * N(0, 1).

    With the shipped target as target and source, sigma sets the accept rate; the model card has the measured table.
    """
    source, out = Path(source), Path(out)
    random = np.random.default_rng(seed)
    weights = read_weights(source)
    for name in sorted(weights):
        matrix = weights[name].astype(np.float32)
        if matrix.ndim == 2:
            matrix += np.float32(sigma * matrix.std()) * random.standard_normal(matrix.shape, dtype=np.float32)
        weights[name] = matrix
    write_model(out, read_config(source), weights, dtype="float32")
    return _with_tokenizer(source, out)


def with_depth(source: Path | str, out: Path | str, layers: int) -> Path:
    """A draft that is the source's first `layers` blocks under its own head."""
    source, out = Path(source), Path(out)
    config, weights = read_config(source), read_weights(source)
    depth = config["num_hidden_layers"]
    if not 1 <= layers <= depth:
        raise ValueError(f"layers must lie in 1..{depth}, not {layers}")
    kept = {name: array for name, array in weights.items() if _layer(name) < layers}
    write_model(out, {**config, "num_hidden_layers": layers}, kept)
    return _with_tokenizer(source, out)


def padded(source: Path | str, out: Path | str, blocks: int) -> Path:
    """The same model with `blocks` more blocks that compute and add nothing: equal outputs, a slower target."""
    source, out = Path(source), Path(out)
    if blocks < 0:
        raise ValueError(f"blocks must not be negative, as {blocks} is")
    config, weights = read_config(source), read_weights(source)
    depth = config["num_hidden_layers"]
    first = {name: array for name, array in weights.items() if _layer(name) == 0}
    for block in range(depth, depth + blocks):
        for name, array in first.items():
            empty = np.ones_like(array) if array.ndim == 1 else np.zeros_like(array)
            weights[name.replace(".layers.0.", f".layers.{block}.")] = empty
    total = config.get(PADDED_BLOCKS_KEY, 0) + blocks
    config = {**config, "num_hidden_layers": depth + blocks, PADDED_BLOCKS_KEY: total}
    write_model(out, config, weights)
    return _with_tokenizer(source, out)


def _layer(name: str) -> int:
    """The block that a parameter belongs to; -1 for embedding, final norm and head."""
    return int(name.split(".")[2]) if name.startswith("model.layers.") else -1


def _with_tokenizer(source: Path, out: Path) -> Path:
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    return out
