"""How much a claim does beside leasing jobs, within bounds that a user can set."""

from typing import Final

import msgspec

from penstock.core.errors import OptionError
from penstock.core.limits import MOST_PER_CALL
from penstock.stores.bounds import CLAIM_SCAN, PROMOTE_LIMIT, RECOVER_LIMIT


class ClaimLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one claim. Upkeep promotes and recovers in batches of the same sizes.

    `claim_scan` bounds the entries of jobs that are gone which a claim on Redis passes over. The claims of
    other stores find no such entries.
    """

    claim_scan: int = CLAIM_SCAN
    promote_limit: int = PROMOTE_LIMIT
    recover_limit: int = RECOVER_LIMIT


CLAIM_LIMITS: Final = ClaimLimits()


def checked_claim_limits(
    *,
    claim_scan: int = CLAIM_SCAN,
    promote_limit: int = PROMOTE_LIMIT,
    recover_limit: int = RECOVER_LIMIT,
) -> ClaimLimits:
    """The limits; OptionError names the first one that is out of its bounds."""
    limits = ClaimLimits(claim_scan=claim_scan, promote_limit=promote_limit, recover_limit=recover_limit)
    for field, found in msgspec.structs.asdict(limits).items():
        if type(found) is not int or not 1 <= found <= MOST_PER_CALL:
            raise OptionError(field, found, f"a whole number from 1 to {MOST_PER_CALL}")
    return limits
