"""An app of its own for each test, on each store that has flows."""

import secrets

import pytest

from penstock import Penstock
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import Part
from tests.conformance.having import kind_having
from tests.conformance.stores import Kind, Place

kind = kind_having(Part.FLOWS)


@pytest.fixture
def unopened(kind: Kind, where: Place) -> Store:
    """A store that is not open yet."""
    return kind.connect(kind.address(where))


@pytest.fixture
def app(unopened: Store) -> Penstock:
    """An app with a tenant of its own."""
    return Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")
