"""A llama in NumPy that can be trained: RMSNorm, rotary attention with grouped keys, SwiGLU, tied embedding.

Parameters have the names and layouts of the Hugging Face folder, so saving is a plain dump. They all live in one flat
array, and so do the gradients: the optimiser works on those, and neighbours (q, k, v; gate, up) are one matrix for
free.

Shapes: B sequences of T tokens, N = B * T rows, width D, H query heads on K key heads in groups of G = H / K, head
size d, MLP size F, vocabulary V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..folders import Config, Weights, parameter_shapes

Floats = NDArray[np.floating[Any]]
Tokens = NDArray[np.integer[Any]]


class _Norm(NamedTuple):
    """x / rms(x), (N, D), and the factor 1 / rms(x), (N, 1)."""

    unit: Floats
    scale: Floats


class _Attention(NamedTuple):
    """What the backward pass needs of an attention: input (N, D), queries and keys after rotation, weights, output."""

    norm: _Norm
    input: Floats
    query: Floats
    key: Floats
    value: Floats
    weights: Floats
    output: Floats


class _Mlp(NamedTuple):
    """What the backward pass needs of an MLP: input (N, D) and the rest (N, F)."""

    norm: _Norm
    input: Floats
    up: Floats
    sigmoid: Floats
    silu: Floats
    output: Floats


class _Trace(NamedTuple):
    """One forward pass."""

    tokens: Tokens
    blocks: list[tuple[_Attention, _Mlp]]
    norm: _Norm
    final: Floats


class NumpyLlama:
    """The model; `flat` holds its parameters, `gradient` what the last `backward` found for them."""

    def __init__(
        self, config: Config, *, seed: int = 0, weights: Weights | None = None, dtype: Any = np.float32
    ) -> None:
        self.config = config
        self.dtype = np.dtype(dtype)
        self.width: int = config["hidden_size"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config["num_key_value_heads"]
        self.head: int = config["head_dim"]
        self.hidden: int = config["intermediate_size"]
        shapes = parameter_shapes(config)
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()]).tolist()
        self._places = {name: slice(start, end) for name, start, end in zip(shapes, [0, *ends[:-1]], ends, strict=True)}
        self.flat: Floats = np.zeros(ends[-1], self.dtype)
        self.gradient: Floats = np.zeros_like(self.flat)
        self.parameters = {name: self.flat[self._places[name]].reshape(shape) for name, shape in shapes.items()}
        self.gradients = {name: self.gradient[self._places[name]].reshape(shape) for name, shape in shapes.items()}
        self.decays: NDArray[np.bool_] = np.zeros(len(self.flat), dtype=bool)
        for name, shape in shapes.items():
            self.decays[self._places[name]] = len(shape) > 1
        self._set(weights or _initial(shapes, seed))
        self._trace: _Trace | None = None

    def _set(self, weights: Weights) -> None:
        for name, parameter in self.parameters.items():
            parameter[...] = weights[name]

    def forward(self, tokens: Tokens, *, keep: bool = True) -> Floats:
        """Logits (N, V) of the token after each of `tokens` (B, T); `keep` what `backward` needs."""
        batch, length = tokens.shape
        blocks = []
        x = self.parameters["model.embed_tokens.weight"][tokens.reshape(-1)]
        for layer in range(self.config["num_hidden_layers"]):
            attention = self._attention(layer, x, batch, length)
            x = x + attention.output @ self._weight(layer, "self_attn.o_proj").T
            mlp = self._mlp(layer, x)
            x = x + mlp.output @ self._weight(layer, "mlp.down_proj").T
            if keep:
                blocks.append((attention, mlp))
        norm = self._normalised(x)
        final = norm.unit * self.parameters["model.norm.weight"]
        if keep:
            self._trace = _Trace(tokens, blocks, norm, final)
        logits: Floats = final @ self.parameters["model.embed_tokens.weight"].T
        return logits

    def backward(self, d_logits: Floats) -> None:
        """Fill `gradient` from the loss's derivative by the logits (N, V) of the last kept `forward`."""
        if self._trace is None:
            raise RuntimeError("backward needs a forward pass with keep=True before it")
        trace = self._trace
        self.gradient[:] = 0
        embedding = self.gradients["model.embed_tokens.weight"]
        embedding += d_logits.T @ trace.final
        d_final = d_logits @ self.parameters["model.embed_tokens.weight"]
        d_x = self._norm_backward("model.norm.weight", d_final, trace.norm)
        for layer in reversed(range(len(trace.blocks))):
            attention, mlp = trace.blocks[layer]
            d_x = d_x + self._mlp_backward(layer, d_x, mlp)
            d_x = d_x + self._attention_backward(layer, d_x, attention, *trace.tokens.shape)
        _add_rows(embedding, trace.tokens.reshape(-1), d_x)

    def _weight(self, layer: int, name: str) -> Floats:
        return self.parameters[f"model.layers.{layer}.{name}.weight"]

    def _fused(self, store: Floats, layer: int, first: str, last: str) -> Floats:
        """The neighbouring matrices from `first` to `last` as one, (rows of all, D), a view into `store`."""
        start = self._places[f"model.layers.{layer}.{first}.weight"].start
        stop = self._places[f"model.layers.{layer}.{last}.weight"].stop
        return store[start:stop].reshape(-1, self.width)

    def _qkv(self, store: Floats, layer: int) -> Floats:
        return self._fused(store, layer, "self_attn.q_proj", "self_attn.v_proj")

    def _gate_up(self, store: Floats, layer: int) -> Floats:
        return self._fused(store, layer, "mlp.gate_proj", "mlp.up_proj")

    def _normalised(self, x: Floats) -> _Norm:
        scale = 1 / np.sqrt((x * x).mean(1, keepdims=True) + self.dtype.type(self.config["rms_norm_eps"]))
        return _Norm(x * scale, scale)

    def _norm_backward(self, name: str, d_out: Floats, norm: _Norm) -> Floats:
        self.gradients[name] += (d_out * norm.unit).sum(0)
        d_unit = d_out * self.parameters[name]
        d_x: Floats = (d_unit - norm.unit * (d_unit * norm.unit).mean(1, keepdims=True)) * norm.scale
        return d_x

    def _attention(self, layer: int, x: Floats, batch: int, length: int) -> _Attention:
        norm = self._normalised(x)
        given = norm.unit * self._weight(layer, "input_layernorm")
        mixed = (given @ self._qkv(self.flat, layer).T).reshape(batch, length, -1, self.head)
        cosine, sine = self._rotation(length)
        turned = _rotated(mixed[:, :, : self.heads + self.kv_heads], cosine, sine)
        query = self._by_group(turned[:, :, : self.heads])
        key = np.ascontiguousarray(turned[:, :, self.heads :].transpose(0, 2, 1, 3))
        value = np.ascontiguousarray(mixed[:, :, self.heads + self.kv_heads :].transpose(0, 2, 1, 3))
        weights = _causal_softmax((query @ key.swapaxes(2, 3)) * self.dtype.type(self.head**-0.5), length)
        output = self._by_token(weights @ value, length).reshape(batch * length, -1)
        return _Attention(norm, given, query, key, value, weights, output)

    def _attention_backward(self, layer: int, d_x: Floats, saved: _Attention, batch: int, length: int) -> Floats:
        prefix = f"model.layers.{layer}."
        self.gradients[prefix + "self_attn.o_proj.weight"] += d_x.T @ saved.output
        d_output = (d_x @ self._weight(layer, "self_attn.o_proj")).reshape(batch, length, self.heads, self.head)
        d_mixed_output = self._by_group(d_output)
        d_value = saved.weights.swapaxes(2, 3) @ d_mixed_output
        d_scores = d_mixed_output @ saved.value.swapaxes(2, 3)
        d_scores -= (d_scores * saved.weights).sum(-1, keepdims=True)
        d_scores *= saved.weights * self.dtype.type(self.head**-0.5)
        d_query = self._by_token(d_scores @ saved.key, length)
        d_key = (d_scores.swapaxes(2, 3) @ saved.query).transpose(0, 2, 1, 3)
        cosine, sine = self._rotation(length)
        d_turned = _rotated(np.concatenate([d_query, d_key], axis=2), cosine, -sine)
        d_mixed = np.concatenate([d_turned, d_value.transpose(0, 2, 1, 3)], axis=2).reshape(batch * length, -1)
        self._qkv(self.gradient, layer)[...] += d_mixed.T @ saved.input
        return self._norm_backward(prefix + "input_layernorm.weight", d_mixed @ self._qkv(self.flat, layer), saved.norm)

    def _mlp(self, layer: int, x: Floats) -> _Mlp:
        norm = self._normalised(x)
        given = norm.unit * self._weight(layer, "post_attention_layernorm")
        both = given @ self._gate_up(self.flat, layer).T
        gate, up = both[:, : self.hidden], both[:, self.hidden :]
        sigmoid = 1 / (1 + np.exp(-gate))
        silu = gate * sigmoid
        return _Mlp(norm, given, up, sigmoid, silu, silu * up)

    def _mlp_backward(self, layer: int, d_x: Floats, saved: _Mlp) -> Floats:
        prefix = f"model.layers.{layer}."
        self.gradients[prefix + "mlp.down_proj.weight"] += d_x.T @ saved.output
        d_output = d_x @ self._weight(layer, "mlp.down_proj")
        d_gate = d_output * saved.up * (saved.sigmoid + saved.silu * (1 - saved.sigmoid))
        d_both = np.concatenate([d_gate, d_output * saved.silu], axis=1)
        self._gate_up(self.gradient, layer)[...] += d_both.T @ saved.input
        return self._norm_backward(
            prefix + "post_attention_layernorm.weight", d_both @ self._gate_up(self.flat, layer), saved.norm
        )

    def _rotation(self, length: int) -> tuple[Floats, Floats]:
        """Cosine and sine by place and half dimension, (1, T, 1, d / 2)."""
        half = self.head // 2
        speeds = self.config["rope_theta"] ** (-np.arange(half) / half)
        angles = (np.arange(length)[:, None] * speeds)[None, :, None]
        return np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)

    def _by_group(self, x: Floats) -> Floats:
        """(B, T, H, d) to (B, K, G * T, d): the queries that share a key head, one below the other."""
        batch, length, _, head = x.shape
        grouped = x.reshape(batch, length, self.kv_heads, -1, head).transpose(0, 2, 3, 1, 4)
        return np.ascontiguousarray(grouped).reshape(batch, self.kv_heads, -1, head)

    def _by_token(self, x: Floats, length: int) -> Floats:
        """(B, K, G * T, d) back to (B, T, H, d)."""
        batch, head = x.shape[0], x.shape[-1]
        grouped = x.reshape(batch, self.kv_heads, -1, length, head).transpose(0, 3, 1, 2, 4)
        return np.ascontiguousarray(grouped).reshape(batch, length, self.heads, head)


