"""Reasons for waiting that lie in limits, keys and other jobs, in words."""

from penstock.explain.facts import NAMED, Facts
from penstock.explain.words import held_text, local, span


def held_back(facts: Facts) -> list[str]:
    """Why a pending job is not claimed although workers may be free."""
    out: list[str] = []
    declared, key, queue = facts.declaration, facts.key, facts.job.queue
    if declared is None:
        return out
    if key is not None:
        if key.active >= key.limit:
            out.append(f"key {key.key!r} is at its limit: {key.active} of {key.limit} are running")
        if (held := held_text(key, facts.now)) is not None:
            rate = "" if declared.key_rate is None else f" of {declared.key_rate}"
            out.append(f"key {key.key!r} is held back by its rate{rate} until {held}")
    if declared.max_active is not None and facts.leases >= declared.max_active:
        out.append(
            f"queue {queue!r} is at its max_active: {facts.leases} of {declared.max_active} are running"
        )
    if declared.rate is not None and facts.token_at is not None:
        wait = f"the next job may start in {span(facts.token_at - facts.now)}"
        out.append(f"queue {queue!r} is held back by its rate of {declared.rate}: {wait}")
    return out


def blocked(facts: Facts) -> list[str]:
    """Which jobs a blocked one waits for, and which of them will not end by themselves."""
    left, many = facts.left, len(facts.children)
    if not many:
        return ["waiting: it is blocked until the jobs it depends on have ended"]
    if not left:
        told = "it becomes claimable once the word of the last one is carried over"
        return [f"waiting: it was blocked by {many} children, which have all ended; {told}"]
    out = [f"waiting: blocked, {len(left)} of {many} children {'is' if len(left) == 1 else 'are'} left"]
    ended = [child for child in left if child.state is not None]
    looked_at = list(zip(left[:NAMED], facts.states, strict=False))
    live = [f"{child.ref} ({state or 'not there'})" for child, state in looked_at if child.state is None]
    removed = {child.ref for child, state in looked_at if state is None}
    if live:
        rest = len(left) - len(ended) - len(live)
        out.append(f"it waits for {', '.join(live)}" + (f" and {rest} more" if rest > 0 else ""))
    out += [
        f"{child.ref} ended as {child.state}, was removed and cannot be redriven: "
        f"penstock flows cancel {facts.job.queue}/{facts.job.id}"
        if child.ref in removed
        else f"{child.ref} ended as {child.state} and holds it up: penstock jobs retry {child.ref}"
        for child in ended[:NAMED]
    ]
    if facts.states and len(left) <= NAMED and not ended and all(state is None for state in facts.states):
        out.append(f"none of them is there: deleted, or on their way since {local(facts.job.enqueued_at)}")
    return out
