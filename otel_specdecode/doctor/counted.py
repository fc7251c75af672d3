"""What the hooks saw, added up."""

from __future__ import annotations

from typing import Any

from otel_specdecode.generation.record import Record


def totals(records: list[Record]) -> dict[str, dict[str, Any]]:
    """Return what was counted, by mode."""
    modes = sorted({record.request.mode for record in records})
    return {mode: _total([record for record in records if record.request.mode == mode]) for mode in modes}


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
