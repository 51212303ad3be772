"""What holds a queue's claims back: its declaration, its rate, its length, and keys that take turns."""

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.core.limits import (
    MAX_COUNT,
    STRIDE,
    Declaration,
    KeyRule,
    Mode,
    agreed,
    check_declaration,
    check_key_rule,
)
from penstock.core.moves import Move
from penstock.stores.rows import encode, read_declaration

if TYPE_CHECKING:
    from penstock.stores.sqlite.queue_transaction import QueueTransaction

PLAIN: Final = Declaration()


class QueueLimits:
    """The limits of one queue, for the time of one transaction on it."""

    def __init__(
        self,
        transaction: "QueueTransaction",
        declaration: str | None,
        arrival_us: int,
        virtual: int,
        lanes: int,
    ) -> None:
        # They live as long as each other: a cycle of two would be left to the collector by every call.
        self._transaction: QueueTransaction = weakref.proxy(transaction)
        self._arrival_us = arrival_us
        self._virtual = virtual
        self._lanes = lanes
        self._keys: dict[str, None] = {}
        self.declaration = read_declaration(transaction.queue, declaration)
        self.declared = self.declaration or PLAIN
        self._bind_declaration()
        self._bind_numbers()

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What the queue keeps: the next arrival, the virtual time, and how many lanes were opened."""
        return self._arrival_us, self._virtual, self._lanes

    def touch(self, keys: Iterable[str]) -> None:
        """Remember keys that could be served now, or no longer."""
        self._keys.update(dict.fromkeys(keys))

    def refresh(self) -> None:
        """Look again whether the touched keys could be served: at the end of a call, in the order touched."""
        if not self._keys:
            return
        keys = encode(list(self._keys))
        self._keys.clear()
        self._transaction.run_shared("ready", "close", keys=keys)
        self._lanes += self._transaction.run_shared("ready", "open", keys=keys).rowcount
        if self.declared.key_rate is not None:
            self._transaction.run_shared("ready", "forget", keys=keys)
        self._bind_numbers()

    def release_held(self) -> None:
        """Let keys go on whose rate held them back until now."""
        if self.declared.key_rate is not None:
            self._lanes += self._transaction.run_shared("ready", "release").rowcount
            self._bind_numbers()

    def serve(self) -> None:
        """The keys picked were served: their turns are used, and a token of each one's rate."""
        virtual = self._transaction.value(Move.CLAIM, "virtual")
        if self.declared.key_rate is not None:
            self._transaction.run(Move.CLAIM, "rate")
        self._lanes += self._transaction.run(Move.CLAIM, "served").rowcount
        self._virtual = virtual
        self._bind_numbers()
        self.refresh()

    def allowance(self) -> int:
        """How many may be claimed now by the queue's own limits."""
        allowed = MAX_COUNT
        if self.declared.max_active is not None:
            (active,) = self._transaction.connection.execute(
                "SELECT count(*) FROM job WHERE queue = ? AND state = 'active'", (self._transaction.number,)
            ).fetchone()
            allowed = min(allowed, self.declared.max_active - active)
        if self.declared.rate is not None:
            allowed = min(allowed, self.declared.rate.tokens(self._arrival_us, self._transaction.now_us))
        return max(0, allowed)

    def use_rate(self, taken: int) -> int | None:
        """Use up tokens of the queue's rate; when it opens again, if none is left and someone waits."""
        rate = self.declared.rate
        if rate is None:
            return None
        self._arrival_us = rate.after(self._arrival_us, self._transaction.now_us, taken)
        if rate.tokens(self._arrival_us, self._transaction.now_us) or not self.has_pending():
            return None
        return -(-rate.opens_us(self._arrival_us) // 1000)

    def has_pending(self) -> bool:
        """True when a job is claimable but for limits."""
        row = self._transaction.connection.execute(
            "SELECT 1 FROM job WHERE queue = ? AND state = 'pending' LIMIT 1", (self._transaction.number,)
        ).fetchone()
        return row is not None

    def free_places(self) -> int:
        """How many more jobs may wait."""
        longest = self.declared.max_length
        if longest is None:
            return MAX_COUNT
        (waiting,) = self._transaction.connection.execute(_WAITING, (self._transaction.number,)).fetchone()
        return int(longest - waiting)

    def declare(self, wanted: Declaration) -> None:
        """Keep what was agreed, and look at all keys again if that is news."""
        (is_live,) = self._transaction.connection.execute(
            "SELECT EXISTS (SELECT 1 FROM job WHERE queue = ? "
            "AND state IN ('blocked', 'pending', 'delayed', 'active'))",
            (self._transaction.number,),
        ).fetchone()
        after = agreed(self.declaration, check_declaration(wanted), is_live=bool(is_live))
        if after == self.declaration:
            return
        self.declaration = self.declared = after
        self._transaction.connection.execute(
            "UPDATE queue SET declaration = ? WHERE n = ?", (encode(self.declared), self._transaction.number)
        )
        self._bind_declaration()
        self._owe_at_most()
        if self.declared.mode.has_keys:
            rows = self._transaction.connection.execute(_ALL_KEYS, {"queue": self._transaction.number})
            self._keys.update(dict.fromkeys(key for (key,) in rows))
            self.refresh()
            self._lanes += self._transaction.run_shared("ready", "let_go").rowcount
            self._transaction.run_shared("ready", "hold")
            self._bind_numbers()
        else:
            self._transaction.connection.execute(
                "DELETE FROM lane WHERE queue = ?", (self._transaction.number,)
            )

    def _owe_at_most(self) -> None:
        """Forget what other rates left behind beyond what these could have."""
        rate, key_rate, now_us = self.declared.rate, self.declared.key_rate, self._transaction.now_us
        self._arrival_us = 0 if rate is None else rate.owed_at_most(self._arrival_us, now_us)
        most_us = 0 if key_rate is None else now_us + key_rate.burst * key_rate.interval_us
        self._transaction.connection.execute(
            "UPDATE key_rate SET arrival_us = min(arrival_us, ?) WHERE queue = ?",
            (most_us, self._transaction.number),
        )

    def set_key_rule(self, key: str, rule: KeyRule | None) -> None:
        """Change a key's own limit and weight, or take them back, and look at it again."""
        connection, row_key = self._transaction.connection, (self._transaction.number, key)
        row = connection.execute(
            "SELECT max_active, weight FROM key_rule WHERE queue = ? AND key = ?", row_key
        ).fetchone()
        before = KeyRule() if row is None else KeyRule(*row)
        after = KeyRule() if rule is None else check_key_rule(self.declared.mode, rule).over(before)
        if after.is_plain:
            connection.execute("DELETE FROM key_rule WHERE queue = ? AND key = ?", row_key)
        else:
            connection.execute(
                "INSERT OR REPLACE INTO key_rule (queue, key, max_active, weight, stride) "
                "VALUES (?, ?, ?, ?, ?)",
                (*row_key, after.limit, after.weight or 1, after.stride),
            )
        if self.declared.mode.has_keys:
            self._keys[key] = None

    def _bind_declaration(self) -> None:
        rate = self.declared.key_rate
        self._transaction.bind(
            key_limit=self.declared.key_limit,
            stride=STRIDE,
            dynamic=self.declared.mode is Mode.DYNAMIC,
            keyed=self.declared.mode.has_keys,
            key_interval_us=0 if rate is None else rate.interval_us,
            key_slack_us=0 if rate is None else rate.slack_us,
            key_furthest_us=0 if rate is None else rate.furthest_us,
        )

    def _bind_numbers(self) -> None:
        self._transaction.bind(virtual=self._virtual, lanes=self._lanes)


# One count per state: each has an index of its own.
_WAITING: Final = """
SELECT
    (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'pending')
    + (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'delayed')
    + (SELECT count(*) FROM job WHERE queue = ?1 AND state = 'blocked')
"""

_ALL_KEYS: Final = """
SELECT key FROM job WHERE queue = :queue AND state = 'pending' AND key IS NOT NULL
UNION SELECT key FROM job WHERE queue = :queue AND state = 'active' AND key IS NOT NULL
UNION SELECT key FROM key_rule WHERE queue = :queue
UNION SELECT key FROM lane WHERE queue = :queue
ORDER BY 1
"""
