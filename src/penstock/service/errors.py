"""Errors of the service, each with its HTTP status; `problems` gives errors of the queue theirs."""

from typing import ClassVar

from penstock.core.errors import PenstockError


class ServiceError(PenstockError):
    """Refused by the service. `slug` names the kind for programs, `title` for people."""

    status: ClassVar[int] = 400
    slug: ClassVar[str] = "refused"
    title: ClassVar[str] = "The request was refused"
    closes: ClassVar[bool] = False
    """True when what is left of the request is not read."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer."""
        return {}


class MalformedError(ServiceError):
    """The request is not what HTTP or JSON allow."""

    slug = "malformed"
    title = "The request cannot be read"


class UnauthenticatedError(ServiceError):
    """The request has no token, or one that is not accepted."""

    status = 401
    slug = "unauthenticated"
    title = "A valid token is needed"

    @property
    def headers(self) -> dict[str, str]:
        """The header that names the authentication scheme."""
        return {"www-authenticate": 'Bearer realm="penstock"'}


class ForbiddenError(ServiceError):
    """The token is accepted and does not allow the request."""

    status = 403
    slug = "forbidden"
    title = "The token does not allow this"


class NotFoundError(ServiceError):
    """There is nothing of that name for this tenant, whatever others have."""

    status = 404
    slug = "not-found"
    title = "Not found"


class WrongMethodError(ServiceError):
    """The path exists and has no such method."""

    status = 405
    slug = "wrong-method"
    title = "The method is not one of this path"

    def __init__(self, message: str, allowed: str) -> None:
        self.allowed = allowed
        super().__init__(message)

    @property
    def headers(self) -> dict[str, str]:
        """The header that names the methods of the path."""
        return {"allow": self.allowed}


class SlowRequestError(ServiceError):
    """The body took too long to arrive."""

    status = 408
    slug = "slow"
    title = "The request took too long to arrive"
    closes = True


class TooLargeError(ServiceError):
    """The body is larger than the service accepts."""

    status = 413
    slug = "too-large"
    title = "The request is too large"


class UnsupportedMediaError(ServiceError):
    """The body is in another format."""

    status = 415
    slug = "unsupported-media"
    title = "The body is in a format that is not taken here"


class BusyError(ServiceError):
    """The tenant uses more than its share at this time; the client may retry after `retry_after` seconds."""

    status = 429
    slug = "busy"
    title = "Too many requests"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)

    @property
    def headers(self) -> dict[str, str]:
        """The header that says when to retry, in whole seconds."""
        return {"retry-after": str(max(1, -int(-self.retry_after // 1)))}


class QuotaError(BusyError):
    """A quota of the tenant is used up."""

    slug = "quota"
    title = "A quota is used up"
    quota: str | None = None
    found: str | None = None
    wanted: str | None = None

    @classmethod
    def of(cls, quota: str, found: object, wanted: str, retry_after: float = 1.0) -> "QuotaError":
        """The error that says which quota it is, how much of it is used and what it allows."""
        error = cls(f"{quota}: found {found}, wanted {wanted}", retry_after)
        error.quota, error.found, error.wanted = quota, str(found), wanted
        return error
