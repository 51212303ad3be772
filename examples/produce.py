"""A script without async that enqueues mails by the task's name, and may be run twice without harm.

python examples/produce.py ada@example.org bob@example.org
"""

import os
import sys

from penstock import Penstock

app = Penstock(os.environ.get("MAIL_STORE", "sqlite:///mail.db"))
app.queue("mail")
send = app.by_name("send", queue="mail")


def main(addresses: list[str]) -> None:
    """One mail for each address, however often this is called."""
    with app.blocking as queue:
        for address in addresses:
            once = send.options(idempotency_key=f"welcome {address}")
            job = queue.enqueue(once, to=address, subject="Welcome")
            print(address, "enqueued" if job.created else f"is there already, {queue.status(job)}")


if __name__ == "__main__":
    main(sys.argv[1:])
