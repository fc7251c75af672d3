"""True pass counts: callable stand-ins for the models, handed to mlx-lm's step functions."""

from __future__ import annotations

from typing import Any, Protocol

from otel_specdecode.generation.faults import report_fault
from otel_specdecode.generation.ledger import Ledger
from otel_specdecode.generation.running import Generation


class PassWatch:
    """Tells prefill, plain and verify passes apart as they are entered.

    A pass is prefill as long as the last prompt token has not been fed; this holds for every mlx-lm version, whether
    it feeds the whole prompt before the first round or not.

    Attributes:
        caches: The KV caches the engine passed, under `target` and `draft`.
        plain: The ledger, once an autoregressive run is past its prompt: all that is left is to count.
    """

    __slots__ = (
        "_clock",
        "_draft_left",
        "_drafted",
        "_ledger",
        "_speculative",
        "_target_left",
        "_timeline",
        "caches",
        "plain",
    )

    def __init__(self, generation: Generation, prompt_length: int, speculative: bool) -> None:
        """Watch the passes of one generation.

        Args:
            generation: Whose ledger takes the passes. It is not held: the call's arguments may hold this watch.
            prompt_length: Tokens of the prompt that are fed, cached ones excluded.
            speculative: Whether target passes verify proposals.
        """
        self._clock = generation.clock
        self._timeline = generation.timeline
        self._ledger = generation.ledger
        self._target_left = prompt_length
        self._draft_left = prompt_length
        self._drafted = 0
        self._speculative = speculative
        self.caches: dict[str, Any] = {}
        self.plain: Ledger | None = None

    def target(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that a target pass is entered with these arguments."""
        ledger = self._ledger
        if self._target_left > 0:
            self.caches["target"] = kwargs.get("cache")
            self._target_left -= _width(args, kwargs)
            if self._target_left > 0:
                ledger.prefill_passes += 1
                return
            if not self._speculative:
                ledger.prefill_passes += 1
                if ledger.prefill_end is None:
                    ledger.prefill_end = self._clock()
                self.plain = ledger
                return
        if not self._speculative:
            ledger.plain_passes += 1
            return
        ledger.open_pass(self._timeline.emitted(), self._drafted)
        self._drafted = 0

    def draft(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that a draft pass is entered with these arguments."""
        ledger = self._ledger
        if self._draft_left > 0:
            self.caches["draft"] = kwargs.get("cache")
            width = _width(args, kwargs)
            self._draft_left -= width
            if self._draft_left > 0:
                ledger.draft_prefill_passes += 1
                return
            if width == 1:
                ledger.prefill_end = self._clock()
        if not self._drafted:
            ledger.draft_calls += 1
        self._drafted += 1
        ledger.draft_passes = (ledger.draft_passes or 0) + 1


class HasPasses(Protocol):
    """Anything that counts passes."""

    passes: int


class _StandIn:
    """Looks like the model it stands for in every respect but a direct call."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.__dict__["__call__"] = model.__call__  # mlx-lm reads the signature of model.__call__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class TargetStandIn(_StandIn):
    """Stands for the target model."""

    def __init__(self, model: Any, passes: PassWatch) -> None:
        """Stand for a model and tell a watch of its passes."""
        super().__init__(model)
        self._passes = passes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Note the pass, then run the model."""
        plain = self._passes.plain
        if plain is not None:
            plain.plain_passes += 1
            return self._model(*args, **kwargs)
        try:
            self._passes.target(args, kwargs)
        except Exception as error:
            report_fault("a target pass could not be counted", error)
        return self._model(*args, **kwargs)


class DraftStandIn(_StandIn):
    """Stands for the draft model."""

    def __init__(self, model: Any, passes: PassWatch) -> None:
        """Stand for a model and tell a watch of its passes."""
        super().__init__(model)
        self._passes = passes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Note the pass, then run the model."""
        try:
            self._passes.draft(args, kwargs)
        except Exception as error:
            report_fault("a draft pass could not be counted", error)
        return self._model(*args, **kwargs)


class CountingStandIn(_StandIn):
    """Stands for a model whose passes are only counted."""

    def __init__(self, model: Any, counter: HasPasses) -> None:
        """Stand for a model and count its passes."""
        super().__init__(model)
        self._counter = counter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count the pass, then run the model."""
        self._counter.passes += 1
        return self._model(*args, **kwargs)


def _width(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the number of tokens a pass feeds, from its `[batch, tokens]` input or `[batch, tokens, width]` one."""
    embeddings = kwargs.get("input_embeddings")
    return int((args[0] if embeddings is None else embeddings).shape[1])
