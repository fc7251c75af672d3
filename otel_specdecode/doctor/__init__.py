"""What this machine and environment offer, and what is broken: the command `otel-specdecode doctor`.

Gathering and showing are apart: `gather` makes a report of sections and checks, `terminal` and `checks.as_document`
show it. Each module gathers one section from what it is given (an environment, a runner of commands, versions), so
that a test can hand it another machine's.
"""
