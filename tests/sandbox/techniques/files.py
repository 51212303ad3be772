"""Ways to files that were not given."""

import ctypes
import os
import resource
import stat
import struct
from pathlib import Path

from tests.sandbox.scene import SECRET, Scene, call, technique


def _read(path: str) -> str:
    found = Path(path).read_text()
    assert found == SECRET, found
    return found


@technique()
def read_a_file_outside(scene: Scene) -> None:
    _read(scene.secret)


@technique()
def list_a_folder_outside(scene: Scene) -> None:
    os.listdir(scene.outside)


@technique(only_namespaces="Landlock does not hide that a file exists")
def see_that_a_file_exists(scene: Scene) -> None:
    os.stat(scene.secret)


@technique()
def make_a_file_outside(scene: Scene) -> None:
    Path(scene.outside, "made").write_text("x")


@technique()
def make_a_folder_outside(scene: Scene) -> None:
    Path(scene.outside, "folder").mkdir()


@technique()
def append_to_a_file_outside(scene: Scene) -> None:
    with open(scene.mine, "a") as file:
        file.write("x")


@technique()
def cut_a_file_outside_short(scene: Scene) -> None:
    os.truncate(scene.mine, 0)


@technique()
def delete_a_file_outside(scene: Scene) -> None:
    os.unlink(scene.mine)


@technique()
def move_a_file_in(scene: Scene) -> None:
    os.rename(scene.mine, f"{scene.work}/moved")


@technique()
def move_a_file_out(scene: Scene) -> None:
    Path(scene.work, "out").write_text("x")
    os.rename(f"{scene.work}/out", f"{scene.outside}/moved")


@technique()
def read_through_a_symbolic_link(scene: Scene) -> None:
    os.symlink(scene.secret, f"{scene.work}/link")
    _read(f"{scene.work}/link")


@technique()
def write_through_a_symbolic_link(scene: Scene) -> None:
    os.symlink(scene.mine, f"{scene.work}/writing")
    Path(scene.work, "writing").write_text("x")


@technique()
def read_through_a_link_in_the_way(scene: Scene) -> None:
    os.symlink(scene.outside, f"{scene.work}/folder")
    _read(f"{scene.work}/folder/secret")


@technique()
def read_through_a_hard_link(scene: Scene) -> None:
    os.link(scene.secret, f"{scene.work}/hard")
    _read(f"{scene.work}/hard")


@technique()
def write_a_readable_file_through_a_hard_link(scene: Scene) -> None:
    os.link(f"{scene.allowed}/open", f"{scene.work}/hard-open")
    Path(scene.work, "hard-open").write_text("x")


@technique()
def write_what_may_only_be_read(scene: Scene) -> None:
    Path(scene.allowed, "open").write_text("x")


@technique()
def climb_by_dots(scene: Scene) -> None:
    _read(f"{scene.work}/../{Path(scene.outside).name}/secret")


@technique()
def climb_by_the_working_folder(scene: Scene) -> None:
    # The supervisor was in the folder outside when it forked.
    _read("secret")


@technique()
def climb_by_the_root_of_a_process(scene: Scene) -> None:
    _read(f"/proc/self/root{scene.secret}")


@technique()
def climb_by_the_root_of_the_supervisor(scene: Scene) -> None:
    _read(f"/proc/{scene.supervisor}/root{scene.secret}")


@technique()
def use_an_inherited_descriptor(scene: Scene) -> None:
    assert os.pread(scene.descriptor, 100, 0) == SECRET.encode()


@technique()
def use_an_inherited_folder(scene: Scene) -> None:
    descriptor = os.open("secret", os.O_RDONLY, dir_fd=scene.folder)
    os.read(descriptor, 100)


@technique()
def open_a_path_again_by_its_descriptor(scene: Scene) -> None:
    descriptor = os.open(scene.secret, os.O_PATH)
    _read(f"/proc/self/fd/{descriptor}")


@technique()
def take_the_descriptors_of_the_supervisor(scene: Scene) -> None:
    _read(f"/proc/{scene.supervisor}/fd/{scene.descriptor}")


@technique()
def open_with_the_newer_call(scene: Scene) -> None:
    how = struct.pack("<QQQ", os.O_RDONLY, 0, 0)
    call("openat2", -100, scene.secret.encode(), how, len(how))


@technique()
def open_by_handle(scene: Scene) -> None:
    handle = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 8 + 128)
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, scene.secret.encode(), handle, ctypes.byref(mount), 0)
    folder = os.open("/", os.O_RDONLY)
    os.read(call("open_by_handle_at", folder, handle, os.O_RDONLY), 100)


@technique()
def change_a_mode_outside(scene: Scene) -> None:
    os.chmod(scene.mine, 0o600)


@technique()
def change_times_outside(scene: Scene) -> None:
    os.utime(scene.mine, (1, 1))


@technique()
def change_an_owner_outside(scene: Scene) -> None:
    os.chown(scene.mine, os.getuid(), os.getgid())


@technique()
def set_an_attribute_outside(scene: Scene) -> None:
    os.setxattr(scene.mine, "user.mark", b"x")


@technique()
def change_the_mode_of_what_may_only_be_read(scene: Scene) -> None:
    descriptor = os.open(f"{scene.allowed}/open", os.O_RDONLY)
    os.fchmod(descriptor, 0o600)


@technique()
def make_a_file_set_uid(scene: Scene) -> None:
    Path(scene.work, "suid").write_text("x")
    os.chmod(f"{scene.work}/suid", 0o4755)
    assert os.stat(f"{scene.work}/suid").st_mode & stat.S_ISUID


@technique()
def create_a_file_set_uid(scene: Scene) -> None:
    os.umask(0)
    descriptor = os.open(f"{scene.work}/created", os.O_CREAT | os.O_WRONLY, 0o6755)
    assert os.fstat(descriptor).st_mode & stat.S_ISUID


@technique()
def make_a_device(scene: Scene) -> None:
    os.mknod(f"{scene.work}/device", stat.S_IFCHR | 0o666, os.makedev(1, 11))


@technique()
def read_the_log_of_the_kernel_by_its_device(scene: Scene) -> None:
    os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)


@technique()
def leave_something_in_shared_memory(scene: Scene) -> None:
    path = Path("/dev/shm", f"left-{os.getpid()}-{scene.victim}")
    path.write_text("x")
    path.unlink()


@technique()
def make_a_terminal(scene: Scene) -> None:
    os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)


@technique()
def watch_a_folder_outside(scene: Scene) -> None:
    watching = call("inotify_init1", 0)
    call("inotify_add_watch", watching, scene.outside.encode(), 0xFFF)


@technique()
def write_a_larger_file(scene: Scene) -> None:
    Path(scene.work, "large").write_bytes(bytes(2 << 20))


@technique()
def write_a_larger_file_beyond_a_raised_limit(scene: Scene) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    Path(scene.work, "larger").write_bytes(bytes(2 << 20))
