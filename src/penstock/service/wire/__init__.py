"""The JSON models of requests and responses, and their conversion from and to the records of the queue.

A model is the contract of a version of the API: fields may be added, never renamed or removed. Begin reading
in `jobs.py`.
"""
