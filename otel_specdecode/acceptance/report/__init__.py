"""The report of a run: a page to look at and sign, the same numbers in other formats, and two runs compared."""
