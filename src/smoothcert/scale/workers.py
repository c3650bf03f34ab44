"""Workers on a Ray cluster: whoever is free gets the next task, and whoever dies is replaced."""

from __future__ import annotations

import copy
import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.leaving import leave
from smoothcert.modules import Model
from smoothcert.plan import Cluster
from smoothcert.sampling.blocks import Input
from smoothcert.sampling.executor import Job
from smoothcert.sampling.identity import Identity
from smoothcert.scale.cluster import connected, dead_service
from smoothcert.scale.executor import ClusterExecutor, Task
from smoothcert.scale.worker import Common, Worker

logger = logging.getLogger(__name__)
Rows = NDArray[np.float32]

DEPTH = 2
"""Tasks a worker has at most: one that runs, and one that is there when it ends."""

TRIES = 8
"""Workers that may die over one task before the task itself is to blame."""

SLOW, LEAST_SECONDS = 20, 10.0
"""A chunk is drawn elsewhere when its blocks take so many times the median, and at least so many seconds."""

SERVICES_SECONDS, GIVEN_SECONDS = 1.0, 5.0
"""How often it is seen to that Ray itself lives, and how long a run has to end when it does not."""

PATIENCE = 300.0
"""Seconds without any worker before the run ends; it can be resumed."""


@dataclass(eq=False)
class _Member:
    """A worker as the driver sees it; tasks are given to it from when it has said what it is.

    `since` is when the task that it is at began, as far as the driver can tell.
    """

    actor: Any
    tasks: int = 0
    ready: bool = False
    dead: bool = False
    since: float = 0.0
    answers: int = 0


