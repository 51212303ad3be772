"""The dashboard and the alert rules: every metric and label that they name is one that is shown."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from penstock.core.job import QueueRef
from penstock.core.states import State
from penstock.metrics.families import FAMILIES
from penstock.stores.memory import MemoryStore
from tests.metrics.kit import Parsed
from tests.metrics.test_every_store import exposed
from tests.worker.kit import Desk

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "penstock.rules.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "penstock.json"
METRIC: Final = re.compile(r"\bpenstock_[a-z_]+\b")
SELECTED: Final = re.compile(r"(penstock_[a-z_]+)\{([^}]*)\}")
LABEL: Final = re.compile(r'([a-z_]+)(?:=|!=|=~|!~)"')
GROUPED: Final = re.compile(r"\b(?:by|on) \(([a-z_, ]*)\)")
OF_PROMETHEUS: Final = {"le", "instance", "job"}
WANTED: Final = {
    "PenstockWaitTooLong": "penstock_wait_seconds_bucket",
    "PenstockOldestJobTooOld": "penstock_oldest_pending_seconds",
    "PenstockDeadLettersGrow": "penstock_jobs",
    "PenstockNoLiveWorker": "penstock_workers",
    "PenstockReaderLags": "penstock_reader_lag_events",
}


def rules() -> list[dict[str, Any]]:
    """The alert rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions(value: Any) -> Iterator[str]:
    """Every query of the dashboard."""
    if isinstance(value, dict):
        yield from (each for key, each in value.items() if key in ("expr", "definition"))
        for each in value.values():
            yield from expressions(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions(each)


def all_expressions() -> list[str]:
    """Of both files."""
    return [rule["expr"] for rule in rules()] + list(expressions(json.loads(DASHBOARD.read_text())))


async def test_every_metric_that_is_named_is_in_the_exposition_of_a_worker(queue: QueueRef) -> None:
    store = MemoryStore()
    metrics, exposition = exposed(store, queue)
    desk = Desk(queue, store)

    async def some() -> None: ...

    await desk.enqueue("some")
    await store.readers.register_reader(queue, "audit", 0)
    await store.moves.claim(queue, worker="gone", limit=1, lease_ms=1_000)
    await store.clock.advance_clock(2_000)
    await desk.enqueue("some")
    await desk.burst(some, observer=metrics)
    shown = {each.name for each in Parsed(await exposition.text()).samples}
    named = {name for text in all_expressions() for name in METRIC.findall(text)}

    assert len(named) > 15
    assert sorted(named - shown) == []


def test_every_label_that_is_selected_or_grouped_by_is_one_of_the_metric() -> None:
    wrong = []
    for text in all_expressions():
        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}
        known = {label for name in names for label in FAMILIES[name].labels} | OF_PROMETHEUS
        grouped = {each.strip() for found in GROUPED.findall(text) for each in found.split(",")}
        for name, selectors in SELECTED.findall(text):
            own = set(FAMILIES[re.sub(r"_(bucket|sum|count)$", "", name)].labels) | OF_PROMETHEUS
            wrong += [(name, label) for label in LABEL.findall(selectors) if label not in own]
        wrong += [(text, label) for label in grouped - known]
    states = {each for text in all_expressions() for each in re.findall(r'state="([a-z]+)"', text)}

    assert wrong == []
    assert states <= set(map(str, State))


def test_there_is_a_rule_for_each_thing_that_wakes_somebody() -> None:
    found = {rule["alert"]: rule for rule in rules()}

    assert {name: metric in found[name]["expr"] for name, metric in WANTED.items()} == dict.fromkeys(
        WANTED, True
    )
    assert [
        name for name, rule in found.items() if not rule["annotations"].keys() >= {"summary", "description"}
    ] == []


def test_the_dashboard_has_a_place_for_each_panel() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels}

    assert len(places) == len(panels) == len({each["id"] for each in panels})
