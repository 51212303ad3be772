"""The OpenAPI document is whole: every route, every model, and examples that are what they say."""

import re
from typing import Any, Final

import msgspec
import pytest

from penstock.service.examples import EXAMPLES
from penstock.service.openapi import document
from penstock.service.routes import ROUTES
from penstock.service.routing import Route
from tests.service.kit import asked

KINDS: Final = (
    # What a request sends.
    "Create", "CreateInQueue", "Declaration", "Heartbeat", "Options", "Replace", "Report", "Request",
    "Selection", "Settlement", "Update", "Query",
    # What a response shows.
    "Cancelled", "Created", "Explanation", "List", "Outcome", "Page", "Result", "View",
)  # fmt: skip
NOUNS: Final = {"Count", "Fault", "Health", "JobRef", "Problem", "UpcomingRuns"}
"""Models that are a whole thing: their name needs no kind."""
CORE: Final = {
    "CatchUp",
    "ChildPolicy",
    "Direction",
    "Mode",
    "Move",
    "Percentiles",
    "State",
    "Stats",
    "UniqueRule",
}
"""Values of the core, by its own names."""
OLD_WORDS: Final = re.compile(
    r"\b(wish(es)?|made or not|letters?|bells?|doors?|shel(f|ves)|courier|parcel|post office|belfry|"
    r"patience|appetite|whoever|as asked)\b",
    re.IGNORECASE,
)
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


def test_the_names_of_models_follow_one_pattern() -> None:
    """A noun in front, and at the end what kind of model it is."""
    names = document(ROUTES)["components"]["schemas"].keys() - NOUNS - CORE

    assert [name for name in sorted(names) if not _is_noun_and_kind(name)] == []


def test_the_document_has_none_of_the_words_that_only_its_authors_knew() -> None:
    made = document(ROUTES)
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name) for name in made["components"]["schemas"]]
    prose = " ".join([*names, *_prose(made)]).replace("_", " ")

    assert [found[0] for found in OLD_WORDS.finditer(re.sub("(?i)dead letters?", "", prose))] == []


def _is_noun_and_kind(name: str) -> bool:
    kind = next((each for each in sorted(KINDS, key=len, reverse=True) if name.endswith(each)), None)
    return kind is not None and re.fullmatch(r"([A-Z][a-z]+)+", name.removesuffix(kind)) is not None


def _prose(value: Any) -> list[str]:
    if isinstance(value, dict):
        words = (value.get(key) for key in ("summary", "description", "operationId"))
        own = [text for text in words if isinstance(text, str)]
        return own + [text for each in value.values() for text in _prose(each)]
    return [text for each in value for text in _prose(each)] if isinstance(value, list) else []


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for each in value.values() for ref in _refs(each)]
    return [ref for each in value for ref in _refs(each)] if isinstance(value, list) else []


def test_patterns_are_those_of_the_documents_own_dialect() -> None:
    assert rb"\\Z" not in msgspec.json.encode(document(ROUTES))
    assert document(ROUTES)["components"]["schemas"]["JobCreate"]["properties"]["task"]["pattern"].endswith(
        "$"
    )
