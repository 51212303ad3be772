"""The conformance suite: tests that every store passes, published so that others can write a store.

`pytest --pyargs penstock.testing.conformance --penstock-store my_store:make_store` runs the suite on a store,
with `--penstock-parts` on one that has some parts of the protocol only. Begin reading at `test_matrix.py`: it
makes each move from each state and holds the answer, the record and the event to `core/transitions.py`.
"""