def _initial(shapes: dict[str, tuple[int, ...]], seed: int) -> Weights:
    """Normal matrices of a spread by their inputs, smaller where a block writes back; norms at one."""
    random = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            weights[name] = np.ones(shape)
            continue
        gain = 0.4 if "o_proj" in name or "down_proj" in name else 0.8
        spread = 0.02 if "embed" in name else gain * shape[1] ** -0.5
        weights[name] = random.standard_normal(shape, dtype=np.float32) * np.float32(spread)
    return weights


def _rotated(x: Floats, cosine: Floats, sine: Floats) -> Floats:
    """Rotary embedding of the two halves of each head, (B, T, heads, d); with -sine its inverse."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _causal_softmax(scores: Floats, length: int) -> Floats:
    """Softmax over the places up to each one's own; scores are (B, K, G * T, T) and are overwritten."""
    square = scores.reshape(*scores.shape[:2], -1, length, length)
    square += np.triu(np.full((length, length), -np.inf, scores.dtype), 1)
    square -= square.max(-1, keepdims=True)
    np.exp(square, out=square)
    square /= square.sum(-1, keepdims=True)
    return square.reshape(scores.shape)


def _add_rows(table: Floats, rows: Tokens, values: Floats) -> None:
    """`table[rows] += values` with repeated rows summed; sorting first is much faster than `np.add.at`."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    table[ordered[first]] += np.add.reduceat(values[order], first, axis=0)
