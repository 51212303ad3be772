"""The app: declares queues, tasks and schedules, opens the store, and makes workers.

An app declares without a store: nothing is connected before `async with app`, and no task can be added once a
worker runs. Begin reading in `app.py`; `connection.py` opens and closes the store, `working.py` makes
workers, `preparing.py` compares declarations with the stored ones before they start.
"""

from penstock.app.app import Penstock
from penstock.app.queue import QueueHandle

__all__ = ["Penstock", "QueueHandle"]
