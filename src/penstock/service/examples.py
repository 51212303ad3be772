"""A body for each operation that takes one, as the documents show it."""

from typing import Any, Final

_TOKEN: Final = "9e7e205a235a444519ee5ed8b277f0e9"  # noqa: S105 (the look of one)
_LEASE: Final = {"id": "01M7HGBTXE0001BH54QNQ8EYHZ", "token": _TOKEN}

EXAMPLES: Final[dict[str, Any]] = {
    "create_job": {"task": "send", "payload": {"to": "ada@example.org"}, "max_attempts": 5},
    "create_jobs": {
        "jobs": [
            {"queue": "mail", "task": "send", "payload": {"to": "ada@example.org"}},
            {"queue": "mail", "task": "send", "payload": {"to": "bob@example.org"}, "delay": 60},
        ]
    },
    "claim": {"worker": "host-1", "limit": 10, "lease": 30, "wait": 20},
    "heartbeat": {"beats": [_LEASE], "lease": 30},
    "progress": {"reports": [_LEASE | {"value": {"done": 3, "of": 10}}]},
    "settle": {
        "settlements": [
            _LEASE | {"how": "complete", "result": {"sent": True}},
            _LEASE | {"how": "retry", "error": "Timeout: no answer", "delay": 30},
            _LEASE | {"how": "fail", "error": "no such address"},
            _LEASE | {"how": "snooze", "delay": 300},
            _LEASE | {"how": "release"},
        ]
    },
    "declare_queue": {"mode": "keyed", "key_limit": 2, "rate": {"count": 50, "per": 1}},
    "pause_queue": {"reason": "provider down", "seconds": 600},
    "purge_queue": {"states": ["pending", "delayed"]},
    "set_key": {"key": "customer-7", "weight": 2},
    "put_schedule": {"queue": "mail", "task": "digest", "cron": "0 7 * * MON-FRI", "zone": "Europe/Berlin"},
    "create_flow": {
        "jobs": [
            {"name": "fetch", "queue": "sync", "task": "fetch", "payload": {"url": "https://example.org"}},
            {"name": "report", "queue": "mail", "task": "report", "after": ["fetch"]},
        ]
    },
    "retry_many": {"states": ["failed"], "where": "error like 'Timeout%'"},
    "cancel_many": {"states": ["pending"], "key": "customer-7"},
    "delete_many": {"states": ["failed"], "since": "2026-01-31T12:00:00Z", "limit": 500},
    "redrive_dead_letters": {"task": "send", "reason": "MAX_ATTEMPTS", "limit": 100},
    "purge_dead_letters": {"ids": ["01M7HGBTXE0001BH54QNQ8EYHZ"]},
    "create_webhook": {"url": "https://example.org/hooks", "types": ["job.dead"], "queues": ["mail"]},
    "change_webhook": {"url": "https://example.org/hooks", "types": ["job.dead", "batch.completed"]},
    "rotate_webhook": {"overlap": 3600},
    "pause_webhook": {"reason": "moving to another host"},
}
