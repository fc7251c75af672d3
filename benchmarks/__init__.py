"""What the instrumentation costs: `python -m benchmarks`, or `make bench`.

Every section compares variants of the same stream: bare, with a floor (one clock reading and one append a token),
with this library, with the official GenAI stream wrapper, and on llama.cpp with a public peer. Variants run in random
order within each repetition and are compared repetition by repetition, so that whatever else the machine does hits all
of them alike. Costs are CPU time, never wall time, but for token gaps and for tokens a second on the real engines.
"""