class Workers:
    """A `Machine`: the workers, and the identity they share. To be used in a `with` statement, which ends them.

    The model goes into Ray's object store once and from there to each worker, the path of an .onnx file as the path it
    is. Tasks of a worker that dies are given to others.
    """

    def __init__(
        self,
        cluster: Cluster,
        model: Model,
        engine: str = "auto",
        batch: int | str = "auto",
        x: Rows | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.cluster, self._fingerprint, self._stack = cluster, fingerprint, ExitStack()
        self._members: list[_Member] = []
        self._queue: deque[Task] = deque()
        self._calls: dict[Any, tuple[_Member, Task | None]] = {}
        self._identity: Common | None = None
        self._asked_at, self._told_to_wait = monotonic(), False
        self._stillborn = 0
        self._closed, self._gone = Event(), ""
        self._paces: deque[float] = deque(maxlen=101)
        model = _movable(model, cluster)
        try:
            self._ray = ray = self._stack.enter_context(connected(cluster))
            self._stack.callback(self._dismiss)
            self._stack.callback(self._closed.set)
            Thread(target=self._watch_services, name="services", daemon=True).start()
            reference = self._put(model)
            self._open = (lambda: ray.get(reference)), engine
            self._remote = ray.remote(Worker).options(num_cpus=cluster.cpus, num_gpus=cluster.gpus)
            for _ in range(cluster.workers or self._capacity()):
                self._hire()
            while self._identity is None:
                self.wait()
            self.batch = batch if isinstance(batch, int) or x is None else self._ask("choose_batch", x)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def identity(self) -> Identity:
        """The engine's, as in one process."""
        assert self._identity is not None
        return self._identity.engine

    @property
    def reason(self) -> str:
        return f"engine {self.identity}, {self.size} workers on {self.cluster}"

    def executor(self, inputs: Callable[[int], Input], job: Job) -> ClusterExecutor:
        return ClusterExecutor(self, inputs, job)

    def fault(self, source: Input, job: Job) -> str | None:
        """As in one process, but found by a worker."""
        answer: str | None = self._ask("fault", source, job)
        return answer

    def _ask(self, method: str, *arguments: Any) -> Any:
        """What a worker answers."""
        task = self.submit(method, *arguments)
        while not task.done:
            self.wait()
        return task.answer

    def submit(self, method: str, *arguments: Any, blocks: int = 0) -> Task:
        """The call of a worker's method, to be answered by and by."""
        task = Task(method, arguments, blocks=blocks)
        self._queue.append(task)
        self._assign()
        return task

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def has_room(self) -> bool:
        """Would a further task be given to a worker at once?"""
        return not self._queue and any(m.ready and m.tasks < DEPTH for m in self._members)

    @property
    def has_idle(self) -> bool:
        """Is there a worker with nothing to do, or no task at all?"""
        idle = any(m.ready and m.tasks == 0 for m in self._members)
        return not self._queue and (idle or not any(m.tasks for m in self._members))

    def wait(self) -> None:
        """Until a worker answers or dies, or a second passes."""
        self._require_services()
        for call in self._ray.wait(list(self._calls), timeout=1.0)[0]:
            member, task = self._calls.pop(call)
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as error:
                raise _as_one_sentence(error) from None
            except self._ray.exceptions.RayError as error:
                self._lose(member, task, error)
            else:
                self._take(member, task, answer)
        self._look_for_hanging()
        self._assign()
        if any(m.ready for m in self._members):
            self._asked_at, self._told_to_wait = monotonic(), False
        else:
            self._be_patient()

    def _watch_services(self) -> None:
        """Notes that Ray itself has died. A call into it may never return then, and Ray would end the process without a
        word: it is left with one."""
        while not self._closed.wait(SERVICES_SECONDS):
            service = dead_service(self._ray)
            if service is not None:
                self._gone = f"Ray's {service} has died on {self.cluster}: run the same command to go on."
                if not self._closed.wait(GIVEN_SECONDS):
                    leave(1, self._gone)
                return

    def _require_services(self) -> None:
        if self._gone:
            raise RunError(self._gone)

    def _put(self, model: Model) -> Any:
        try:
            return self._ray.put(model)
        except Exception as error:
            raise InputError(
                f"the model cannot be sent to workers ({_first_line(error)}): make it an object that pickle can copy."
            ) from error

    def _hire(self) -> None:
        member = _Member(self._remote.remote())
        self._members.append(member)
        settings = {"path": sys.path, "cpus": self.cluster.cpus, "on_gpu": self.cluster.gpus > 0}
        self._calls[member.actor.open.remote(*self._open, **settings)] = member, None

    def _assign(self) -> None:
        free = [m for m in self._members if m.ready and m.tasks < DEPTH]
        while self._queue and free:
            member, task = min(free, key=lambda m: m.tasks), self._queue.popleft()
            if member.tasks == 0:
                member.since = monotonic()
            self._calls[getattr(member.actor, task.method).remote(*task.arguments)] = member, task
            member.tasks += 1
            free = [m for m in free if m.tasks < DEPTH]

    def _take(self, member: _Member, task: Task | None, answer: Any) -> None:
        if task is None:
            self._welcome(member, answer)
        else:
            if task.blocks:
                self._paces.append((monotonic() - member.since) / task.blocks)
            member.tasks, member.answers, member.since = member.tasks - 1, member.answers + 1, monotonic()
            task.done, task.answer, task.arguments = True, answer, ()

    def _welcome(self, member: _Member, identity: Common) -> None:
        self._identity = self._identity or identity
        if identity != self._identity:
            raise InputError(
                f"two workers differ, {identity} and {self._identity}: give all machines the same packages, model and "
                f"kind of device."
            )
        if self._fingerprint not in (None, identity.model):
            raise InputError("the workers find another model than is here: give all machines the same file.")
        member.ready, self._stillborn = True, 0

    def _lose(self, member: _Member, task: Task | None, error: Exception) -> None:
        """A worker died, or its answer on the way: its task is given to another."""
        if not member.dead:
            member.dead = True
            self._members.remove(member)
            self._ray.kill(member.actor)
            self._hire()
        if task is None:
            self._stillborn += 1
            if self._stillborn == TRIES + self.size:
                raise RunError(
                    f"{self._stillborn} workers in a row died before they had the model ({_first_line(error)}): see "
                    f"whether smoothcert and all that the model needs are installed on every machine."
                )
            return
        task.tries += 1
        if task.tries == TRIES:
            raise RunError(
                f"{TRIES} workers died over the same draws ({_first_line(error)}): see whether the model crashes or "
                f"needs more memory than there is, then run the same command to go on."
            )
        self._queue.appendleft(task)

    def _look_for_hanging(self) -> None:
        """A worker that takes far longer than others for its blocks has stopped, even if it lives.

        The first task of a worker may take minutes, because its engine is built then.
        """
        if not self._paces:
            return
        pace, now = median(self._paces), monotonic()
        for call, member, task in self._at_work():
            allowed = max(SLOW * pace * task.blocks, LEAST_SECONDS if member.answers else PATIENCE)
            if task.blocks and now - member.since > allowed and not self._ray.wait([call], timeout=0)[0]:
                logger.warning("a worker hangs: its draws are given to others.")
                for other, its_task in [(c, t) for c, (m, t) in reversed(self._calls.items()) if m is member]:
                    del self._calls[other]
                    self._lose(member, its_task, TimeoutError("it did not answer"))

    def _at_work(self) -> list[tuple[Any, _Member, Task]]:
        """The call that each worker is at: the oldest of its calls."""
        first: dict[int, tuple[Any, _Member, Task]] = {}
        for call, (member, task) in self._calls.items():
            if task is not None:
                first.setdefault(id(member), (call, member, task))
        return list(first.values())

    def _be_patient(self) -> None:
        waited = monotonic() - self._asked_at
        needs = f"{self.cluster.cpus} CPUs and {self.cluster.gpus:g} GPUs"
        if waited > PATIENCE:
            raise RunError(
                f"{self.cluster} had no worker for {PATIENCE:g} s, each needs {needs}: see `ray status`, then run the "
                f"same command to go on."
            )
        if waited > 30 and not self._told_to_wait:
            self._told_to_wait = True
            logger.warning("waiting for a worker to start: each needs %s of %s.", needs, self.cluster)

    def _capacity(self) -> int:
        """How many workers the cluster has room for."""
        there = self._ray.cluster_resources()
        room = int(there.get("CPU", 0) // self.cluster.cpus)
        if self.cluster.gpus:
            room = min(room, int(there.get("GPU", 0) / self.cluster.gpus + 1e-9))
        if room == 0:
            raise InputError(
                f"{self.cluster} has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, too few for one "
                f"worker: ask for fewer a worker."
            )
        return room

    def _dismiss(self) -> None:
        if dead_service(self._ray) is not None:
            return  # they end with it, and nobody is there to be told
        with suppress(Exception):  # a cluster that is gone has no workers either
            for member in self._members:
                self._ray.kill(member.actor)


def _movable(model: Model, cluster: Cluster) -> Model:
    """The model as it travels: a module's tensors on the CPU, a path that means the same in every folder."""
    if isinstance(model, torch.nn.Module):
        device = next((t.device.type for t in (*model.parameters(), *model.buffers())), "cpu")
        if device != "cpu" and not cluster.gpus:
            raise InputError(
                f"the model is on {device} and the workers have no GPU: pass `gpus`, or a model on the CPU."
            )
        return model if device == "cpu" else copy.deepcopy(model).cpu()
    return model.absolute() if isinstance(model, Path) else model


def _as_one_sentence(error: Any) -> InputError | RunError:
    """What a worker raised, as one process would have raised it."""
    if isinstance(error.cause, InputError | RunError):
        return error.cause
    return RunError(f"a worker failed ({_first_line(error.cause)}): the same command without the cluster shows where.")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
