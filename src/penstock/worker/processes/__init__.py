"""Several worker processes on one machine: `supervisor.py` keeps them running, `scaler.py` decides how many.

A supervised process is an ordinary `penstock worker`. The supervisor claims nothing: if it dies, its
processes drain and end, and settle or release every job that they hold. Begin with `supervisor.py`.
"""
