"""A plan: every step that confines a child to what its permissions name."""

import os
from collections.abc import Collection
from contextlib import suppress
from importlib.machinery import PathFinder

import msgspec

from penstock.sandbox import environment, landlock, limits, linux, namespaces, paths, seccomp
from penstock.sandbox.broker import Broker
from penstock.sandbox.cgroups import Cgroup, Group
from penstock.sandbox.keeper import Keeper, close_others
from penstock.sandbox.landlock import Rule
from penstock.sandbox.namespaces import Identity, Inside
from penstock.sandbox.permissions import Permissions
from penstock.sandbox.root import Root
from penstock.sandbox.seccomp import Standing
from penstock.sandbox.streams import Streams


class Plan(msgspec.Struct, frozen=True):
    """The steps that confine a child, worked out and tried. Plain data: it may be sent to a fork server."""

    permissions: Permissions
    identity: Identity
    """Who the confined process is: the caller, or nobody when the caller is root."""
    root: Root
    rules: tuple[Rule, ...]
    """What may be done with which path."""
    has_namespaces: bool
    has_filter: bool
    landlock: int
    """The version that is spoken; 0 to do without."""
    folder: str
    """Where the confined process begins, if it can see it."""
    cgroup: Cgroup | None = None
    """Where each confined process gets a cgroup of its own."""
    gaps: tuple[str, ...] = ()
    """What this kernel does not enforce; always empty in strict mode."""

    @property
    def is_for_one_job(self) -> bool:
        """True when a process may not serve a second job: what the first used up counts against it."""
        return self.permissions.cpu_seconds is not None

    def apply(self, keep: Collection[int] = ()) -> None:
        """Confine the calling process for good; call it after a fork, with one thread, before the handler.

        Returns in a new process, the confined one: the caller stays behind as its keeper, outside, and ends
        the way it ended. So the caller's pid is the one to wait for, to signal (SIGTERM and the like are
        passed on) and to kill: by `keeper.END`, or by SIGKILL where a reaper of orphans sees to the rest. Of
        the file descriptors 1, 2 and those in `keep` stay open; 0 leads nowhere unless it is among them.
        """
        paths.check_links(self.permissions, self.root.links)
        environment.clear(self.permissions.env)
        if not self.has_namespaces:
            # The process will not be allowed to list the folders of modules, so Python reads them now.
            PathFinder.find_spec("penstock_no_such_module")
        mapped, resident = limits.memory()
        # The namespaces' first process counts for the same user.
        tasks = 1 if self.has_namespaces else limits.tasks_of(self.identity.uid)
        broker = Broker(self.permissions.addresses) if self.permissions.net else None
        group = self._group(resident)
        streams = Streams()
        keeper = Keeper()
        inside: Inside | None = None
        try:
            if self.has_namespaces:
                inside = namespaces.fork(self.identity, self.root, keeper.begin)
                child = inside.init if inside else 0
            else:
                child = os.fork()
                if not child:
                    keeper.begin()
        except BaseException:
            keeper.begin()
            raise
        if child:
            kept = streams.serve() | ({inside.line.fileno()} if inside else set())
            keeper.keep(
                child,
                told=inside.told if inside else int,
                serve={broker.fileno(): broker.serve} if broker else {},
                keep=kept,
                end=[group.kill] if group else [],
                finish=[streams.finish, group.remove] if group else [streams.finish],
            )
        if group:
            group.enter()
        streams.use(has_input=0 in keep)
        self._confine({*keep, broker.inside.fileno()} if broker else set(keep), mapped, tasks)
        if broker:
            from penstock.sandbox.shim import Shim

            Shim(broker.inside).install()

    def _group(self, resident: int) -> Group | None:
        """A cgroup for the new process."""
        if self.cgroup is None:
            return None
        self.cgroup.tidy()
        memory = self.permissions.memory
        # Memory that exists already is copied as soon as it is written.
        most = None if memory is None else memory + resident
        group = self.cgroup.of(os.getpid())
        group.make(self.cgroup.limits(most, self.permissions.processes))
        return group

    def _confine(self, keep: Collection[int], mapped: int, tasks: int) -> None:
        os.setsid()
        close_others(keep)
        if os.geteuid() != self.identity.uid:
            self.identity.assume()
        linux.drop_capabilities()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        with suppress(OSError):
            os.chdir(self.folder)
        limits.limit(self.permissions, mapped=mapped, tasks=tasks)
        if self.landlock:
            landlock.restrict(self.rules, self.landlock)
        if self.has_filter:
            own = self.has_namespaces
            scoped = own or self.landlock >= landlock.SCOPED
            seccomp.install(
                Standing(
                    can_run=bool(self.permissions.run),
                    has_pids=own,
                    has_root=own,
                    has_scope=scoped,
                    can_write=bool(self.permissions.write),
                    is_memory_limited=self.permissions.memory is not None,
                )
            )
