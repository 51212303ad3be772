"""Tasks: how a function becomes a task, and what its handler can use: arguments, context, signals, flows.

A task is callable like its function. Arguments are checked at the call and encoded as strict JSON. Nothing
here opens a store. Begin reading in `task.py`, then `signature.py` (arguments) and `context.py` (what a
handler gets).
"""
