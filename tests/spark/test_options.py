"""The options of the data source: what is read, what is refused and how, and that no secret is shown."""

import pickle
from typing import Any

import pytest

from penstock.core.errors import ConfigError, InvalidError, InvalidNameError, OptionError
from penstock.core.states import State
from penstock.spark.options import SourceOptions, names, read_options

URL = "redis://me:s3cret@127.0.0.1/0"


def given(**raw: str) -> dict[str, str]:
    return {"url": URL, **raw}


def test_text_becomes_typed_values() -> None:
    options = read_options(
        given(
            table="JOBS",
            tenants="a, b,a",
            queues="mail",
            states="Dead,active",
            tasks="send,bill",
            columns="id, state",
            since="2026-01-31",
            until="2026-01-31T12:00:00.5+02:00",
            minPartitions="4",
        ),
        role="read",
    )

    assert options == SourceOptions(
        url=URL,
        tenants=("a", "b"),
        queues=("mail",),
        states=frozenset({State.DEAD, State.ACTIVE}),
        tasks=("send", "bill"),
        columns=("id", "state"),
        since=1_769_817_600_000,
        until=1_769_853_600_500,
        min_partitions=4,
    )


def test_names_are_taken_in_any_case() -> None:
    assert read_options({"URL": URL, "minpartitions": "2", "MaxPerSecond": "1.5"}).max_per_second == 1.5


def test_what_is_sparks_own_is_passed_over() -> None:
    assert read_options(given(checkpointLocation="/x", queryName="q"), role="writeStream").url == URL


@pytest.mark.parametrize("name", names())
def test_a_slip_in_a_name_gets_the_nearest_one_suggested(name: str) -> None:
    slip = name + "x"

    with pytest.raises(OptionError, match=rf"did you mean {name}\?"):
        read_options(given(**{slip: "1"}))


def test_a_name_like_no_other_gets_all_of_them() -> None:
    with pytest.raises(OptionError, match="url, urlEnv, table"):
        read_options(given(zzzzzzz="1"))


def test_a_path_is_told_from_a_slip() -> None:
    """Spark makes an option of what `save` and `load` are given."""
    with pytest.raises(
        OptionError, match="a store is at its url; `save` and `load` are called without a path"
    ):
        read_options(given(path="/data"))


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"table": "job"}, "table"),
        ({"tenants": "a,,b"}, "tenants"),
        ({"tenant": ""}, "tenant"),
        ({"queue": "a/b"}, "queue"),
        ({"states": "dead,living"}, "states"),
        ({"tasks": "no task"}, "tasks"),
        ({"since": "yesterday"}, "since"),
        ({"until": "1700000000"}, "until"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"minPartitions": "two"}, "minPartitions"),
        ({"minPartitions": "٣"}, "minPartitions"),
        ({"minPartitions": "99999999999"}, "minPartitions"),
        ({"minPartitions": "9" * 5_000}, "minPartitions"),
        ({"columns": "id,,state"}, "columns"),
        ({"urlEnv": "OTHER"}, "url"),
        ({"tenant": "a", "tenants": "b"}, "tenants"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_is_wanted(raw: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        read_options(given(**raw))

    assert caught.value.field == field
    assert "wanted" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "role", "field"),
    [
        ({"maxEventsPerTrigger": "5", "table": "events"}, "read", "maxEventsPerTrigger"),
        ({"maxEventsPerTrigger": "5"}, "readStream", "maxEventsPerTrigger"),
        ({"states": "dead", "table": "dlq"}, "read", "states"),
        ({"states": "dead", "table": "events"}, "read", "states"),
        ({"keyColumns": "id"}, "read", "keyColumns"),
        ({"columns": "id"}, "write", "columns"),
        ({"chunk": "1001"}, "write", "chunk"),
        ({"since": "2026-01-01", "table": "events"}, "readStream", "since"),
    ],
)
def test_an_option_of_another_role_or_table_is_refused(raw: dict[str, str], role: Any, field: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(given(**raw), role=role)

    assert caught.value.field == field


def test_a_store_has_to_be_named() -> None:
    with pytest.raises(OptionError, match="url: found None"):
        read_options({})


@pytest.mark.parametrize("url", ["s3cret", "mysql://me:s3cret@host/db", "redis:/me:s3cret@host"])
def test_a_url_of_no_store_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_options({"url": url})

    assert "s3cret" not in str(caught.value)


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(OptionError, match="other processes"):
        read_options({"url": "memory://"})


def test_the_url_can_stand_in_the_environment_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    options = read_options({"urlEnv": "JOBS_URL"})
    with pytest.raises(ConfigError, match="JOBS_URL is not set"):
        _ = options.store_url
    monkeypatch.setenv("JOBS_URL", URL)

    assert pickle.loads(pickle.dumps(options)).store_url == URL
    monkeypatch.setenv("JOBS_URL", "memory://")
    with pytest.raises(OptionError, match=r"urlEnv \(JOBS_URL\)"):
        _ = options.store_url


def test_options_are_shown_without_the_url() -> None:
    options = read_options(given(queue="mail"))

    assert repr(options) == "SourceOptions(queues=('mail',))"
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_name_that_cannot_be_is_an_error_of_its_own_kind() -> None:
    with pytest.raises(InvalidNameError):
        read_options(given(queue="{mail}"))
