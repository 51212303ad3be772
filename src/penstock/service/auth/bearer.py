"""Whoever shows a token that was accepted."""

import msgspec

from penstock.core.names import check_name
from penstock.service.auth.scopes import ALL, Scopes
from penstock.service.errors import ForbiddenError
from penstock.stores.values import EVERYONE


class Bearer(msgspec.Struct, frozen=True):
    """One tenant's, or an operator with a list of tenants, whose `tenant` is `*` until it acts for one."""

    tenant: str
    subject: str
    scopes: Scopes
    tenants: tuple[str, ...] = ()

    def may(self, verb: str, queue: str | None = None) -> bool:
        """True when it is allowed in this queue; without one, in some; `*` asks for all of them."""
        return self.scopes.allow(verb, queue)

    def acting_for(self, tenant: str) -> "Bearer":
        """The same for one of its tenants alone; ForbiddenError for any other."""
        is_known = tenant in self.tenants or ALL in self.tenants if self.tenants else tenant == self.tenant
        if not is_known or tenant == EVERYONE:
            raise ForbiddenError("the token is not for this tenant")
        return Bearer(check_name("tenant", tenant), self.subject, self.scopes)
