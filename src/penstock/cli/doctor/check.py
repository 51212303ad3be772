"""The result of one check of `penstock doctor`."""

import msgspec


class Check(msgspec.Struct, omit_defaults=True):
    """What was checked, what was seen, and the faults that were found."""

    name: str
    seen: str
    queue: str | None = None
    findings: list[str] = []
