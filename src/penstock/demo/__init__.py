"""The demo: runs real worker processes, kills one, and proves that no job was lost.

The proof does not trust the store: producer and handlers write records of their own (`record_file.py`), which
`audit.py` compares with the event log and the jobs. Begin with `run.py`.
"""
