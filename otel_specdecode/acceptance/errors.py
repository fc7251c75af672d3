"""What a command ends with where it cannot go on."""

from __future__ import annotations


class AcceptanceError(Exception):
    """Something that the user has to change. The text says what, and what to do."""
