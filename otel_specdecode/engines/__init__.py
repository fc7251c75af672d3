"""One folder an engine: hooks that watch it and fill a generation. Thin, and without a telemetry name."""
