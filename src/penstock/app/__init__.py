"""The app: where queues and tasks are declared, and what opens the store."""

from penstock.app.app import Penstock
from penstock.app.queue import QueueHandle

__all__ = ["Penstock", "QueueHandle"]
