"""The decisions about jobs: values and pure functions, without a store, a clock or chance of their own.

Every rule that the job as it was claimed can answer is here, once for all stores: which move follows
(`decide`), the record afterwards (`effects`), the event (`events`), the delay (`retry`). Nothing here does
I/O; time and random numbers are arguments. Begin reading in `transitions.py`, the table of all moves, then
`decide.py`.
"""
