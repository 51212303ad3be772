"""Penstock's calls for the tier `inline`."""

from functools import partial

from benchmarks.execution import ours

calls = partial(ours.calls, "inline")
