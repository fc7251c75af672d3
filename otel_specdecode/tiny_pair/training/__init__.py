"""How the shipped weights were made: a seeded grammar, a byte-level tokenizer, and a llama trained in NumPy.

NumPy, because MLX's CPU build for Linux comes with a slow matrix product, so that a plain NumPy backward pass trains
such a small model many times faster there. `python -m otel_specdecode.tiny_pair.training --help` runs it.

The shipped weights are fixed files: sums are ordered differently by each build of a BLAS library, so training again
gives an equally good model, not the same bytes.
"""
