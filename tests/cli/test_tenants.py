"""`tenants list|show|quota|audit`."""

from penstock.core.job import QueueRef
from penstock.service.tenants.usage import Usage
from penstock.stores.protocol import Store
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import Shell
from tests.conformance.having import served

LENGTH = {"queue_length": 100, "schedules": 1_000}


@served(Part.KEY_VALUE, only_shared=True)
def test_a_quota_is_set_shown_and_cleared(shell: Shell) -> None:
    assert shell("tenants", "quota", "acme", "--jobs-per-second", "2.5", "--streams", "3") == 0, shell.err
    shell.json("tenants", "quota", "acme", "--streams", "4")
    shell.json("tenants", "quota", "--default", "--queue-length", "100")

    assert shell.json("tenants", "quota", "acme")["quota"] == {"jobs_per_second": 2.5, "streams": 4}
    assert shell.json("tenants", "show", "acme")["quota"] == {
        "jobs_per_second": 2.5,
        "queue_length": 100,
        "queues": 1_000,
        "schedules": 1_000,
        "streams": 4,
    }
    assert shell.json("tenants", "quota", "acme", "--clear", "--schedules", "1")["quota"] == {"schedules": 1}
    assert shell.json("tenants", "quota", "acme", "--clear")["quota"] == {}
    assert shell.json("tenants", "show", "acme")["quota"] == {**LENGTH, "queues": 1_000}
    shell.json("tenants", "quota", "acme", "--queues", "7")
    assert shell.json("tenants", "show", "acme")["quota"] == {**LENGTH, "queues": 7}
    acts = shell.json_lines("tenants", "audit")
    assert [(act["what"], act["on"]) for act in acts][-1] == ("quota.set", "acme")
    assert len(acts) == 6


def test_tenants_with_queues_or_quotas_are_listed(shell: Shell) -> None:
    shell.enqueue("a", queue=QueueRef("globex", "mail"))
    shell.json("tenants", "quota", "acme", "--streams", "1")

    assert shell.json_lines("tenants", "list") == [
        {"tenant": "acme", "queues": 0, "quota": {"streams": 1}},
        {"tenant": "globex", "queues": 1},
    ]
    assert shell("tenants", "list") == 0
    assert "streams 1" in shell.out


def test_what_a_tenant_has_and_used_is_shown(shell: Shell) -> None:
    shell.enqueue("a", "b", queue=QueueRef("acme", "mail"))

    async def use(store: Store) -> None:
        usage = Usage(store)
        usage.note("acme", jobs=17, refused=4)
        await usage.flush()

    shell.store(use)
    shown = shell.json("tenants", "show", "acme")

    assert (shown["queues"], shown["waiting"], shown["schedules"]) == (1, 2, 0)
    assert [(day["jobs"], day["refused"]) for day in shown["usage"]] == [(17, 4)]
    assert shell("tenants", "show", "acme") == 0
    assert "with 2 waiting jobs" in shell.out
    assert "17" in shell.out


def test_what_cannot_be_is_said_in_a_line(shell: Shell) -> None:
    shell.enqueue("a")
    for arguments, said in {
        ("quota",): "NAME",
        ("quota", "acme", "--default"): "NAME",
        ("quota", "a/b", "--streams", "1"): "tenant",
        ("quota", "acme", "--streams", "-1"): "streams",
        ("quota", "acme", "--queues", "-1"): "queues",
        ("quota", "acme", "--jobs-per-second", "0"): "jobs_per_second",
        ("show", "a/b"): "NAME",
        ("audit", "a/b"): "tenant",
    }.items():
        assert shell("tenants", *arguments) == 2
        assert said in shell.err
        assert shell.err.count("\n") == 1
