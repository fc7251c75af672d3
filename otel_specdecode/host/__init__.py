"""What the machine and the process report of themselves; unknown where they do not."""
