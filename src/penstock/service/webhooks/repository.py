"""Stores the webhooks of tenants as key-value entries."""

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.core.errors import ConfigError, OptionError, PenstockError
from penstock.core.names import check_name
from penstock.service.egress.egress import Egress
from penstock.service.sealing import SecretSealer, is_sealed
from penstock.service.webhooks.endpoint import Endpoint, Secret, check_note, check_queues, check_types
from penstock.service.webhooks.errors import SealedSecretError, WebhookNotFoundError
from penstock.service.webhooks.signing import check_secret, new_secret
from penstock.stores.bounds import ENTRY_LIMIT
from penstock.stores.protocol import Store
from penstock.stores.values import EVERYONE, KeyValueEntry

NAMESPACE: Final = "webhooks"
MOST: Final = 50
"""Webhooks of one tenant."""
OVERLAP: Final = 24 * 3600.0
"""Seconds that a secret goes on being used beside the one that replaced it."""
LONGEST_OVERLAP: Final = 30 * 24 * 3600.0
TRIES: Final = 20
"""How often a change is begun anew because someone else was faster."""
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Endpoint)


class SealedState(msgspec.Struct, frozen=True):
    """How many webhooks have their secrets in clear or sealed; ids of those that no key opens."""

    in_clear: int
    sealed: int
    unreadable: list[str]


