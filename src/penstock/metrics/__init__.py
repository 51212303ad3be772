"""Metrics of a process: what it counts itself, and samples of the store. Begin with `recorder.py`.

`families.py` names every metric; `prometheus.py` and `otlp.py` show them, and alone import what their
extras install.
"""

from penstock.metrics.recorder import Metrics

__all__ = ["Metrics"]
