"""The OpenAPI document is whole: every route, every model, and examples that are what they say."""

from typing import Any

import msgspec
import pytest

from penstock.service.examples import EXAMPLES
from penstock.service.openapi import document
from penstock.service.routes import ROUTES
from penstock.service.routing import Route
from tests.service.kit import asked

BODIES = [row for row in ROUTES if row.takes not in (None, bytes)]


async def test_the_document_is_served_to_everybody_and_names_every_route() -> None:
    async with asked() as client:
        served = (await client.get("/v1/openapi.json")).json()

    told = {(method.upper(), path) for path, each in served["paths"].items() for method in each}
    assert told == {(row.method, row.path) for row in ROUTES}
    assert served["openapi"] == "3.1.0"


@pytest.mark.parametrize("row", BODIES, ids=lambda row: row.name)
def test_every_body_has_an_example_that_can_be_used(row: Route) -> None:
    assert msgspec.json.decode(msgspec.json.encode(EXAMPLES[row.name]), type=row.takes)


def test_every_reference_leads_somewhere_and_every_operation_has_a_name_and_words() -> None:
    made = document(ROUTES)
    operations = [each for path in made["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]

    assert {ref.rpartition("/")[2] for ref in _refs(made)} <= made["components"]["schemas"].keys()
    assert len(set(names)) == len(names)
    assert [each["operationId"] for each in operations if not each["summary"]] == []


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for each in value.values() for ref in _refs(each)]
    return [ref for each in value for ref in _refs(each)] if isinstance(value, list) else []


def test_patterns_are_those_of_the_documents_own_dialect() -> None:
    assert rb"\\Z" not in msgspec.json.encode(document(ROUTES))
    assert document(ROUTES)["components"]["schemas"]["JobWish"]["properties"]["task"]["pattern"].endswith("$")
