"""No way out: each technique works bare, and none works confined, whoever runs it."""

import json
from functools import cache
from typing import Any

import pytest

from tests.sandbox.conftest import Run, Start
from tests.sandbox.crew import crews
from tests.sandbox.scene import TECHNIQUES
from tests.sandbox.stage import WORKED

# The first test of a crew waits for the whole battery.
pytestmark = pytest.mark.timeout(300)

REFUSALS = (
    "AssertionError",
    "BlockingIOError",
    "FileNotFoundError",
    "KeyError",
    "MemoryError",
    "OSError",
    "PermissionError",
    "ProcessLookupError",
    "CalledProcessError",
    "RuntimeError: can't start new thread",
    "ValueError: not allowed to raise maximum limit",
    "died -24",
    "died -31",
    "the victim lives",
)
"""How a wall is met; anything else, an import that fails for instance, would be a mistake of ours."""
DEATHS = ("KILLED: SIGSEGV", "KILLED: SIGSYS", "KILLED: SIGXCPU", "EXITED: 1")
"""How the process of a job may end as well: where a scene was, there is nothing in a fork server's child."""
LEAST = 90
"""Techniques that have to bite, for whichever crew: the others need rights or features that it has not."""

NOT_HERE = {
    "every crew": {
        "make_a_call_of_the_x32_kind": "most kernels have no x32 calls",
        "make_a_ping_socket": "a setting opens them to groups, and none may by default",
        "use_the_kernels_ciphers": "not in every kernel",
        "be_told_by_signals_of_what_others_read": "not in every kernel",
        "queue_calls_by_the_older_way": "not in every kernel",
        "make_a_set_of_rules": "not in every kernel",
        "change_the_flags_of_what_may_only_be_read": "not every file system has them",
    },
    "ordinary": dict.fromkeys(
        (
            "become_more_urgent",
            "change_the_root",
            "count_events_of_the_processor",
            "join_the_namespaces_of_the_supervisor",
            "load_a_program_into_the_kernel",
            "make_a_device",
            "make_a_packet_socket",
            "make_a_raw_socket",
            "open_by_handle",
            "read_the_log_of_the_kernel",
            "read_the_log_of_the_kernel_by_its_device",
            "take_hold_of_a_mount",
        ),
        "an ordinary user may not anyway",
    ),
    "contained": {
        "be_born_in_a_new_user_namespace": "the container refuses it",
        "be_born_there_by_the_newer_call": "the container refuses it",
        "enter_a_new_user_namespace": "the container refuses it",
        "make_a_call_of_the_32_bit_kind": "the container refuses it",
        "mount_in_a_new_user_namespace": "the container refuses it",
    },
    "not root": {"gain_rights_by_a_set_uid_program": "only root can put up the program"},
}
"""What may fail bare already, and why: such a technique proves nothing, and is not counted."""


WALLS = [
    ("ordinary", "has_filter", ["connect_to_a_socket_by_its_path", "leave_a_key", "make_a_file_set_uid"]),
    ("ordinary", "has_namespaces", ["see_that_a_file_exists"]),
    (
        "ordinary-contained",
        "has_filter",
        ["connect_by_multipath_tcp", "send_a_datagram", "change_a_mode_outside"],
    ),
    ("ordinary-contained", "landlock", ["read_a_file_outside", "delete_a_file_outside"]),
]
"""Who loses which wall, and what then works."""


@pytest.fixture(scope="module")
def shows(start: Start) -> Any:
    """What came of every technique, by crew; each is played once."""
    playing = {crew: start(crew, "tests.sandbox.stage") for crew in crews()}
    return cache(lambda crew: json.loads(playing[crew].result()))


@pytest.fixture(scope="module")
def weakened(start: Start) -> Any:
    """What came of the techniques that should work when a wall is missing."""
    playing = {
        (crew, wall): start(crew, "tests.sandbox.stage", wall, *names)
        for crew, wall, names in WALLS
        if crew in crews()
    }
    return lambda crew, wall: json.loads(playing[crew, wall].result())


def _excused(crew: str) -> dict[str, str]:
    found = NOT_HERE["every crew"] | NOT_HERE["ordinary"]
    if crew.endswith("contained"):
        found |= NOT_HERE["contained"]
    if not crews()[0].startswith("root"):
        found |= NOT_HERE["not root"]
    return found


def _is_escape(crew: str, name: str) -> bool:
    return not (crew.endswith("contained") and TECHNIQUES[name].only_namespaces)


@pytest.mark.parametrize("crew", crews())
@pytest.mark.parametrize("name", TECHNIQUES)
def test_no_technique_gets_out(shows: Any, crew: str, name: str) -> None:
    """Nor does one leave a trace outside."""
    came = shows(crew)[name]
    assert came["confined"].startswith((*REFUSALS, WORKED)), came["confined"]
    assert came["left"] == []
    if _is_escape(crew, name):
        assert came["confined"] != WORKED


@pytest.mark.parametrize("crew", [each for each in crews() if each.startswith("ordinary")])
def test_the_techniques_work_without_the_sandbox(shows: Any, crew: str) -> None:
    """Or it is known why they do not."""
    failed = {name: came["bare"] for name, came in shows(crew).items() if came["bare"] != WORKED}
    assert {name: why for name, why in failed.items() if name not in _excused(crew)} == {}
    counted = [name for name in TECHNIQUES if name not in failed and _is_escape(crew, name)]
    assert len(counted) >= LEAST


def test_no_technique_gets_out_of_a_job(start: Start) -> None:
    """As handlers of a worker, which executes every one of them and is none the worse."""
    crew = crews()[0]
    shown = json.loads(start(crew, "tests.sandbox.battery").result())
    # One that hurts has worked if the victim is gone, and that would be among what is left.
    harmless = {name for name, each in TECHNIQUES.items() if each.hurts or not _is_escape(crew, name)}
    assert shown["left"] == []
    assert shown["came"].keys() == TECHNIQUES.keys()
    for name, came in shown["came"].items():
        assert came.startswith((*REFUSALS, *DEATHS)) or (came == WORKED and name in harmless), (name, came)


@pytest.mark.parametrize(("crew", "wall", "names"), WALLS)
def test_a_wall_that_is_missing_is_noticed(weakened: Any, crew: str, wall: str, names: list[str]) -> None:
    """The battery is no better than what it can tell apart."""
    if crew not in crews():
        pytest.skip("there are no namespaces here")
    shown = weakened(crew, wall)
    assert {name: came["confined"] for name, came in shown.items()} == dict.fromkeys(names, WORKED)


def test_an_older_landlock_is_made_up_for(run: Run) -> None:
    """The fifth version sees no signals and no abstract sockets."""
    names = [
        "connect_to_an_abstract_socket",
        "kill_a_group",
        "kill_another",
        "kill_another_by_its_descriptor",
        "let_the_kernel_signal_another",
        "read_the_memory_of_another_by_its_file",
        "signal_another",
        "signal_the_supervisor",
        "take_a_descriptor_of_another",
    ]
    shown = json.loads(run("ordinary-contained", "tests.sandbox.stage", "landlock-5", *names))
    assert {name: came["bare"] for name, came in shown.items()} == dict.fromkeys(names, WORKED)
    assert [name for name, came in shown.items() if came["confined"] == WORKED or came["left"]] == []
