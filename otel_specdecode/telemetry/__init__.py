"""A record in, spans, metrics and events out. The only room that knows OpenTelemetry."""
