"""Penstock's calls for the tier `program`."""

from functools import partial

from benchmarks.execution import ours

calls = partial(ours.calls, "program")
