"""Penstock's calls for the tier `forked`."""

from functools import partial

from benchmarks.execution import ours

calls = partial(ours.calls, "forked")
