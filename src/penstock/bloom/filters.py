"""The filters of one process: which are on, and how large they are."""

from penstock.bloom.rotating import BloomSize, RotatingBloom
from penstock.settings import BloomSettings


class Filters:
    """The filters that a process uses; one whose size is not given is off.

    `idempotency` remembers keys of jobs that were enqueued, `ghost` ids of jobs that were cancelled or
    deleted while they waited, `cleanup` ids of jobs that were removed. ConfigError where the package for
    filters is not installed.
    """

    def __init__(
        self,
        *,
        idempotency: BloomSize | None = None,
        ghost: BloomSize | None = None,
        cleanup: BloomSize | None = None,
    ) -> None:
        self.idempotency = None if idempotency is None else RotatingBloom(idempotency)
        self.ghost = None if ghost is None else RotatingBloom(ghost)
        self.cleanup = None if cleanup is None else RotatingBloom(cleanup)

    @classmethod
    def of(cls, settings: BloomSettings) -> "Filters":
        """The filters that the settings turn on."""
        keys = (settings.idempotency_capacity, settings.idempotency_rate, settings.idempotency_rotation)
        ghosts = (settings.ghost_capacity, settings.ghost_rate, settings.ghost_rotation)
        removed = (settings.cleanup_capacity, settings.cleanup_rate, settings.cleanup_rotation)
        return cls(
            idempotency=BloomSize(*keys) if settings.idempotency else None,
            ghost=BloomSize(*ghosts) if settings.ghost else None,
            cleanup=BloomSize(*removed) if settings.cleanup else None,
        )
