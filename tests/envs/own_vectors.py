"""Somebody's own vectors, as `tests.envs.own_vectors:Walks-v0`; importing this registers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from tests.envs.own_games import Walk

MODULE = "tests.envs.own_vectors"
WALKS = f"{MODULE}:Walks-v0"
LIFTS = f"{MODULE}:Lifts-v0"


class Fresh(Walk):
    """Uses no memory again: in SAME_STEP Gymnasium's vector does not copy last observations."""

    def _see(self) -> Any:
        return np.array(super()._see())


def walks(num_envs: int, mode: str = "NEXT_STEP", **arguments: Any) -> SyncVectorEnv:
    """Gymnasium's own vector of single environments."""
    make: list[Callable[[], Any]] = [lambda: Fresh(**arguments)] * num_envs
    return SyncVectorEnv(make, autoreset_mode=AutoresetMode[mode])


class Lifts(VectorEnv[Any, Any, Any]):
    """Lifts that go down, stay or go up; environment i is cut off after 3 + i mod 3 steps.

    An observation is (level, agent steps, draw), a reward the level; a lift that is above level 2
    is over. Unlike Gymnasium's vectors it writes over the arrays that it has handed out.
    """

    single_observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    single_action_space = Discrete(3)

    def __init__(
        self, num_envs: int, mode: str = "NEXT_STEP", fault: str = "", continuous: bool = False
    ) -> None:
        self.num_envs = num_envs + (fault == "more")
        self.fault = fault
        self.metadata = {} if fault == "silent" else {"autoreset_mode": AutoresetMode[mode]}
        self.next_step = mode == "NEXT_STEP"
        self.continuous = continuous
        if continuous:
            self.single_action_space = Box(-5, 5, (1,), np.float32)
        self.seen = np.zeros((num_envs, 3), np.float32)
        self.limits = 3 + np.arange(num_envs) % 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=None if self.fault == "wild" else seed)
        self.ended = np.ones(self.num_envs, np.bool_)
        self.begin()
        self.ended = np.zeros(self.num_envs, np.bool_)
        return self.seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        taken = actions[:, 0] / 5 if self.continuous else actions - 1
        begun = self.ended if self.next_step else np.zeros(self.num_envs, np.bool_)
        self.seen[~begun, 0] += taken[~begun]
        self.seen[~begun, 1] += 1
        self.seen[~begun, 2] = self.np_random.random(int((~begun).sum()))
        terminated = (self.seen[:, 0] > 2) & ~begun
        truncated = (self.seen[:, 1] >= self.limits) & ~begun
        rewards = np.where(begun, np.nan if self.fault == "junk" else 0, self.seen[:, 0])
        info: dict[str, Any] = {}
        if not self.next_step:
            if self.fault != "no_final":
                info = {"final_obs": self.seen.copy()}
            self.ended = terminated | truncated
        self.begin()
        if self.next_step:
            self.ended = terminated | truncated | (begun if self.fault == "twice" else False)
            terminated = terminated | (begun if self.fault == "twice" else False)
        return self.seen, rewards, terminated, truncated, info

    def begin(self) -> None:
        self.seen[self.ended, :2] = 0
        self.seen[self.ended, 2] = self.np_random.random(int(self.ended.sum()))


class SavedLifts(Lifts):
    """The same with snapshots."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        state = self.np_random.bit_generator.state["state"]
        halves = [*divmod(state["state"], 2**64), *divmod(state["inc"], 2**64)]
        kept = {"seen": self.seen, "ended": self.ended, "drawn": np.array(halves, np.uint64)}
        return {"seen": self.seen} if self.fault == "forgetful" else kept

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        self.seen = state["seen"]
        self.ended = state.get("ended", np.zeros(self.num_envs, np.bool_))
        bits = np.random.PCG64()
        if "drawn" in state:
            high, low, inc_high, inc_low = map(int, state["drawn"])
            numbers = {"state": high * 2**64 + low, "inc": inc_high * 2**64 + inc_low}
            bits.state = {
                "bit_generator": "PCG64", "state": numbers, "has_uint32": 0, "uinteger": 0,
            }  # fmt: skip
        self.np_random = np.random.Generator(bits)


gymnasium.register("Walks-v0", vector_entry_point=walks)
gymnasium.register("Lifts-v0", vector_entry_point=Lifts)
gymnasium.register("SavedLifts-v0", vector_entry_point=SavedLifts)
