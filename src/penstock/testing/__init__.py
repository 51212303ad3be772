"""For the tests of programs that use Penstock: an app in memory, a clock to advance, jobs run to the end.

Begin reading in `kit.py`; `conformance/` has the tests that every store passes. An example:

async def test_a_new_user_gets_a_mail(penstock_kit):
    kit = penstock_kit(app)
    async with app:
        await sign_up("ada@example.org")
        kit.assert_enqueued(send, to="ada@example.org")
        await kit.drain()
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.kit import Kit, in_memory, job_context

__all__ = ["Kit", "in_memory", "job_context"]


def __getattr__(name: str) -> Any:
    # The pytest plugin imports this package in every run; only tests that use it pay for the rest.
    if name not in __all__:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    from penstock.testing import kit

    return getattr(kit, name)
