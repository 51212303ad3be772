"""What a streaming query shows of its events in each progress: how many, how late, and what was wrong."""

from typing import Final

from pyspark.sql import DataFrame

NAME: Final = "penstock"
_LAG: Final = "min(unix_millis(current_timestamp()) - unix_millis(at))"
_FIGURES: Final = {
    "events": "count_if(move IS NULL OR move <> 'gap')",
    "gaps": "count_if(move = 'gap')",
    "problems": "count_if(problem IS NOT NULL AND NOT coalesce(move = 'gap', false))",
    "newest_at": "max(at)",
    "lag_ms": _LAG,
}


def observed(events: DataFrame, name: str = NAME) -> DataFrame:
    """The same events; each progress of the query has their figures as `observedMetrics[name]`.

    `events`, `gaps` and `problems` are counts of the micro-batch, `newest_at` is the time of its newest event
    and `lag_ms` how long before the micro-batch that was. A listener of streaming queries gets them too.
    """
    from pyspark.sql.functions import expr

    return events.observe(name, *(expr(text).alias(figure) for figure, text in _FIGURES.items()))
