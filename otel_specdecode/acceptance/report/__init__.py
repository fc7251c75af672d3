"""The report of a run: one page to look at and sign, the same numbers as JSON, CSV and Markdown, and two runs compared."""
