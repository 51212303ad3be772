"""An app of its own for each test, on each store that has flows."""

import secrets
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.stores.memory import MemoryStore
from penstock.stores.open import open_store
from penstock.stores.protocol import Store


@pytest.fixture(params=["memory", "sqlite"])
def unopened(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that is not open yet."""
    return MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def app(unopened: Store) -> Penstock:
    """An app with a tenant of its own."""
    return Penstock(store=unopened, tenant=f"t{secrets.token_hex(4)}")
