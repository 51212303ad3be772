"""Two apps with a program each: one is not there, the other is not among the permissions of its task."""

from penstock import Penstock, Permissions

absent = Penstock("memory://")
forbidden = Penstock("memory://")


@absent.queue("box").task(name="resize", program=["no-such-program"])
def resize() -> None: ...


@forbidden.queue("box").task(name="show", program=["cat"], permissions=Permissions(run=["true"]))
def show() -> None: ...
