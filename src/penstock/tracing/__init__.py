"""Traces from enqueue over waiting to execution, by OpenTelemetry. Needs the extra `otel`.

The context of a trace travels in the headers of the job, as W3C has it, so that a trace goes on in whatever
process executes the job. Begin with `middleware.py`.
"""

from penstock.tracing.middleware import trace

__all__ = ["trace"]
