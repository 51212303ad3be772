"""Ways to find out what files and processes outside are like."""

import os
import time

from tests.sandbox.scene import SECRET, Scene, call, technique

_WHO_PROCESS = 1


@technique()
def read_an_attribute_outside(scene: Scene) -> None:
    assert os.getxattr(scene.secret, "user.mark") == SECRET.encode()


@technique()
def read_an_attribute_of_a_link_outside(scene: Scene) -> None:
    assert os.getxattr(scene.secret, "user.mark", follow_symlinks=False) == SECRET.encode()


@technique()
def list_the_attributes_outside(scene: Scene) -> None:
    assert "user.mark" in os.listxattr(scene.secret)


@technique()
def list_the_attributes_of_a_link_outside(scene: Scene) -> None:
    assert "user.mark" in os.listxattr(scene.secret, follow_symlinks=False)


@technique(only_namespaces="Landlock does not look at it, and programs could not follow links without it")
def see_where_a_link_outside_leads(scene: Scene) -> None:
    assert os.readlink(f"{scene.outside}/link") == "secret"


@technique()
def see_the_processor_time_of_another(scene: Scene) -> None:
    time.clock_gettime(~scene.victim << 3 | 2)


@technique()
def see_the_time_of_another_in_user_mode(scene: Scene) -> None:
    time.clock_gettime(~scene.victim << 3 | 1)


@technique()
def see_how_finely_the_time_of_another_is_counted(scene: Scene) -> None:
    time.clock_getres(~scene.victim << 3 | 2)


@technique()
def see_where_another_may_run(scene: Scene) -> None:
    os.sched_getaffinity(scene.victim)


@technique()
def see_how_another_is_scheduled(scene: Scene) -> None:
    os.sched_getscheduler(scene.victim)


@technique()
def see_how_urgent_another_is(scene: Scene) -> None:
    os.getpriority(os.PRIO_PROCESS, scene.victim)


@technique()
def see_how_another_may_read_and_write(scene: Scene) -> None:
    call("ioprio_get", _WHO_PROCESS, scene.victim)


@technique()
def wait_for_the_end_of_another(scene: Scene) -> None:
    os.pidfd_open(scene.victim)


@technique(only_namespaces="the group of a child has to be found, and the filter does not know children")
def see_the_group_of_another(scene: Scene) -> None:
    os.getpgid(scene.victim)
