"""Requests out of the service, to addresses that tenants named.

Every address of a host name is checked before one is connected to, so that a webhook cannot reach the
service's own network; time and size of an answer are bounded. Begin reading in `egress.py`.
"""
