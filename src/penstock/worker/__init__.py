"""The worker: claims jobs, executes their handlers, renews their leases and settles them.

A worker claims at most as many jobs as it has free slots, so an active job is a running job, and stops a
handler before its lease ends. A delivery has one phase, which only the event loop changes. Begin reading in
`worker.py`, then `claim.py`, `delivery.py` (the table of phases), `execute.py` and `settle.py`; `renewer.py`
is a thread.
"""
