"""Gates: numbers that a run is held against, and the verdict."""
