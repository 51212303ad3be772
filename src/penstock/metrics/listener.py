"""Serves the exposition of a worker process from threads, which handlers cannot block."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import ConfigError
from penstock.metrics.exposition import Exposition
from penstock.metrics.prometheus import start_listening


@contextmanager
def listening(exposition: Exposition, host: str, port: int) -> Iterator[int]:
    """Answer scrapes for the time of the block, at the port that is yielded; 0 picks a free one.

    ConfigError where it cannot listen.
    """
    try:
        server, thread = start_listening(exposition.samples_from_thread, host, port)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"metrics: cannot listen on {host}:{port}: {why}") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1.0)
