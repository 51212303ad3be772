"""Comparing what stands in a queue's records with what stands in its indexes.

Begin reading in `inspector.py`.
"""
