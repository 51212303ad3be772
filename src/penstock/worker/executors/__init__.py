"""Executors: where handlers run, behind `protocol.py`.

`inline.py` runs coroutines on the event loop and plain functions in threads, `process/` runs handlers in
isolated child processes, `subprocess/` runs any program. Cancelling the call of an executor stops the
handler, except a thread, which is only told. Begin reading in `tiers.py`, which chooses the executor of a
task.
"""
