"""Records carry fields, as JSON and for eyes, and no payload unless asked."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from penstock.core.job import Claimed, Options, QueueRef
from penstock.telemetry.logs import about_job, about_worker, configure


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    logger = logging.getLogger("penstock")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.level, logger.propagate, logger.handlers = before


def _job() -> Claimed:
    return Claimed(
        id="j1",
        task="send",
        payload=b'{"secret":1}',
        priority=5,
        options=Options(),
        enqueued_at=0,
        drive=1,
        delivery=2,
        attempts=0,
        token="t",
        fence=1,
        deadline=1,
    )


def _written(*, json: bool, show_payloads: bool = False, tenant: str = "default") -> str:
    stream = io.StringIO()
    configure(json=json, level="debug", show_payloads=show_payloads, stream=stream)
    about = about_worker(QueueRef(tenant, "mail"), "w1")
    logging.getLogger("penstock.worker").info(
        "done with %s", "it", extra=about_job(about, _job(), error="E: x")
    )
    return stream.getvalue()


def test_a_json_line_has_the_fields_of_the_job() -> None:
    (line,) = _written(json=True).splitlines()
    record = json.loads(line)

    assert record.pop("at").endswith("Z")
    assert record == {
        "level": "info",
        "logger": "penstock.worker",
        "message": "done with it",
        "tenant": "default",
        "queue": "mail",
        "job": "j1",
        "task": "send",
        "attempt": 1,
        "delivery": 2,
        "worker": "w1",
        "error": "E: x",
    }


def test_the_line_for_eyes_has_them_after_the_message() -> None:
    line = _written(json=False)

    assert 'done with it  queue=mail job=j1 task=send attempt=1 delivery=2 worker=w1 error="E: x"\n' in line


def test_another_tenant_is_named() -> None:
    assert "tenant=acme queue=mail" in _written(json=False, tenant="acme")


@pytest.mark.parametrize("json", [True, False])
def test_payloads_are_written_only_when_asked_for(json: bool) -> None:
    assert "secret" not in _written(json=json)
    assert "secret" in _written(json=json, show_payloads=True)


@pytest.mark.parametrize("json", [True, False])
def test_a_traceback_comes_with_the_record(json: bool) -> None:
    stream = io.StringIO()
    configure(json=json, stream=stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("penstock.worker").exception("failed")

    assert "ValueError: odd" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 1 or not json


def test_a_repeated_configure_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    configure(stream=second)
    logging.getLogger("penstock.worker").warning("once")

    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_records_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure(level="warning", stream=stream)
    logging.getLogger("penstock.worker").info("quiet")

    assert stream.getvalue() == ""
