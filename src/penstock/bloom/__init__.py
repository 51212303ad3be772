"""Bloom filters that spare calls to a store.

A filter gives hints only: the store decides whether a key is taken or a job exists, so a false positive costs
a call and never a job. Begin reading in `filters.py`; `rotating.py` bounds how long an item is remembered.
"""
