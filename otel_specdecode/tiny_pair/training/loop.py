"""The training loop: batches of chats, cross entropy (or a teacher's distribution), AdamW on a cosine schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import Floats, NumpyLlama, Tokens

_WARM_UP_STEPS = 30
_LAST_RATE = 0.05
_SMOOTHING = 0.95


@dataclass(frozen=True)
class Chats:
    """Tokenised chats end to end, and where each begins."""

    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, chats: Sequence[Sequence[int]]) -> Chats:
        """From the token ids of each chat."""
        lengths = np.array([len(chat) for chat in chats])
        tokens = np.concatenate([np.asarray(chat, np.int32) for chat in chats])
        return cls(tokens, np.cumsum(lengths) - lengths)

    def sample(self, random: np.random.Generator, count: int, length: int) -> tuple[Tokens, Tokens]:
        """`count` windows that begin with a chat, as prompts do: inputs and next tokens, each (count, length)."""
        starts = random.choice(self.starts[self.starts < len(self.tokens) - length - 2], count)
        windows = self.tokens[starts[:, None] + np.arange(length + 1)]
        return windows[:, :-1], windows[:, 1:]


class AdamW:
    """Adam with decoupled weight decay on matrices, and the gradient's norm clipped to 1."""

    def __init__(self, model: NumpyLlama, *, first: float = 0.9, second: float = 0.95, decay: float = 0.01) -> None:
        self._model = model
        self._mean: Floats = np.zeros_like(model.flat)
        self._square: Floats = np.zeros_like(model.flat)
        self._first, self._second, self._decay = first, second, decay
        self._steps = 0

    def step(self, rate: float) -> None:
        """One update at learning rate `rate` from the model's gradient."""
        gradient = self._model.gradient
        gradient /= max(1.0, float(np.sqrt(np.dot(gradient, gradient))))
        self._steps += 1
        self._mean += (1 - self._first) * (gradient - self._mean)
        self._square += (1 - self._second) * (gradient * gradient - self._square)
        mean = self._mean / (1 - self._first**self._steps)
        square = self._square / (1 - self._second**self._steps)
        self._model.flat -= rate * self._decay * self._model.flat * self._model.decays
        self._model.flat -= rate * mean / (np.sqrt(square) + 1e-8)


def loss(logits: Floats, wanted: Tokens, teacher: Floats | None = None) -> tuple[float, Floats]:
    """Mean cross entropy in nats a token, and its derivative by the logits (N, V).

    Against the next tokens `wanted` or, where given, against the teacher's distribution (its logits, (N, V)).
    """
    rows = np.arange(len(logits))
    shifted = logits - logits.max(1, keepdims=True)
    log_share = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    derivative: Floats = np.exp(log_share)
    if teacher is None:
        value = -float(log_share[rows, wanted.reshape(-1)].mean())
        derivative[rows, wanted.reshape(-1)] -= 1
    else:
        share = np.exp(teacher - teacher.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        value = -float((share * log_share).sum(1).mean())
        derivative -= share
    derivative /= len(logits)
    return value, derivative


def rate_at(step: int, steps: int, peak: float) -> float:
    """The learning rate: a linear warm-up, times a cosine from the peak to a twentieth of it."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * min(1.0, (step + 1) / _WARM_UP_STEPS) * (cosine * (1 - _LAST_RATE) + _LAST_RATE)


def train(
    model: NumpyLlama,
    chats: Chats,
    *,
    steps: int,
    rate: float,
    batch: int = 16,
    length: int = 160,
    seed: int = 0,
    teacher: NumpyLlama | None = None,
    progress: Callable[[int, float], Any] | None = None,
) -> float:
    """Train in place and return the smoothed loss at the end; `progress` hears the step (from 1) and its loss."""
    random = np.random.default_rng(seed)
    optimiser = AdamW(model)
    smoothed = math.nan
    for step in range(steps):
        inputs, wanted = chats.sample(random, batch, length)
        soft = teacher.forward(inputs, keep=False) if teacher else None
        value, derivative = loss(model.forward(inputs), wanted, soft)
        model.backward(derivative)
        optimiser.step(rate_at(step, steps, rate))
        smoothed = value if step == 0 else _SMOOTHING * smoothed + (1 - _SMOOTHING) * value
        if progress is not None:
            progress(step + 1, value)
    return smoothed


def evaluate(model: NumpyLlama, chats: Chats, *, windows: int = 32, length: int = 160) -> tuple[float, float]:
    """Cross entropy in nats a token and the share of tokens whose likeliest guess is right, on fixed windows."""
    inputs, wanted = chats.sample(np.random.default_rng(1), windows, length)
    logits = model.forward(inputs, keep=False)
    return loss(logits, wanted)[0], float((logits.argmax(1) == wanted.reshape(-1)).mean())
