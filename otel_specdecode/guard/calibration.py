"""Prompts that fill a baseline before the first user comes."""

from __future__ import annotations

from typing import Final

_SUBJECTS: Final = (
    "the tides", "a bicycle", "bread", "a lighthouse", "the metric system", "a compass", "rainbows", "honey bees",
)  # fmt: skip
_TASKS: Final = (
    "Explain {} to a curious child in one paragraph.",
    "Write a short story of about a hundred words in which {} matters.",
    "List ten facts about {}, one a line.",
)

PROMPTS: Final = tuple(task.format(subject) for subject in _SUBJECTS for task in _TASKS)
"""Short and general, of three kinds: prose, a story, a list. More than the requests that make a baseline by default."""
