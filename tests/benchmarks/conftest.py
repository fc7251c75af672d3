"""The benchmarks are part of the source tree alone; beside the installed package there is nothing to collect."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("benchmarks") else ["test_*.py"]
