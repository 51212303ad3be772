"""The worker: what it promises about claims, leases, executions and endings."""
