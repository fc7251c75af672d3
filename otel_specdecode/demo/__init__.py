"""`otel-specdecode demo`: a real target with several drafts, every mode on the same prompts, side by side.

The way of the data: `lineups` loads models, `runs` generates under instrumentation, `capture` takes the telemetry back
from the SDK, `measures` judges, and `terminal`, `plots` and `page` show. Nothing is read from the engine but the tokens
themselves: every number on show came out of a span or a metric.
"""
