"""Jobs for programs: one process each, lines of JSON in and out.

Begin reading in `executor.py`.
"""
