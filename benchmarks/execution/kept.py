"""Penstock's calls for the tier `kept`."""

from functools import partial

from benchmarks.execution import ours

calls = partial(ours.calls, "kept")
