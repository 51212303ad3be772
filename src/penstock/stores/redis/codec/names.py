"""The names in capitals that the scripts use, and what stands in their places when the server gets them.

They are the fields of everything that is packed, the fields of a queue's metadata, its keys, and the numbers
that the core decides. So a file of Lua has neither positions nor numbers of a policy.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from penstock.core.clocks import FENCE_LIMIT, STEP_MS, STEP_US
from penstock.core.events import EVENT_VERSION
from penstock.core.flows import JobRef
from penstock.core.limits import STRIDE, Rate
from penstock.core.unique import Unique
from penstock.stores.redis.codec.events import EVENT_FIELDS
from penstock.stores.redis.codec.flows import CHILD_FIELDS
from penstock.stores.redis.codec.jobs import RECORD_FIELDS
from penstock.stores.redis.codec.lanes import LANE_FIELDS
from penstock.stores.redis.codec.requests import ITEM_FIELDS, TEMPLATE_FIELDS
from penstock.stores.redis.codec.runs import CHECKSUM_LENGTH, RUN_LENGTH
from penstock.stores.redis.codec.schedules import SCHEDULE_FIELDS
from penstock.stores.redis.keys import KEY_NAMES, OWN_KEYS

META_FIELDS: Final = (
    "number",
    "seq",
    "last_us",
    "offset_ms",
    "paused_at",
    "paused_until",
    "declared",
    "arrival_us",
    "virtual",
    "joined",
    "lanes",
    "relayed",
    "refreshing",
    "step_at",
    "step_back_ms",
)
"""The fields of a queue's metadata that scripts read, in the order in which they read them."""
_COMMAND_VALUES: Final = 4_000
"""What one command takes: even, so that no pair is torn apart, and fewer than Lua's stack holds."""


def _positions(fields: Iterable[str], prefix: str = "") -> dict[str, str]:
    return {prefix + name.upper(): str(at) for at, name in enumerate(fields, start=1)}


NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_positions(RECORD_FIELDS),
        **_positions(LANE_FIELDS, "LANE_"),
        **_positions(EVENT_FIELDS, "EVENT_"),
        **_positions(META_FIELDS, "META_"),
        **_positions(CHILD_FIELDS, "CHILD_"),
        **_positions(SCHEDULE_FIELDS, "SCHEDULE_"),
        **_positions(TEMPLATE_FIELDS, "TEMPLATE_"),
        **_positions(ITEM_FIELDS, "ITEM_"),
        **_positions(Unique.__struct_fields__, "UNIQUE_"),
        **_positions(JobRef.__struct_fields__, "REF_"),
        **{name.upper(): f"KEYS[{at}]" for at, name in enumerate(KEY_NAMES, start=1)},
        "META_FIELDS": ", ".join(f"'{name}'" for name in META_FIELDS),
        "OWN_KEYS": str(OWN_KEYS),
        "LAST_OF_EVENT": str(len(EVENT_FIELDS)),
        "RUN_LENGTH": str(RUN_LENGTH),
        "CHECKSUM_LENGTH": str(CHECKSUM_LENGTH),
        "ITEM_WIDTH": str(len(ITEM_FIELDS)),
        "THIS_EVENT_VERSION": str(EVENT_VERSION),
        "RATE_PER_MS": str(Rate(count=1).per_ms),
        "CLOCK_STEP_MS": str(STEP_MS),
        "CLOCK_STEP_US": str(STEP_US),
        "HIGHEST_FENCE": str(FENCE_LIMIT - 1),
        "LANE_STRIDE": str(STRIDE),
        "COMMAND_VALUES": str(_COMMAND_VALUES),
    }
)
"""What is put in the place of each name."""
