"""What one generation was: request, token timeline, pass ledger, finished record.

Plain data and arithmetic. This room imports no engine and no OpenTelemetry; engines write into it and
telemetry reads from it.
"""
