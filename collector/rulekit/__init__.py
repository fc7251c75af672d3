"""Makes the Prometheus rules from the telemetry registry and the thresholds."""
