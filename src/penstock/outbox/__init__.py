"""An outbox: jobs written in a database transaction of the caller's, for a store elsewhere.

The caller's SQLite or PostgreSQL database has a table of whole jobs; a relay enqueues each into the store and
then deletes the row, so that a crash repeats an enqueue, which has no effect. Begin reading in `writing.py`,
then `relay.py`.
"""

from penstock.outbox.relay import Carried, OutboxRelay
from penstock.outbox.sources import open_outbox
from penstock.outbox.writing import BlockingOutbox, Outbox

__all__ = ["BlockingOutbox", "Carried", "Outbox", "OutboxRelay", "open_outbox"]
