"""Webhooks: signed messages about ended jobs, delivered at least once.

The forwarder reads the event log as a registered reader and enqueues one delivery per event and webhook, with
an idempotency key; the sender is the handler of those jobs. Begin reading in `forwarder.py`, then
`sender.py`.
"""