class WebhookRepository:
    """Webhooks by tenant and id. Addresses that the egress would refuse are refused here.

    Secrets are written as the sealer seals them. Reading a webhook does not open them, so that it can be
    listed, paused and removed where the key is missing.
    """

    def __init__(self, store: Store, egress: Egress, sealer: SecretSealer | None = None) -> None:
        self._store = store
        self._egress = egress
        self._sealer = sealer or SecretSealer()

    async def add(
        self,
        tenant: str,
        url: object,
        *,
        types: Iterable[object] | None = None,
        queues: Iterable[object] | None = None,
        note: object = None,
        secret: object = None,
    ) -> Endpoint:
        """Add a webhook for jobs that end from now on."""
        if len(await self.all(tenant)) >= MOST:
            raise _too_many()
        said: dict[str, Any] = {} if types is None else {"types": check_types(types)}
        if queues is not None:
            said["queues"] = check_queues(queues)
        made = Endpoint(
            id=f"wh_{secrets.token_hex(8)}",
            url=self._checked_url(url),
            made_at=await self._store.clock.now(),
            secrets=(Secret(new_secret() if secret is None else check_secret("secret", secret)),),
            note=check_note("note", note),
            **said,
        )
        body = _ENCODER.encode(self._sealed(tenant, made))
        await self._store.key_value.put_entry(tenant, NAMESPACE, made.id, body, expected=0)
        # The tenant last: one that is listed and has no webhook yet would be taken off the list again.
        await self._store.key_value.put_entry(EVERYONE, NAMESPACE, tenant, b"{}")
        if len(await self.all(tenant)) > MOST:
            # Others were added at the same time; rather one too few than one too many.
            await self._store.key_value.delete_entry(tenant, NAMESPACE, made.id)
            raise _too_many()
        return made

    async def all(self, tenant: str) -> list[Endpoint]:
        """The webhooks of a tenant, by id."""
        entries = await self._store.key_value.list_entries(tenant, NAMESPACE, limit=2 * MOST)
        return [endpoint for each in entries if (endpoint := _read(each)) is not None]

    async def get(self, tenant: str, webhook: str) -> Endpoint:
        """A webhook; WebhookNotFoundError when the tenant has none of that id."""
        endpoint, _ = await self._found(tenant, webhook)
        return endpoint

    async def change(self, tenant: str, webhook: str, **said: Any) -> Endpoint:
        """Change what is named: `url`, `types`, `queues`, `note`; `paused` is the reason, None goes on."""
        checks: dict[str, Callable[[Any], object]] = {
            "url": self._checked_url,
            "types": check_types,
            "queues": check_queues,
            "note": partial(check_note, "note"),
            "paused": partial(check_note, "paused"),
        }
        checked: dict[str, Any] = {name: checks[name](value) for name, value in said.items()}
        return await self._changed(tenant, webhook, lambda was: replace(was, **checked))

    async def rotate(
        self, tenant: str, webhook: str, *, overlap: float = OVERLAP, secret: object = None
    ) -> Endpoint:
        """Sign with a new secret, and for `overlap` seconds with the one before too."""
        if isinstance(overlap, bool) or not 0 <= overlap <= LONGEST_OVERLAP:
            raise OptionError("overlap", overlap, f"seconds from 0 to {LONGEST_OVERLAP:.0f}")
        fresh = Secret(new_secret() if secret is None else check_secret("secret", secret))
        until = await self._store.clock.now() + round(overlap * 1000)

        def rotated(was: Endpoint) -> Endpoint:
            newest = was.secrets[0]
            if self._is_same(tenant, was, fresh):
                return replace(was, secrets=(fresh, *was.secrets[1:]))
            # Keep at most two secrets; a second rotation within the overlap drops the oldest.
            return replace(was, secrets=(fresh, replace(newest, until=until)))

        return await self._changed(tenant, webhook, rotated)

    async def remove(self, tenant: str, webhook: str) -> None:
        """Remove a webhook; its waiting deliveries will be cancelled."""
        if not await self._store.key_value.delete_entry(tenant, NAMESPACE, check_name("webhook", webhook)):
            raise _none(webhook)

    async def signing_keys(self, tenant: str, endpoint: Endpoint) -> list[str]:
        """The secrets that hold now, opened, newest first; SealedSecretError when one cannot be."""
        held = endpoint.keys(await self._store.clock.now())
        return [self._sealer.open(each, tenant, endpoint.id) for each in held]

    async def reseal(self, tenant: str) -> int:
        """Seal all secrets of a tenant with the first key; how many webhooks were written anew.

        SealedSecretError for one that cannot be opened: those before it are written.
        """
        if not self._sealer.has_key:
            raise ConfigError("secrets are sealed with a key, and there is none: set PENSTOCK_SECRET_KEY")
        written = 0
        for endpoint in await self.all(tenant):
            if not all(self._sealer.is_current(each.text) for each in endpoint.secrets):
                await self.signing_keys(tenant, endpoint)
                await self._changed(
                    tenant, endpoint.id, partial(_without_expired, now=await self._store.clock.now())
                )
                written += 1
        return written

    async def sealed_state(self, tenant: str) -> SealedState:
        """Whether the secrets of a tenant are sealed, and can be opened here."""
        in_clear, sealed = 0, 0
        unreadable: list[str] = []
        for endpoint in await self.all(tenant):
            if all(is_sealed(each.text) for each in endpoint.secrets):
                sealed += 1
            else:
                in_clear += 1
            try:
                await self.signing_keys(tenant, endpoint)
            except SealedSecretError:
                unreadable.append(endpoint.id)
        return SealedState(in_clear, sealed, unreadable)

    async def tenants(self) -> dict[str, int]:
        """Tenants that have webhooks, or had some not long ago, each with the version of its entry."""
        found: dict[str, int] = {}
        after = ""
        while page := await self._store.key_value.list_entries(EVERYONE, NAMESPACE, after=after):
            found |= {each.name: each.version for each in page}
            after = page[-1].name
            if len(page) < ENTRY_LIMIT:
                break
        return found

    async def forget(self, tenant: str, version: int) -> bool:
        """Remove the tenant from the list, unless a webhook was added since."""
        return await self._store.key_value.delete_entry(EVERYONE, NAMESPACE, tenant, expected=version)

    def _checked_url(self, url: object) -> str:
        self._egress.check("url", url)
        return str(url)

    async def _found(self, tenant: str, webhook: str) -> tuple[Endpoint, int]:
        kept = await self._store.key_value.get_entry(tenant, NAMESPACE, check_name("webhook", webhook))
        endpoint = None if kept is None else _read(kept)
        if kept is None or endpoint is None:
            raise _none(webhook)
        return endpoint, kept.version

    async def _changed(self, tenant: str, webhook: str, change: Callable[[Endpoint], Endpoint]) -> Endpoint:
        for _ in range(TRIES):
            was, version = await self._found(tenant, webhook)
            now = change(was)
            body = _ENCODER.encode(self._sealed(tenant, now))
            if await self._store.key_value.put_entry(tenant, NAMESPACE, webhook, body, expected=version):
                return now
        raise PenstockError(f"webhook {webhook} is being changed by others; nothing was changed here")

    def _sealed(self, tenant: str, endpoint: Endpoint) -> Endpoint:
        """The webhook as it is written: what can be sealed with the first key is."""
        made = [
            replace(each, text=self._resealed(each.text, tenant, endpoint.id)) for each in endpoint.secrets
        ]
        return replace(endpoint, secrets=tuple(made))

    def _resealed(self, text: str, *about: str) -> str:
        if self._sealer.is_current(text):
            return text
        try:
            return self._sealer.seal(self._sealer.open(text, *about), *about)
        except SealedSecretError:
            # It stays as it is for a service that has the key: a webhook can be paused or removed without.
            return text

    def _is_same(self, tenant: str, was: Endpoint, fresh: Secret) -> bool:
        try:
            return self._sealer.open(was.secrets[0].text, tenant, was.id) == fresh.text
        except SealedSecretError:
            return False


def _without_expired(endpoint: Endpoint, *, now: int) -> Endpoint:
    held = [each for each in endpoint.secrets if each.until is None or now < each.until]
    return replace(endpoint, secrets=tuple(held))


def _read(kept: KeyValueEntry) -> Endpoint | None:
    """The webhook; None for an entry of foreign content."""
    try:
        return _DECODER.decode(kept.body)
    except msgspec.DecodeError:
        return None


def _too_many() -> OptionError:
    return OptionError("webhooks", f"{MOST} of them", f"at most {MOST} for a tenant: remove one")


def _none(webhook: str) -> WebhookNotFoundError:
    return WebhookNotFoundError(f"no webhook {webhook!r}")
