"""Reads the telemetry registry and writes what is generated from it."""
