"""The holder of an accepted token."""

import msgspec

from penstock.core.names import check_name
from penstock.service.auth.scopes import ALL, Scopes
from penstock.service.errors import ForbiddenError
from penstock.stores.values import EVERYONE


class Bearer(msgspec.Struct, frozen=True):
    """A principal of one tenant, or an operator, whose `tenant` is `*` until it acts for one tenant."""

    tenant: str
    subject: str
    scopes: Scopes
    tenants: tuple[str, ...] = ()

    def may(self, verb: str, queue: str | None = None) -> bool:
        """True when the verb is allowed in this queue; without a queue, in some queue; `*` stands for all."""
        return self.scopes.allow(verb, queue)

    def acting_for(self, tenant: str) -> "Bearer":
        """The principal restricted to one of its tenants; ForbiddenError for any other tenant."""
        is_known = tenant in self.tenants or ALL in self.tenants if self.tenants else tenant == self.tenant
        if not is_known or tenant == EVERYONE:
            raise ForbiddenError("the token is not for this tenant")
        return Bearer(check_name("tenant", tenant), self.subject, self.scopes)
