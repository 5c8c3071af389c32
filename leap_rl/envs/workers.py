"""A vector environment spread over processes: the same bits, on more cores.

Each process steps a contiguous slice of the B environments. The results of an agent step lie in
shared memory; a pipe carries one word to each process and one back. A process ends when its pipe
does, because its parent has closed it or died. It ignores SIGINT and SIGTERM, which its parent
handles: the whole group of a run's processes may get one, and a snapshot needs the environments.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ctypes import c_byte
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from leap_rl.envs.state import Actions, Observations, State, check_state, join_states, split_state
from leap_rl.envs.vector import GameVector, RestorableEnvs, Stepped

Slice: TypeAlias = Callable[..., RestorableEnvs]
"""Makes `num_envs` of the environments, from number `first` on; must be picklable."""


def make_vector(make: Slice, *, num_envs: int, seed: int, processes: int) -> GameVector:
    """Make B environments, stepped by 1 to B processes; 1 means this process."""
    if processes == 1:
        return GameVector(make(num_envs=num_envs, first=0), seed=seed)
    return GameVector(WorkerEnvs(make, num_envs=num_envs, processes=processes), seed=seed)


def _record_of(one: RestorableEnvs) -> np.dtype[Any]:
    space, actions = one.single_observation_space, one.single_action_space
    return np.dtype(
        [
            ("action", actions.dtype, actions.shape),
            ("reward", np.float64),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
            ("life_lost", np.bool_),
            ("observation", space.dtype, space.shape),
            ("last", space.dtype, space.shape),
        ],
        align=True,
    )


def _serve(
    pipe: Connection, memory: Any, record: np.dtype[Any], make: Slice, begin: int, end: int
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    shared = np.frombuffer(memory, dtype=record)[begin:end]
    try:
        envs = make(num_envs=end - begin, first=begin)
        commands: dict[str, Callable[[Any], Any]] = {
            "start": lambda _: None,
            "reset": lambda seed: _show(shared, envs.reset(seed=seed)[0]),
            "step": lambda _: _step(shared, envs),
            "state": lambda _: envs.state(),
            "restore": lambda state: _show(shared, envs.restore(state)),
        }
        while True:
            command, argument = pipe.recv()
            pipe.send((True, commands[command](argument)))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        # A ValueError is about the request: the parent raises it as it is.
        told = error if isinstance(error, ValueError) else traceback.format_exc()
        with suppress(OSError):
            pipe.send((False, told))


def _show(shared: NDArray[Any], observations: Observations) -> None:
    shared["observation"] = observations


def _step(shared: NDArray[Any], envs: RestorableEnvs) -> bool:
    parts = envs.step(shared["action"])
    for name, part in zip(
        ("observation", "reward", "terminated", "truncated"), parts, strict=False
    ):
        shared[name] = part
    info = parts[-1]
    shared["life_lost"] = info.get("life_lost", False)
    if "final_obs" not in info:
        return False
    shared["last"] = info["final_obs"]
    return True


def _close(pipes: Iterable[Connection]) -> None:
    for pipe in pipes:
        pipe.close()


class WorkerEnvs(RestorableEnvs):
    """B environments in slices, one for each of 1 to B processes; the same bits for any number."""

    def __init__(self, make: Slice, *, num_envs: int, processes: int) -> None:
        self._pipes: list[Connection] = []
        self._workers: list[Any] = []
        if not 1 <= processes <= num_envs:
            raise ValueError(
                f"processes = {processes}: must lie in 1..{num_envs}, the environments"
            )
        one = make(num_envs=1, first=0)
        space = one.single_observation_space
        super().__init__(num_envs, space, one.num_actions, continuous=one.continuous)
        one.close()
        edges = [num_envs * k // processes for k in range(processes + 1)]
        self._counts = [end - begin for begin, end in pairwise(edges)]
        # Spawned, not forked: a fork copies locks that other threads hold, torch's and Ray's.
        context = get_context("spawn")
        # Nameless, so that no killed process leaves it behind.
        record = _record_of(one)
        memory: Any = context.RawArray(c_byte, num_envs * record.itemsize)
        self._shared = np.frombuffer(memory, dtype=record)
        for begin, end in pairwise(edges):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_serve, args=(theirs, memory, record, make, begin, end), daemon=True
            )
            worker.start()
            theirs.close()  # so that our end tells us of the worker's death
            self._pipes.append(ours)
            self._workers.append(worker)
        # At its exit Python sends workers SIGTERM and waits for them; this comes first.
        Finalize(self, _close, args=(self._pipes,), exitpriority=1)
        self._ask("start")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        self._ask("reset", *[seed] * len(self._pipes))
        return self._observations(), {}

    def step(self, actions: Actions) -> Stepped:
        shared = self._shared
        shared["action"] = actions
        ended = self._ask("step")
        names = ("observation", "reward", "terminated", "truncated", "life_lost")
        observations, rewards, terminated, truncated, life_lost = (shared[n].copy() for n in names)
        info: dict[str, Any] = {"life_lost": life_lost}
        if any(ended):
            info["final_obs"] = shared["last"].copy()
            info["_final_obs"] = terminated | truncated
        return observations, rewards, terminated, truncated, info

    def state(self) -> State:
        return join_states(self._ask("state"))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        check_state(state, like=self.state())
        self._ask("restore", *split_state(state, self._counts))
        return self._observations()

    def close_extras(self, **kwargs: Any) -> None:
        _close(self.__dict__.pop("_pipes", []))
        for worker in self.__dict__.pop("_workers", []):
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()
                worker.join()

    def _observations(self) -> Observations:
        observations: Observations = self._shared["observation"].copy()
        return observations

    def _ask(self, command: str, *arguments: Any) -> list[Any]:
        """Send a command to every process and return their answers.

        ValueError: a request was refused. RuntimeError, ChildProcessError: one failed, has died.
        """
        answers = []
        try:
            for pipe, argument in zip(
                self._pipes, arguments or [None] * len(self._pipes), strict=True
            ):
                pipe.send((command, argument))
            for number, pipe in enumerate(self._pipes):
                done, answer = pipe.recv()
                if isinstance(answer, ValueError):
                    raise answer
                if not done:
                    raise RuntimeError(f"environment process {number} failed:\n{answer}")
                answers.append(answer)
        except (EOFError, OSError) as error:
            died = [
                f"{number} (exit code {worker.exitcode})"
                for number, worker in enumerate(self._workers)
                if worker.join(timeout=1) is None and not worker.is_alive()
            ]
            raise ChildProcessError(
                f"environment process {', '.join(died)} died: out of memory, or killed"
            ) from error
        return answers
