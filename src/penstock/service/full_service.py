"""The service as `penstock serve` runs it: its parts over one store, and its duties."""

import asyncio
from pathlib import Path

from penstock.bloom.filters import Filters
from penstock.maintenance.loop import SWEEP
from penstock.service.app import Service
from penstock.service.auth.api_tokens import ApiTokens
from penstock.service.auth.authenticator import TokenAuthenticator, authenticator_of
from penstock.service.auth.development import DevelopmentKey
from penstock.service.auth.issuers import read_auth_file
from penstock.service.egress.egress import Egress
from penstock.service.egress.policy import EgressPolicy
from penstock.service.limits import Limits
from penstock.service.measuring import measured
from penstock.service.sealing import SecretSealer
from penstock.service.tenant_upkeep import TenantUpkeep
from penstock.service.tenants.audit import Audit
from penstock.service.tenants.quotas import StoredQuotas
from penstock.service.tenants.usage import Usage
from penstock.stores.protocol import Store


def full_service(
    store: Store,
    *,
    key: DevelopmentKey | None = None,
    auth_file: Path | None = None,
    egress: EgressPolicy | None = None,
    limits: Limits | None = None,
    sealer: SecretSealer | None = None,
    sweep: float = SWEEP,
    filters: Filters | None = None,
) -> Service:
    """Tokens, quotas and the audit log from the store; ConfigError for a file that cannot be used."""
    exposition = measured(store)
    issuers = None if auth_file is None else read_auth_file(auth_file)
    authenticator, usage = authenticator_of(issuers, ApiTokens(store), key), Usage(store)
    limits = limits or Limits()
    quotas = StoredQuotas(store, usage, streams=limits.streams_per_tenant)
    return Service(
        store,
        authenticator=authenticator,
        quotas=quotas,
        audit=Audit(store),
        limits=limits,
        egress=Egress(egress),
        sealer=sealer,
        duties=[usage, _AuthenticatorCloser(authenticator)],
        upkeep=TenantUpkeep(store, quotas, sweep=sweep),
        filters=filters,
        exposition=exposition,
    )


class _AuthenticatorCloser:
    """Closes the authenticator when the service ends."""

    def __init__(self, authenticator: TokenAuthenticator) -> None:
        self._authenticator = authenticator

    async def run(self) -> None:
        """Wait for the end."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._authenticator.close()
