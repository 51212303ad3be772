"""Explains why a job is in its state, as sentences, for the command line and the service.

`job_facts.gather_facts` reads from the store, `sentences.explain` turns facts into sentences without any I/O.
Begin with `sentences.py`.
"""
