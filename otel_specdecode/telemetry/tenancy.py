"""On whose behalf a request runs, by the baggage of its context."""

from __future__ import annotations

import os
from dataclasses import dataclass

from opentelemetry import baggage
from opentelemetry.context import Context, get_current

from otel_specdecode.generation.faults import warn_once
from otel_specdecode.generation.plan import Who
from otel_specdecode.telemetry.labels import OTHER
from otel_specdecode.telemetry.names import Attr
from otel_specdecode.thresholds import thresholds

TENANT_KEYS = "OTEL_SPECDECODE_TENANT_BAGGAGE"
"""Environment variable: baggage keys that name a tenant, comma-separated; the first one that is there counts."""

SESSION_KEYS = "OTEL_SPECDECODE_SESSION_BAGGAGE"
"""Environment variable: likewise for sessions."""

TENANT_METRICS = "OTEL_SPECDECODE_TENANT_METRICS"
"""Environment variable: `true` to have the tenant on metrics too. Each tenant then has series of its own."""

_DEFAULT_TENANT_KEYS = f"{Attr.SPECDECODE_TENANT_ID},tenant.id"
_DEFAULT_SESSION_KEYS = f"{Attr.SPECDECODE_SESSION_ID},session.id"


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Which baggage entries count, read from the environment once.

    Attributes:
        tenant_keys: Keys that name a tenant.
        session_keys: Keys that name a session.
        on_metrics: Whether metrics have the tenant as a label.
    """

    tenant_keys: tuple[str, ...]
    session_keys: tuple[str, ...]
    on_metrics: bool

    def tenant(self, context: Context) -> str | None:
        """Return the tenant of a context, None if its baggage names none."""
        return _first(self.tenant_keys, context)

    def session(self, context: Context) -> str | None:
        """Return the session of a context, None if its baggage names none."""
        return _first(self.session_keys, context)


class TenantLabels:
    """Keeps the tenants on metrics few: those beyond a cap share one label value."""

    def __init__(self) -> None:
        """Start with no tenant."""
        self._seen: set[str] = set()
        self._most = int(thresholds()["labels"]["tenants"])

    def label(self, tenant: str) -> str:
        """Return the label value of a tenant."""
        if tenant in self._seen:
            return tenant
        if len(self._seen) < self._most:
            self._seen.add(tenant)
            return tenant
        warn_once(f"there are more than {self._most} tenants; further ones are {OTHER} on metrics, and exact on spans")
        return OTHER


def chosen_tenancy() -> Tenancy:
    """Return which baggage entries count by the environment."""
    return Tenancy(
        _keys(TENANT_KEYS, _DEFAULT_TENANT_KEYS),
        _keys(SESSION_KEYS, _DEFAULT_SESSION_KEYS),
        os.environ.get(TENANT_METRICS, "").strip().lower() == "true",
    )


def _keys(variable: str, default: str) -> tuple[str, ...]:
    """Return the keys of a variable; set but empty means that none counts."""
    return tuple(key for part in os.environ.get(variable, default).split(",") if (key := part.strip()))


def _first(keys: tuple[str, ...], context: Context) -> str | None:
    for key in keys:
        value = baggage.get_baggage(key, context)
        # What follows a semicolon are properties of the entry, which the SDK leaves on its value.
        text = _fit(value.partition(";")[0]) if isinstance(value, str) else ""
        if text:
            return text
    return None


def who_calls(tenant: object = None, session: object = None) -> Who:
    """Return on whose behalf a call of this context is made.

    Args:
        tenant: As the caller names it, as baggage would have it; None: as the baggage of the context does.
        session: Likewise.
    """
    tenancy, context = chosen_tenancy(), get_current()
    return Who(
        tenancy.tenant(context) if tenant is None else _fit(str(tenant)) or None,
        tenancy.session(context) if session is None else _fit(str(session)) or None,
    )


def _fit(text: str) -> str:
    """Shorten what callers send, and leave out what does not print: controls, separators, what turns text around."""
    return "".join(filter(str.isprintable, text))[: thresholds()["labels"]["longest_name"]].strip()
