"""Rules on the limits of queues and keys, where what was declared of them is given."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from penstock.core.history.rules import Declared, Rule
from penstock.core.job import QueueRef
from penstock.core.limits import Declaration, Mode, Rate
from penstock.spark.audit.found import Kind

_PERIODS: Final = (
    "tenant string, queue string, since bigint, until bigint, has_keys boolean, key_limit int,"
    " max_active int, rate struct<since: bigint, interval: bigint, slack: bigint, says: string>,"
    " key_rate struct<since: bigint, interval: bigint, slack: bigint, says: string>, rules map<string, int>"
)
_TOLERANCE_US: Final = 1_000
"""Events carry milliseconds and stores count microseconds."""

# Steps of the number of jobs that run, and what was declared when they happened. In the very millisecond in
# which it changed nothing is judged. Queues and keys are told apart by hashes, which sort faster than texts.
_STEPS: Final = f"""
SELECT /*+ BROADCAST(declared) */
    xxhash64(found.tenant, found.queue) AS log, xxhash64(found.tenant, found.queue, found.text) AS lane,
    found.tenant, found.queue, found.job, found.seq, found.at, found.number AS step,
    found.name IS NOT NULL AS is_claim, found.kind = {int(Kind.KEYLESS)} AS is_keyless,
    found.text AS key, declared.has_keys, declared.max_active, declared.rate, declared.key_rate,
    coalesce(declared.rules[found.text], declared.key_limit) AS key_limit,
    found.at > declared.since AS is_sure
FROM {{found}} AS found
JOIN {{declared}} AS declared
    ON declared.tenant = found.tenant AND declared.queue = found.queue
    AND found.at >= declared.since AND found.at < coalesce(declared.until, 1L << 62)
WHERE found.kind IN ({int(Kind.STEP)}, {int(Kind.KEYLESS)})
"""  # noqa: S608 (constants)


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
        max(at * 1000 - nth * {rate}.interval) OVER (
            PARTITION BY {by}, {rate}.since ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) + nth * {rate}.interval - at * 1000 AS ahead
    FROM (
        SELECT *, row_number() OVER (PARTITION BY {by}, {rate}.since ORDER BY seq) AS nth
        FROM {{steps}} WHERE is_claim AND {rate} IS NOT NULL AND {where}
    )
)
WHERE is_sure AND ahead > {rate}.slack
"""  # noqa: S608 (constants)


_OF_KEY: Final = "has_keys AND key IS NOT NULL"
_MAX_ACTIVE: Final = _counted(
    Rule.MAX_ACTIVE,
    "max_active IS NOT NULL",
    "log",
    "max_active",
    "concat('claimed while ', running, ' of ', max_active, ' ran')",
)
_KEY_LIMIT: Final = _counted(
    Rule.KEY_LIMIT,
    _OF_KEY,
    "lane",
    "key_limit",
    "concat('claimed while ', running, ' of ', key_limit, ' of key \\'', key, '\\' ran')",
)
_RATE: Final = _paced(Rule.RATE, "true", "log", "rate", "concat('claimed sooner than ', rate.says, ' allow')")
_KEY_RATE: Final = _paced(
    Rule.KEY_RATE,
    _OF_KEY,
    "lane",
    "key_rate",
    "concat('claimed sooner than ', key_rate.says, ' of key \\'', key, '\\' allow')",
)
_KEYLESS: Final = f"""
SELECT '{Rule.KEYLESS}' AS rule, tenant, queue, job, seq,
    'enqueued without a key into a queue that shares by keys' AS says
FROM {{steps}} WHERE is_keyless AND has_keys AND is_sure
"""  # noqa: S608 (constants)


def breaches(found: DataFrame, declared: Mapping[QueueRef, Sequence[Declared]]) -> list[DataFrame]:
    """Breaches of limits and rates, and jobs without the key that their queue wants."""
    spark = found.sparkSession
    steps = spark.sql(_STEPS, found=found, declared=_periods(spark, declared))
    return [spark.sql(rule, steps=steps) for rule in _rules(declared)]


def _rules(declared: Mapping[QueueRef, Sequence[Declared]]) -> Iterator[str]:
    """Those that something was declared for: each sorts all claims."""
    said = [each.declaration for every in declared.values() for each in every]
    if any(each.max_active is not None for each in said):
        yield _MAX_ACTIVE
    if any(each.rate is not None for each in said):
        yield _RATE
    if any(each.mode.has_keys for each in said):
        yield from (_KEY_LIMIT, _KEYLESS)
        if any(each.key_rate is not None for each in said):
            yield _KEY_RATE


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
