"""The streams of each engine; the rest of the load knows none."""
