"""Where jobs live, behind one protocol: memory, SQLite, PostgreSQL, Redis or Valkey, and a service elsewhere.

A store applies each move as one atomic, guarded operation that writes its event, and decides nothing that
`core` can decide. Stores import nothing of each other. Begin reading in `protocol.py`, then in `memory/`, the
reference; `registry.py` says which URL scheme is which store.
"""
