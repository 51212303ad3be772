"""Why a job waits for limits, keys or other jobs, as sentences."""

from penstock.explain.formatting import local, rate_hold_text, span
from penstock.explain.job_facts import MAX_CHILDREN, JobFacts


def limit_reasons(facts: JobFacts) -> list[str]:
    """The limits that keep a pending job from being claimed although workers may be free."""
    out: list[str] = []
    declared, key, queue = facts.declaration, facts.key, facts.job.queue
    if declared is None:
        return out
    if key is not None:
        if key.active >= key.limit:
            out.append(f"key {key.key!r} is at its limit: {key.active} of {key.limit} are running")
        if (held := rate_hold_text(key, facts.now)) is not None:
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


def worker_reasons(facts: JobFacts) -> list[str]:
    """Whether a live worker could execute the job, as far as workers are registered."""
    job = facts.job
    if facts.serving is None:
        return []
    if not facts.serving:
        # Clients that claim over HTTP are not registered as workers.
        return [] if facts.leases else [f"no live worker serves queue {job.queue!r}"]
    if any(worker.knows(job.task) for worker in facts.serving):
        return []
    return [f"no live worker of queue {job.queue!r} knows task {job.task!r}"]


def child_reasons(facts: JobFacts) -> list[str]:
    """The children that a blocked job waits for, and those of them that need a retry or a cancel."""
    left, many = facts.left, len(facts.children)
    if not many:
        return ["waiting: it is blocked until the jobs it depends on have ended"]
    if not left:
        relayed = "it becomes claimable once the end of the last one is relayed to it"
        return [f"waiting: it was blocked by {many} children, which have all ended; {relayed}"]
    out = [f"waiting: blocked, {len(left)} of {many} children {'is' if len(left) == 1 else 'are'} left"]
    ended = [child for child in left if child.state is not None]
    looked_at = list(zip(left[:MAX_CHILDREN], facts.states, strict=False))
    live = [f"{child.ref} ({state or 'does not exist'})" for child, state in looked_at if child.state is None]
    removed = {child.ref for child, state in looked_at if state is None}
    if live:
        rest = len(left) - len(ended) - len(live)
        out.append(f"it waits for {', '.join(live)}" + (f" and {rest} more" if rest > 0 else ""))
    out += [
        f"{child.ref} ended as {child.state}, was removed and cannot be redriven: "
        f"penstock flows cancel {facts.job.queue}/{facts.job.id}"
        if child.ref in removed
        else f"{child.ref} ended as {child.state} and holds it up: penstock jobs retry {child.ref}"
        for child in ended[:MAX_CHILDREN]
    ]
    if (
        facts.states
        and len(left) <= MAX_CHILDREN
        and not ended
        and all(state is None for state in facts.states)
    ):
        out.append(f"none of them exists: deleted, or not enqueued yet, since {local(facts.job.enqueued_at)}")
    return out
