"""Logging: records with fields about jobs and workers, as text or JSON. Begin with `logs.py`."""
