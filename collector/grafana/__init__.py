"""Makes the Grafana dashboards from the telemetry registry, the recording rules and the thresholds."""
