"""Gymnasium's CartPole with other physics: a family of tasks that look alike and move differently.

`leap_rl/CartPole-v1@gravity=20.0,length=1.0` is a game; without arguments it is `CartPole-v1`.
Importing this module registers it.
"""

from __future__ import annotations

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class CartPole(CartPoleEnv):
    """A pole on a cart (Barto, Sutton and Anderson 1983), in Gymnasium's equations.

    Gravity is in m/s², masses in kg, `length`, half the pole's, in m, `force_mag` of a push to
    either side in N. `swapped` actions change places. `render_mode` is Gymnasium's. ValueError: a
    mass or the length is not greater than 0, or `swapped` is no boolean.
    """

    def __init__(
        self,
        *,
        gravity: float = 9.8,
        masscart: float = 1.0,
        masspole: float = 0.1,
        length: float = 0.5,
        force_mag: float = 10.0,
        swapped: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if swapped not in (True, False):  # as the word `no`, which is true to Python
            raise ValueError(f"swapped = {swapped}: must be true or false")
        for name, value in (("masscart", masscart), ("masspole", masspole), ("length", length)):
            if not value > 0:
                raise ValueError(f"{name} = {value}: must be greater than 0")
        super().__init__(render_mode=render_mode)
        self.gravity = gravity
        self.masscart = masscart
        self.masspole = masspole
        self.length = length
        self.force_mag = -force_mag if swapped else force_mag
        self.total_mass = self.masspole + self.masscart
        self.polemass_length = self.masspole * self.length


gymnasium.register("leap_rl/CartPole-v1", entry_point=f"{__name__}:CartPole", max_episode_steps=500)
