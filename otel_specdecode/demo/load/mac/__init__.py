"""A Mac that is not there: captured readings through the real parsers, under names that say so.

`captured/README.md` says what was captured and what was made by hand.
"""
