"""Rules on the limits of queues and keys, where what was declared of them is given."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from penstock.core.history.rules import Declared, Rule
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate

IS_CLAIM: Final = "follows AND move = 'claim'"
IS_END: Final = (
    "slot.is_counted AND (removes OR is_blank OR is_birth"
    " OR follows AND move <> 'claim' AND NOT target <=> 'active')"
)
"""SQL: the lease that the job had counts no longer."""

_PERIODS: Final = (
    "tenant string, queue string, since bigint, until bigint, has_keys boolean, key_limit int,"
    " max_active int, rate struct<since: bigint, interval: bigint, slack: bigint, says: string>,"
    " key_rate struct<since: bigint, interval: bigint, slack: bigint, says: string>, rules map<string, int>"
)
_TOLERANCE_US: Final = 1_000
"""Events carry milliseconds and stores count microseconds."""

# Steps of the number of jobs that run, and what was declared when they happened. In the very millisecond in
# which it changed nothing is judged.
_STEPS: Final = """
SELECT /*+ BROADCAST(declared) */
    found.tenant, found.queue, found.job, found.seq, found.at, found.step, found.is_claim, found.is_keyless,
    found.slot_key AS key, declared.has_keys, declared.max_active, declared.rate, declared.key_rate,
    coalesce(declared.rules[found.slot_key], declared.key_limit) AS key_limit,
    unix_millis(found.at) > declared.since AS is_sure
FROM {found} AS found
JOIN {declared} AS declared
    ON declared.tenant = found.tenant AND declared.queue = found.queue
    AND unix_millis(found.at) >= declared.since AND unix_millis(found.at) < coalesce(declared.until, 1L << 62)
WHERE found.step IS NOT NULL OR found.is_keyless
"""


def _counted(rule: Rule, where: str, by: str, limit: str, says: str) -> str:
    """SQL: claims while as many ran as may; leases count from before a limit was declared too."""
    return f"""
SELECT '{rule}' AS rule, tenant, queue, job, seq, {says} AS says
FROM (
    SELECT *, coalesce(sum(step) OVER (
        PARTITION BY {by} ORDER BY seq, job ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS running
    FROM {{steps}} WHERE step IS NOT NULL
)
WHERE is_claim AND is_sure AND {where} AND running >= {limit}
"""  # noqa: S608 (constants)


def _paced(rule: Rule, where: str, by: str, rate: str, says: str) -> str:
    """SQL: claims that came sooner than the rate allows after some earlier one.

    The n-th claim is on time when after none before it, the k-th, more than n - k went in that time: the
    highest of `at - k * interval` is all that has to be kept.
    """
    return f"""
SELECT '{rule}' AS rule, tenant, queue, job, seq, {says} AS says
FROM (
    SELECT
        *,
        max(unix_micros(at) - nth * {rate}.interval) OVER (
            PARTITION BY {by}, {rate}.since ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) + nth * {rate}.interval - unix_micros(at) AS ahead
    FROM (
        SELECT *, row_number() OVER (PARTITION BY {by}, {rate}.since ORDER BY seq) AS nth
        FROM {{steps}} WHERE is_claim AND {rate} IS NOT NULL AND {where}
    )
)
WHERE is_sure AND ahead > {rate}.slack
"""  # noqa: S608 (constants)


_OF_KEY: Final = "has_keys AND key IS NOT NULL"
_RULES: Final = (
    _counted(
        Rule.MAX_ACTIVE,
        "max_active IS NOT NULL",
        "tenant, queue",
        "max_active",
        "concat('claimed while ', running, ' of ', max_active, ' ran')",
    ),
    _counted(
        Rule.KEY_LIMIT,
        _OF_KEY,
        "tenant, queue, key",
        "key_limit",
        "concat('claimed while ', running, ' of ', key_limit, ' of key \\'', key, '\\' ran')",
    ),
    _paced(Rule.RATE, "true", "tenant, queue", "rate", "concat('claimed sooner than ', rate.says, ' allow')"),
    _paced(
        Rule.KEY_RATE,
        _OF_KEY,
        "tenant, queue, key",
        "key_rate",
        "concat('claimed sooner than ', key_rate.says, ' of key \\'', key, '\\' allow')",
    ),
    f"""
SELECT '{Rule.KEYLESS}' AS rule, tenant, queue, job, seq,
    'enqueued without a key into a queue that shares by keys' AS says
FROM {{steps}} WHERE is_keyless AND has_keys AND is_sure
""",  # noqa: S608 (constants)
)


def breaches(found: DataFrame, declared: Mapping[QueueRef, Sequence[Declared]]) -> DataFrame:
    """Breaches of limits and rates, and jobs without the key that their queue wants."""
    spark = found.sparkSession
    steps = spark.sql(_STEPS, found=found, declared=_periods(spark, declared))
    first, *others = (spark.sql(rule, steps=steps) for rule in _RULES)
    for other in others:
        first = first.union(other)
    return first


def _periods(spark: SparkSession, declared: Mapping[QueueRef, Sequence[Declared]]) -> DataFrame:
    """What held from when until when, a row per queue and declaration."""
    rows = [row for queue, each in declared.items() for row in _rows(queue, sorted(each, key=lambda d: d.at))]
    return spark.createDataFrame(rows, _PERIODS)


def _rows(queue: QueueRef, declared: Sequence[Declared]) -> list[tuple[Any, ...]]:
    # Before the first declaration a queue is a global one without limits.
    held = [Declared(-1, Declaration()), *declared]
    rows: list[tuple[Any, ...]] = []
    rate = key_rate = None
    for at, each in enumerate(held):
        told = each.declaration
        rate = _rate(told.rate, each.at, rate)
        key_rate = _rate(told.key_rate, each.at, key_rate)
        own = {key: rule.limit for key, rule in each.rules.items() if rule.limit is not None}
        rows.append(
            (
                queue.tenant,
                queue.name,
                each.at,
                held[at + 1].at if at + 1 < len(held) else None,
                told.mode.has_keys,
                told.key_limit,
                told.max_active,
                rate,
                key_rate,
                own if told.mode is Mode.DYNAMIC else {},
            )
        )
    return rows


def _rate(
    rate: Rate | None, at: int, before: tuple[int, int, int, str] | None
) -> tuple[int, int, int, str] | None:
    """A rate as the rules want it; one that did not change goes on counting."""
    if rate is None:
        return None
    says = f"{rate.count} per {rate.per_ms} ms with {rate.burst} at once"
    slack = (rate.burst - 1) * rate.interval_us + _TOLERANCE_US
    since = before[0] if before is not None and before[1:] == (rate.interval_us, slack, says) else at
    return since, rate.interval_us, slack, says
