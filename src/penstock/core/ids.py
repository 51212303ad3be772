"""Job ids: 26 characters that sort by time and carry the queue's short number.

10 characters of milliseconds, 4 of the queue's number, 12 of chance (60 bits), in Crockford's base 32.
"""

from collections.abc import Callable
from typing import Final

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS: Final = [a + b for a in _DIGITS for b in _DIGITS]
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
LENGTH: Final = 26
MAX_QUEUE_NUMBER: Final = 32**4 - 1
_CHANCE_BITS: Final = 60
_NONCES: Final = 256


class IdMaker:
    """Makes ids that increase within one maker, also within one millisecond.

    `clock` gives Unix milliseconds and `chance` a random number of so many bits.
    """

    def __init__(self, clock: Callable[[], int], chance: Callable[[int], int]) -> None:
        self._clock = clock
        self._chance = chance
        self._last_at = 0
        self._last = 0
        self._head_of = (0, 0, 0)
        self._head = ""
        self._nonces: list[str] = []

    def make(self, queue_number: int) -> str:
        """A new id for the queue with that number."""
        at = self._clock()
        if at > self._last_at:
            self._last_at = at
            # The top bit stays free, so that counting up has room.
            self._last = self._chance(_CHANCE_BITS - 1)
        else:
            self._last += 1
        # Within a millisecond nearly always only the last pair differs.
        head_of = (self._last_at, queue_number, self._last >> 10)
        if head_of != self._head_of:
            self._head_of = head_of
            self._head = _encode(self._last_at, 5) + _encode(queue_number, 2) + _encode(self._last >> 10, 5)
        return self._head + _PAIRS[self._last & 1023]

    def nonce(self) -> str:
        """Sixteen random characters, different for each call."""
        if not self._nonces:
            # Chance comes from the system and is dear: many at a time.
            drawn = f"{self._chance(64 * _NONCES):0{16 * _NONCES}x}"
            self._nonces = [drawn[at : at + 16] for at in range(0, len(drawn), 16)]
        return self._nonces.pop()


def queue_number(job: str) -> int | None:
    """The queue's number in a generated id; None when the id was chosen by a caller."""
    if len(job) != LENGTH or not all(c in _VALUES for c in job):
        return None
    number = 0
    for c in job[10:14]:
        number = number * 32 + _VALUES[c]
    return number


def _encode(number: int, pairs: int) -> str:
    out = []
    for _ in range(pairs):
        number, low = divmod(number, 1024)
        out.append(_PAIRS[low])
    return "".join(reversed(out))
