"""Takes what the hooks see and adds it up, without OpenTelemetry."""

from __future__ import annotations

from typing import Any

from otel_specdecode.generation.observer import Content
from otel_specdecode.generation.record import Ending, Facts, Record, build_record
from otel_specdecode.generation.request import Request
from otel_specdecode.generation.tally import Tally
from otel_specdecode.generation.timeline import Stretch


class _Folding:
    """One generation, folded as it comes."""

    def __init__(self, records: list[Record], request: Request, began: int) -> None:
        self._records = records
        self._request, self._began = request, began
        self._tally = Tally(pass_entries=request.mode == "speculative")

    def progress(self, stretch: Stretch, _: Facts) -> None:
        self._tally.add(stretch)

    def end_segment(self, stretch: Stretch, _: Facts, last_pass_finished: bool, held_until: int | None) -> None:
        self._tally.add(stretch)
        self._tally.end_segment(finished=last_pass_finished, held_until=held_until)

    def finish(self, stretch: Stretch, facts: Facts, ending: Ending, _: Content | None) -> None:
        self.end_segment(stretch, facts, ending.last_pass_finished, None if ending.kind == "complete" else ending.at)
        self._records.append(build_record(self._request, self._tally, facts, ending, self._began))


class FoldingObserver:
    """Admits every call and keeps the finished records."""

    captures_content = False

    def __init__(self) -> None:
        """Start with no record."""
        self.records: list[Record] = []

    def admit(self) -> Any:
        """Admit a call."""
        return self

    def begin(self, request: Request, began: int) -> Any:
        """Begin to fold a generation."""
        return _Folding(self.records, request, began)

    def totals(self) -> dict[str, dict[str, Any]]:
        """Return what was counted, by mode."""
        modes = sorted({record.request.mode for record in self.records})
        return {mode: _total([record for record in self.records if record.request.mode == mode]) for mode in modes}


def _total(records: list[Record]) -> dict[str, Any]:
    counts = [record.counts for record in records]
    return {
        "requests": len(records),
        "tokens": sum(each.tokens for each in counts),
        "decode_passes": sum(each.decode_passes for each in counts),
        "rounds": sum(each.rounds for each in counts),
        "proposed": sum(each.proposed for each in counts),
        "accepted": sum(each.accepted for each in counts),
        "rejected": sum(each.rejected for each in counts),
        "unverified": sum(each.unverified for each in counts),
        "decode_seconds": round(sum(record.timing.decode or 0.0 for record in records), 4),
        "hazards": sorted({hazard for record in records for hazard in record.facts.hazards}),
    }
