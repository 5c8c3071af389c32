"""A vector environment spread over processes: the same bits, on more cores.

The B environments are cut into contiguous slices, and each process steps one. Observations and all
else that an agent step gives lie in memory that all share; what goes through a pipe is one word to
each process and one back. A process whose pipe ends, because its parent has closed it or died, ends
too. It does not listen to the keyboard's interrupt, which its parent gets.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping
from ctypes import c_byte
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from leap_rl.envs.state import Observations, State, check_state, join_states, split_state

Seen = Space[Any]
"""Of one environment's observations."""


class Slice(Protocol):
    """Makes some of the environments, those from number `first` on; it travels to a process."""

    def __call__(self, *, num_envs: int, first: int) -> Any:
        """Return a vector environment in SAME_STEP mode, with state(), restore() and `identity`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Board:
    """What all processes share, as arrays over one block of memory."""

    observations: Observations
    last: Observations
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    life_lost: NDArray[np.bool_]

    @staticmethod
    def shapes(num_envs: int, space: Seen) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return each array's shape and type, for the observations of a space."""
        images = ((num_envs, *(space.shape or ())), space.dtype)
        flags = ((num_envs,), np.bool_)
        numbers = {"actions": ((num_envs,), np.int64), "rewards": ((num_envs,), np.float64)}
        return {
            **numbers,  # the larger first, so that all are aligned
            **dict.fromkeys(("observations", "last"), images),
            **dict.fromkeys(("terminated", "truncated", "life_lost"), flags),
        }

    @classmethod
    def size(cls, num_envs: int, space: Seen) -> int:
        """Return the bytes of the block."""
        shapes = cls.shapes(num_envs, space).values()
        return sum(int(np.prod(dims)) * np.dtype(kind).itemsize for dims, kind in shapes)

    @classmethod
    def over(cls, memory: Any, num_envs: int, space: Seen) -> _Board:
        """Lay the arrays over a block."""
        arrays, offset = {}, 0
        for name, (dims, kind) in cls.shapes(num_envs, space).items():
            arrays[name] = np.ndarray(dims, kind, buffer=memory, offset=offset)
            offset += arrays[name].nbytes
        return cls(**arrays)


def _serve(
    pipe: Connection,
    memory: Any,
    make: Slice,
    places: tuple[int, int],
    num_envs: int,
    space: Seen,
) -> None:
    """Step one slice until the pipe ends: a worker's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin, end = places
    board = _Board.over(memory, num_envs, space)
    try:
        envs = make(num_envs=end - begin, first=begin)
        commands: dict[str, Callable[[Any], Any]] = {
            "describe": lambda _: (envs.single_action_space, envs.identity),
            "reset": lambda seed: _show(board, begin, end, envs.reset(seed=seed)[0]),
            "step": lambda _: _step(board, begin, end, envs),
            "state": lambda _: envs.state(),
            "restore": lambda state: _show(board, begin, end, envs.restore(state)),
        }
        while True:
            command, argument = pipe.recv()
            pipe.send((True, commands[command](argument)))
    except EOFError:
        return
    except Exception:
        pipe.send((False, traceback.format_exc()))


def _show(board: _Board, begin: int, end: int, observations: Observations) -> None:
    board.observations[begin:end] = observations


def _step(board: _Board, begin: int, end: int, envs: Any) -> bool:
    """Step a slice; whether an episode ended."""
    observations, rewards, terminated, truncated, info = envs.step(board.actions[begin:end])
    board.observations[begin:end] = observations
    board.rewards[begin:end] = rewards
    board.terminated[begin:end] = terminated
    board.truncated[begin:end] = truncated
    board.life_lost[begin:end] = info.get("life_lost", False)
    if "final_obs" not in info:
        return False
    board.last[begin:end] = info["final_obs"]
    return True


class WorkerEnvs(VectorEnv[Observations, NDArray[np.int64], NDArray[Any]]):
    """B environments of which each of several processes steps a slice.

    Args:
        make: makes a slice; picklable.
        num_envs: B.
        processes: how many; changes no bit.
        observation_space: of one environment.
        pattern: arrays like those of the state, for all B; see `state.check_state`.
        tells_lives: whether `info` has `life_lost`.

    Raises:
        ValueError: fewer than one process, or more than environments.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        make: Slice,
        *,
        num_envs: int,
        processes: int,
        observation_space: Seen,
        pattern: State,
        tells_lives: bool,
    ) -> None:
        self._pipes: list[Connection] = []
        self._workers: list[Any] = []
        if not 1 <= processes <= num_envs:
            raise ValueError(
                f"processes = {processes}: must lie in 1..{num_envs}, the environments"
            )
        edges = [num_envs * k // processes for k in range(processes + 1)]
        self._counts = [end - begin for begin, end in pairwise(edges)]
        # Spawned, not forked: a fork copies locks that other threads hold, torch's and Ray's.
        context = get_context("spawn")
        # Nameless, so that no killed process leaves it behind.
        memory = context.RawArray(c_byte, _Board.size(num_envs, observation_space))
        self._board = _Board.over(memory, num_envs, observation_space)
        for places in pairwise(edges):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_serve,
                args=(theirs, memory, make, places, num_envs, observation_space),
                daemon=True,
            )
            worker.start()
            theirs.close()  # so that our end tells us of the worker's death
            self._pipes.append(ours)
            self._workers.append(worker)
        self.num_envs = num_envs
        self._pattern = pattern
        self._tells_lives = tells_lives
        self.single_observation_space = observation_space
        self.single_action_space, self._identity = self._ask("describe")[0]
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every environment; without a seed the generators go on."""
        super().reset(seed=seed)
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**63))
        self._seeded = True
        self._ask("reset", *[seed] * len(self._pipes))
        return self._board.observations.copy(), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[
        Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Take one action in each environment."""
        board = self._board
        board.actions[:] = actions
        ended = self._ask("step")
        terminated, truncated = board.terminated.copy(), board.truncated.copy()
        info: dict[str, Any] = {}
        if self._tells_lives:
            info["life_lost"] = board.life_lost.copy()
        if any(ended):
            info["final_obs"] = board.last.copy()
            info["_final_obs"] = terminated | truncated
        return board.observations.copy(), board.rewards.copy(), terminated, truncated, info

    def state(self) -> State:
        """Return what one process with all environments would."""
        return join_states(self._ask("state"))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Observations:
        """Go on from a state, of however many processes, and return the observations.

        Raises:
            ValueError: the state is of another game, of other settings or another B.
        """
        check_state(state, identity=self._identity, like=self._pattern)
        self._ask("restore", *split_state(state, self._counts))
        self._seeded = True
        return self._board.observations.copy()

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        for pipe in self.__dict__.pop("_pipes", []):
            pipe.close()
        for worker in self.__dict__.pop("_workers", []):
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()
                worker.join()

    def _ask(self, command: str, *arguments: Any) -> list[Any]:
        """Have every process carry out a command, and return what they answer.

        Raises:
            RuntimeError: one of them failed.
            ChildProcessError: one of them has died.
        """
        answers = []
        try:
            for pipe, argument in zip(
                self._pipes, arguments or [None] * len(self._pipes), strict=True
            ):
                pipe.send((command, argument))
            for number, pipe in enumerate(self._pipes):
                done, answer = pipe.recv()
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
