"""Acceptance: sweep draft lengths, soak, hold a run against numeric gates, and report what a reviewer can sign."""
