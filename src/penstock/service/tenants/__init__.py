"""Tenants of the service: quotas, usage, fair turns, and the audit log of administrators.

Quotas are stored as key-value entries, so that all processes of a service share them. Begin reading in
`quotas.py`.
"""
