"""What an operator tells a server."""

from typing import Any

from redis.asyncio import Redis


async def tell(operator: Redis, *command: Any) -> Any:
    """One command in the server's own words."""
    return await operator.execute_command(*command)  # type: ignore[no-untyped-call] # the client's
