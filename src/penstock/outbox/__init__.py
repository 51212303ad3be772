"""An outbox: jobs written in a database transaction of the caller's, and carried to a store elsewhere."""

from penstock.outbox.relay import Carried, OutboxRelay
from penstock.outbox.sources import open_outbox
from penstock.outbox.writing import BlockingOutbox, Outbox

__all__ = ["BlockingOutbox", "Carried", "Outbox", "OutboxRelay", "open_outbox"]
