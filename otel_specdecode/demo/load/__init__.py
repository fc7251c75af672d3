"""`otel-specdecode demo-load`: real engines under a mixed load for some minutes, beside a replayed Mac.

It exports over OTLP, so that a pipeline and its dashboards have something to show. `plan` decides beforehand what is
asked for and when, `driver` runs it through the `streams` of an engine, `mac` is another machine in this process:
captured readings through the real parsers, and generations without an engine. Each of the two is a service of its own
with an `outlet`, whose `sums` are made of the spans that were taken, so that whoever receives them can compare.
"""
