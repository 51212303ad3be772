"""The audit names every fault of spoiled histories that a table can show, as the checker does."""

import re

import pytest
from pyspark.sql import SparkSession

from penstock.core.history import Rule
from penstock.spark.audit import COVERED
from tests.core.histories import told_history
from tests.core.keyed_history import told_keys
from tests.core.keyed_mutations import KEYED_MUTATIONS
from tests.core.mutations import MUTATIONS, Draft
from tests.docs.pages import ROOT
from tests.spark.audited import Case, Found, audit_all, covered

OUT_OF_ORDER = frozenset({"two_events_of_different_jobs_are_swapped", "two_events_of_one_job_are_swapped"})
"""Faults of where events stand. A table has no order but that of their numbers, in which these are sound."""
NAMES = sorted(name for name in MUTATIONS | KEYED_MUTATIONS if name != "nothing_is_read")


def draft_of(name: str) -> Draft:
    """The history that was spoiled in this way."""
    draft = Draft(told_history() if name in MUTATIONS else told_keys())
    (MUTATIONS | KEYED_MUTATIONS)[name][0](draft)
    return draft


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """One for each way to spoil a history."""
    drafts = {name: draft_of(name) for name in NAMES}
    return {name: Case(draft.events, draft.live, draft.limits) for name, draft in drafts.items()}


@pytest.fixture(scope="module")
def found(spark: SparkSession, cases: dict[str, Case]) -> dict[str, Found]:
    return dict(zip(cases, audit_all(spark, list(cases.values()))[1], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_audit_finds_that(name: str, found: dict[str, Found]) -> None:
    rules = (
        (MUTATIONS | KEYED_MUTATIONS)[name][1] & COVERED if name not in OUT_OF_ORDER else frozenset[Rule]()
    )

    assert {rule for rule, _, _ in found[name]} == rules


@pytest.mark.parametrize("name", NAMES)
def test_the_audit_and_the_checker_name_the_same_jobs_and_events_where(
    name: str, found: dict[str, Found], cases: dict[str, Case]
) -> None:
    assert found[name] == covered(cases[name].by_checker())


def test_every_rule_of_the_audit_is_broken_by_some_history(found: dict[str, Found]) -> None:
    broken = {rule for each in found.values() for rule, _, _ in each}

    assert broken == COVERED - {Rule.NOTHING_READ}


def test_every_rule_of_the_audit_is_on_its_page() -> None:
    _, _, audit = (ROOT / "docs" / "reference" / "spark.md").read_text("utf-8").partition("\n## Audit\n")
    table = audit.partition("\n\n`seq-gap`")[0].rpartition("| --- | --- |")[2]

    assert sorted(re.findall(r"`([a-z-]+)`", table)) == sorted(COVERED)
