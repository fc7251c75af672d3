"""The pipeline from a service's OTLP to an SRE's screen: collector, Prometheus rules, dashboards."""
