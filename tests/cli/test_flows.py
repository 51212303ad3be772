"""`flows`: a job with everything it waits for; and what `jobs show` says of families, kinds and schedules."""

from penstock.core.flows import ChildPolicy, JobRef
from penstock.core.job import NewJob, QueueRef
from penstock.core.unique import Unique, UniqueRule
from penstock.stores.protocol import Store
from penstock.stores.values import Spawn
from penstock.testing.conformance.parts import Part
from tests.cli.conftest import MAIL, Shell
from tests.conformance.having import shared

WEB = QueueRef("default", "web")

pytestmark = shared(Part.FLOWS)


def new(job: str, *awaits: JobRef, parents: tuple[str, ...] = (), **more: object) -> NewJob:
    refs = tuple(JobRef("mail", parent) for parent in parents)
    return NewJob(id=job, nonce=job, task="send", payload=b"{}", awaits=awaits, parents=refs, **more)  # type: ignore[arg-type]


def tell_a_flow(shell: Shell) -> None:
    """`top` waits for `left` and `right`, which both wait for `base`, and for `far` in another queue."""

    async def work(store: Store) -> None:
        base = JobRef("mail", "base")
        kin = [JobRef("mail", "left"), JobRef("mail", "right"), JobRef("web", "far")]
        jobs = [
            new("top", *kin, child_policy=ChildPolicy.WAIT),
            new("left", base, parents=("top",)),
            new("right", base, parents=("top",)),
            new("base", parents=("left", "right")),
        ]
        far = new("far", parents=("top",))
        await store.moves.enqueue(MAIL, jobs, [Spawn("web", far)])
        await store.moves.enqueue(WEB, [far])
        await store.flows.delete_relay_entries(
            MAIL, [relay.number for relay in await store.flows.list_relay_entries(MAIL)]
        )

    shell.store(work)


def test_a_flow_is_a_tree_and_shared_children_stand_in_it_once(shell: Shell) -> None:
    tell_a_flow(shell)

    assert shell("flows", "show", "top") == 0

    top, *rest = shell.out.splitlines()
    assert top.startswith("mail/top  send  blocked  waiting for ")
    assert rest[0].startswith("├── mail/left  send  blocked")
    assert rest[1].startswith("│   └── mail/base  send  pending")
    assert rest[2].startswith("├── mail/right")
    assert rest[3].endswith("(see above)")
    assert rest[4].startswith("└── web/far  send  pending")
    assert rest[5] == "5 jobs: 3 blocked, 2 pending"


def test_a_flow_for_programs(shell: Shell) -> None:
    tell_a_flow(shell)

    document = shell.json("flows", "show", "mail/top")

    left, right, far = document["children"]
    assert (left["id"], left["state"], left["counts"]) == ("left", "blocked", False)
    assert left["children"][0]["id"] == "base"
    (again,) = right["children"]
    assert (again["id"], again["repeated"], "children" in again) == ("base", True, False)
    assert (far["queue"], far["task"], far["children"]) == ("web", "send", [])


def test_from_a_child_the_tree_goes_down_and_names_its_parents(shell: Shell) -> None:
    tell_a_flow(shell)

    assert shell("flows", "show", "base") == 0
    assert "part of: mail/left, mail/right" in shell.out
    assert shell.out.endswith("1 job: 1 pending\n")


def test_many_children_are_summed_up(shell: Shell) -> None:
    names = [f"c{number:02}" for number in range(25)]

    async def work(store: Store) -> None:
        jobs = [new("top", *(JobRef("mail", name) for name in names))]
        await store.moves.enqueue(MAIL, jobs + [new(name, parents=("top",)) for name in names])

    shell.store(work)

    assert shell("flows", "show", "top") == 0
    assert "… and 5 more: 5 pending (--all shows them)" in shell.out
    assert shell("flows", "show", "top", "--all") == 0
    assert "c24" in shell.out
    assert "more" not in shell.out


def test_a_child_that_is_gone_is_still_named(shell: Shell) -> None:
    tell_a_flow(shell)
    shell.store(lambda store: store.moves.delete(WEB, ["far"]))

    assert shell("flows", "show", "top") == 0
    assert "web/far  not there" in shell.out


def test_cancel_takes_back_the_whole_flow(shell: Shell) -> None:
    tell_a_flow(shell)
    shell.claim(queue=WEB)

    document = shell.json("flows", "cancel", "top")

    assert (document["cancelled"], document["asked_to_stop"], document["not_there"]) == (4, 1, 0)
    states = {job["id"]: job["state"] for job in shell.json_lines("jobs", "list")}
    assert states == dict.fromkeys(["top", "left", "right", "base"], "cancelled") | {"far": "active"}
    assert shell("flows", "cancel", "top") == 0
    assert shell.out == "0 of 5 cancelled, 1 asked to stop\n"


def test_show_names_parents_and_children(shell: Shell) -> None:
    tell_a_flow(shell)

    top = shell.json("jobs", "show", "top")
    assert [child["id"] for child in top["children"]] == ["left", "right", "far"]
    assert top["child_policy"] == "wait"
    assert shell.json("jobs", "show", "base")["parents"] == ["mail/left", "mail/right"]
    assert shell("jobs", "show", "top") == 0
    assert "3, 3 left: mail/left, mail/right, web/far" in shell.out


def test_show_names_the_kind_and_the_schedule(shell: Shell) -> None:
    kind = Unique("order-7", UniqueRule.THROTTLE, 60_000)
    shell.enqueue("a", unique=kind, schedule="nightly", instant=1_767_225_600_000)

    document = shell.json("jobs", "show", "a")

    assert document["unique"] == {"key": "order-7", "rule": "throttle", "window_s": 60.0}
    assert (document["schedule"], document["instant"]) == ("nightly", "2026-01-01T00:00:00.000Z")
    assert shell("jobs", "show", "a") == 0
    assert "throttle for 1 min, as order-7" in shell.out
    assert "nightly, for " in shell.out
