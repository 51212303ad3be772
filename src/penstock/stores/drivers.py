"""From a connection or session of the caller's to the driver's own connection, with its transaction checked.

SQLAlchemy and Django are known by what they look like: neither has to be installed.
"""

from typing import Any, Final

from penstock.core.errors import TransactionError

_NOT_BEGUN: Final = (
    "the session or connection of SQLAlchemy is in no transaction, or was closed: enqueue inside "
    "`with session.begin():`, or after its first statement"
)
_AUTOCOMMIT: Final = (
    "the session or connection of SQLAlchemy is in AUTOCOMMIT mode, and in no transaction: give its engine "
    'another isolation_level, such as "READ COMMITTED"'
)
_NO_ATOMIC: Final = "the Django connection is in no transaction: enqueue inside `with transaction.atomic():`"


async def driver_of(given: Any) -> Any:
    """The driver's connection; awaits nothing for connections and sessions that block."""
    match _library(given):
        case "sqlalchemy":
            return await _under_sqlalchemy(given)
        case "django":
            return _under_django(given)
        case _:
            return given


def _library(given: Any) -> str:
    names = [kind.__module__.partition(".")[0] for kind in type(given).__mro__]
    return next((name for name in names if name in {"sqlalchemy", "django"}), "")


async def _under_sqlalchemy(given: Any) -> Any:
    if hasattr(given, "session_factory"):
        # A scoped session: what it stands for in this thread or task.
        given = given()
    if not hasattr(given, "in_transaction"):
        raise TransactionError(f"found {_kind(given)}, wanted a session or a connection of SQLAlchemy")
    if not given.in_transaction():
        # A first statement behind its back would be in a transaction that it does not know and never commits.
        raise TransactionError(_NOT_BEGUN)
    if hasattr(given, "get_bind"):
        given = await _connection_of(given)
    if hasattr(given, "get_raw_connection"):
        driver = (await given.get_raw_connection()).driver_connection
    else:
        driver = given.connection.driver_connection
    if getattr(driver, "autocommit", None) is True and not _status(driver):
        raise TransactionError(_AUTOCOMMIT)
    return driver


async def _connection_of(session: Any) -> Any:
    try:
        found = session.connection()
        return await found if hasattr(found, "__await__") else found
    except Exception as error:
        if _library(error) != "sqlalchemy":
            raise
        # Such as one with a database per class, which has none for the session as a whole.
        raise TransactionError(
            f"the session of SQLAlchemy gives no connection: hand over that of your table's database, "
            f"session.connection(bind_arguments=…) ({error})"
        ) from error


def _status(driver: Any) -> int | None:
    """Where a transaction of psycopg's stands: 0 is in none."""
    return getattr(getattr(driver, "info", None), "transaction_status", None)


def _under_django(given: Any) -> Any:
    if not hasattr(given, "in_atomic_block"):
        raise TransactionError(f"found {_kind(given)}, wanted a connection, such as django.db.connection")
    if not given.in_atomic_block and given.get_autocommit():
        raise TransactionError(_NO_ATOMIC)
    if given.needs_rollback:
        raise TransactionError("the Django transaction has failed already: it can only be rolled back")
    return given.connection


def _kind(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"
