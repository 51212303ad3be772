"""The registry: names are unique, near misses are named, and nothing is added once a worker runs."""

from typing import Any

import pytest

from penstock.core.errors import ConfigError, InvalidNameError, UnknownTaskError
from penstock.tasks.batch import BATCH_TASK
from penstock.tasks.registry import Registry
from penstock.tasks.task import Task
from tests.tasks import later


def task(name: str, function: Any = lambda: None) -> Task[..., ..., Any]:
    return Task(function, name=name, queue="q", sender=None)  # type: ignore[arg-type]


def test_a_task_is_found_by_its_name() -> None:
    registry = Registry()
    send = task("send")
    registry.add(send)

    assert registry.get("send") is send
    assert registry.require("send") is send
    assert registry.get("nope") is None
    assert registry.names() == ["send"]


def test_an_unknown_name_is_answered_with_those_that_come_near() -> None:
    registry = Registry()
    registry.add(task("send"))

    with pytest.raises(UnknownTaskError, match=r"no task is named 'sned': did you mean 'send'\?"):
        registry.require("sned")
    with pytest.raises(UnknownTaskError, match="is its module imported"):
        registry.require("report")


def test_two_tasks_cannot_have_one_name() -> None:
    registry = Registry()
    registry.add(task("send"))

    with pytest.raises(ConfigError, match="two tasks are named 'send'"):
        registry.add(task("send"))


def test_a_frozen_registry_takes_no_task() -> None:
    registry = Registry()
    registry.freeze()

    with pytest.raises(ConfigError, match="too late"):
        registry.add(task("send"))


def test_freezing_finds_types_that_cannot_be_resolved() -> None:
    registry = Registry()
    registry.add(task("broken", later.broken))

    with pytest.raises(ConfigError, match="Nowhere"):
        registry.freeze()


@pytest.mark.parametrize("name", ["", "a}b", "a\0b", "a b", "a/b", ".a", "x" * 129, "<lambda>"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        task(name)


def test_the_end_of_a_batch_is_known_everywhere_and_its_name_is_taken() -> None:
    registry = Registry()

    assert registry.get(BATCH_TASK) is not None
    assert registry.names() == []
    with pytest.raises(ConfigError, match="is taken"):
        registry.add(task(BATCH_TASK))
