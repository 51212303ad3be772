"""The data pipeline on Spark: the queue's jobs and events as tables, and jobs from DataFrames.

Begin reading in `source.py`, the data source that Spark calls; `jobs/` and `events/` read, `sink/` writes,
`pipeline.py` fills the tables of `lake/`, and `audit/` checks them.

Names are imported when they are first used: neither Spark nor a Java is needed to import this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import ConfigError
from penstock.core.extras import install_command

if TYPE_CHECKING:
    from penstock.spark.java import java_home
    from penstock.spark.observing import observed
    from penstock.spark.registering import register
    from penstock.spark.sessions import session

_HOMES: Final = {
    "java_home": "java",
    "observed": "observing",
    "register": "registering",
    "session": "sessions",
}
"""None is called like its name: the module would take the name's place once it is imported."""

__all__ = ["java_home", "observed", "register", "session"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
    try:
        return getattr(import_module(f"penstock.spark.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise ConfigError(f"Spark needs the package {error.name}: {install_command('spark')}") from error
