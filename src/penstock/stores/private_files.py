"""Files and folders for their owner alone, and which of those that were there others can read."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


@runtime_checkable
class HasFiles(Protocol):
    """A store in files of this machine."""

    def files(self) -> list[Path]:
        """The files that hold its data, as far as they exist."""
        ...


def create_private_file(path: Path) -> None:
    """Make an empty file that its owner alone can read and write; one that exists is left as it is.

    A file that cannot be made is left to the program that opens it next, which says why.
    """
    # SQLite makes the target of a link, too.
    path = path.resolve()
    with suppress(OSError):
        try:
            # Not by opening it: closing it again would end all locks of this process on the file.
            os.mknod(path, stat.S_IFREG | FILE_MODE)
        except (PermissionError, AttributeError, NotImplementedError):
            # Systems other than Linux let only root do that.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def create_private_folder(path: Path) -> None:
    """Make a folder and those above it for their owner alone; those that exist are left as they are."""
    for each in [*reversed(path.parents), path]:
        if not each.exists():
            each.mkdir(mode=FOLDER_MODE, exist_ok=True)
    # Says that it is no folder, if it is none.
    path.mkdir(exist_ok=True)


def readable_by_others(files: Iterable[Path]) -> list[str]:
    """What is said of each file that other users of the machine can read: its path and its mode.

    The group is left out, for somebody chose who is in it; so is a file whose folder others cannot enter.
    """
    found: list[str] = []
    for path in files:
        with suppress(FileNotFoundError):
            mode, folder = path.stat().st_mode, path.resolve().parent.stat().st_mode
            if mode & stat.S_IRWXO and folder & stat.S_IXOTH:
                found.append(
                    f"{path}: other users of this machine can read it (mode {stat.S_IMODE(mode):04o}): "
                    f"chmod o= {path}"
                )
    return found
