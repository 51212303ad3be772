"""What follows when the store refused some of many jobs."""

from collections.abc import Sequence
from typing import Literal, TypeVar

from penstock.core.errors import BatchRefusedError, PenstockError, StoreError
from penstock.tasks.handle import JobHandle

R = TypeVar("R")
OnError = Literal["raise", "return"]


def outcomes(
    sent: Sequence[JobHandle[R] | PenstockError], on_error: OnError
) -> list[JobHandle[R]] | list[JobHandle[R] | PenstockError]:
    """The handles; or, if there are errors, what `on_error` says."""
    return list(sent) if on_error == "return" else all_of(sent)


def all_of(sent: Sequence[JobHandle[R] | PenstockError]) -> list[JobHandle[R]]:
    """The handles; BatchRefusedError when there are errors."""
    handles = [each for each in sent if isinstance(each, JobHandle)]
    if len(handles) == len(sent):
        return handles
    errors = [each for each in sent if isinstance(each, PenstockError)]
    if not handles and isinstance(errors[0], StoreError):
        raise errors[0]
    raise BatchRefusedError(list(sent)) from errors[0]
