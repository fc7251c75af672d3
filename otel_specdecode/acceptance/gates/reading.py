"""What measures are given, and what they give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from otel_specdecode.acceptance.figures import Where, tier_of
from otel_specdecode.acceptance.gates.policy import Gate, Validity, number
from otel_specdecode.acceptance.records import Arm, Measured, Run
from otel_specdecode.acceptance.statistics import Estimate
from otel_specdecode.acceptance.storage import HOST, RESULTS

Samples = Literal["requests", "pairs", "rounds", "prompts", "samples"]
File = Literal["results.jsonl", "host.jsonl"]


class UnmeasuredError(Exception):
    """A number that the run does not tell. The text says why."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a number was made of.

    Attributes:
        run_id: The run.
        file: Its file.
        samples: How many of them.
        of: What they are.
    """

    run_id: str
    file: str
    samples: int
    of: Samples


@dataclass(frozen=True, slots=True)
class Instead:
    """A bound that takes the place of the gate's: the value is this or less.

    Attributes:
        limit: The number.
        unit: Of it and of the value.
    """

    limit: float
    unit: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A number that was measured.

    Attributes:
        value: It.
        low, high: Ends of its 95 % interval; None where there is none.
        samples: What it is made of.
        evidence: Where that stands.
        detail: What else is worth telling, in a few words.
        holds: Whether it is good enough, where more than the bound decides.
        instead: What it is held against where the gate's bound cannot be meant.
    """

    value: float
    low: float | None
    high: float | None
    samples: int
    evidence: tuple[Evidence, ...]
    detail: str = ""
    holds: bool | None = None
    instead: Instead | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What a measure reads.

    Attributes:
        gate: What is asked for.
        validity: What makes a run valid.
        run: The run that the gate is about.
        runs: All that were given.
        arm: The arm that the gate is about.
    """

    gate: Gate
    validity: Validity
    run: Run
    runs: tuple[Run, ...]
    arm: Arm

    def takes(self, request: Measured) -> bool:
        """Return whether a request is in the gate's scope."""
        gate = self.gate
        least, most, tokens = gate.min_input_tokens, gate.max_input_tokens, request.input_tokens
        return (
            (gate.tier is None or tier_of(request) == gate.tier)
            and (gate.kind is None or request.kind == gate.kind)
            and (least is None or (tokens is not None and tokens >= least))
            and (most is None or (tokens is not None and tokens <= number(most)))
        )

    def takes_long(self, request: Measured) -> bool:
        """Return whether a request is in the scope, and its answer long enough for a time per token."""
        return self.takes(request) and request.output_tokens >= self.validity.shortest_answer

    def requests(self, where: Where | None = None) -> list[Measured]:
        """Return the arm's requests in the scope that count.

        Raises:
            UnmeasuredError: There is none.
        """
        found = [each for each in self.run.of(self.arm) if (where or self.takes)(each)]
        if not found:
            raise UnmeasuredError(f"{self.run.head.run_id} has no such request of {self.arm.name}")
        return found

    def reading(self, estimate: Estimate | None, samples: int, of: Samples, detail: str = "") -> Reading:
        """Return an estimate that was made of requests.

        Raises:
            UnmeasuredError: There is none.
        """
        if estimate is None:
            raise UnmeasuredError("no request tells")
        evidence = Evidence(self.run.head.run_id, RESULTS, samples, of)
        return Reading(estimate.value, estimate.low, estimate.high, samples, (evidence,), detail)


def of_machine(value: float, runs: tuple[Run, ...], detail: str = "") -> Reading:
    """Return a number that was made of samples of the machine, which has no interval: all of them were looked at."""
    evidence = tuple(Evidence(run.head.run_id, HOST, len(run.host), "samples") for run in runs)
    return Reading(value, value, value, sum(each.samples for each in evidence), evidence, detail)
