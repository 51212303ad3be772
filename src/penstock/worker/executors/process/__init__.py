"""The process executor: handlers in child processes that a fork server makes.

The fork server imports the app once and forks a child per handler or keeps children for reuse; the worker
renews the leases. A child has no store and no client, and its death ends its own job only. Begin reading in
`host.py` (the worker's side), then `server.py` (the fork server), `child.py` and `wire.py` (the messages).
"""
