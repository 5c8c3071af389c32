"""One emulated Atari: how it is made, how an episode starts, and its snapshots.

**An episode's start is a function of the number of no-ops.** Each episode begins where the emulator
stood after it was switched on and reset once; then come the no-ops and, where settings ask for it,
FIRE. ALE's own `reset_game` takes over a timer and leftovers in memory from the episode before: in
17 of the 62 games that made a difference within 400 frames. It also takes 64 frames and more, while
a state is restored in half of one; so the states after 0 to 30 no-ops are cached (`Starts`).

**A clone is not all.** `cloneState` leaves out three things in ale-py 0.12.1:

* the action that a sticky frame repeats: it, and the draws, are therefore our own;
* the picture tube, whose old contents may shine through in the first frame after a restore (seen
  in yars_revenge). With a frameskip of 3 or more that frame is never looked at;
* whether the television is in the middle of a frame (`myPartialFrameFlag`), which decides how long
  the next frame lasts. It is only ever so in qbert. (Fixed upstream after 0.12.1.)

Where one of the last two matters, an emulator is `replayed`: an episode's start is never cached,
and a snapshot holds the very start, with all that was pressed since.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ale_py import Action, ALEInterface, ALEState, LoggerMode, roms
from numpy.typing import NDArray

from leap_rl.envs.atari.modes import find_mode
from leap_rl.envs.atari.palette import palette
from leap_rl.envs.atari.preprocessing import WIDTH
from leap_rl.envs.atari.settings import AtariSettings

REPLAYED = frozenset({"qbert"})
"""Games whose clones lack a part; see the top of this module."""

NOOP: int = Action.NOOP.value
FIRE: int = Action.FIRE.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How an episode starts."""

    state: ALEState
    screen: NDArray[np.uint8]
    """[height, 160]: palette indices of the last frame."""
    lives: int


class Emulator:
    """An ALE emulator of a game in one mode, with the state that ALE lacks."""

    game: str
    """The game, without its mode and difficulty."""
    ale: ALEInterface
    actions: list[int]
    """ALE's number of each of the game's minimal actions."""
    height: int
    """Rows of the screen."""
    held: int
    """The last frame's action, which a sticky frame repeats."""
    pressed: bytearray | None
    """One action a frame since the start state, if `replayed`."""

    def __init__(self, name: str, settings: AtariSettings) -> None:
        mode = find_mode(name)
        self.game = mode.game
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", 0)  # of ALE's sticky actions, which are off
        self.ale.setFloat("repeat_action_probability", 0.0)
        rom = roms.get_rom_path(self.game)
        assert rom is not None, f"ale_py has no ROM of {self.game}"
        self.ale.loadROM(rom)
        # From the next reset on. A state has them too, for its own emulator and any other.
        self.ale.setMode(mode.mode)
        self.ale.setDifficulty(mode.difficulty)
        self.actions = [action.value for action in self.ale.getMinimalActionSet()]
        self.height, width = self.ale.getScreenDims()
        assert width == WIDTH, f"a screen of {width} columns"
        self.held = NOOP
        self.replayed = self.game in REPLAYED or settings.frameskip < 3
        self.pressed = bytearray() if self.replayed else None

    @property
    def recorded(self) -> bytes:
        """What was pressed since the start state; nothing unless `replayed`."""
        return bytes(self.pressed or b"")

    def switch_on(self, state: ALEState) -> None:
        """Go to a state from which an episode starts or is replayed, the same in every emulator."""
        if self.pressed is not None:
            self.ale.reset_game()  # clears the picture tube and ends the television's frame
            self.pressed.clear()
        self.ale.restoreState(state)
        self.held = NOOP

    def press(self, action: int) -> int:
        """Press a button for a frame and return its reward."""
        self.held = action
        if self.pressed is not None:
            self.pressed.append(action)
        reward: int = self.ale.act(action)
        return reward

    def snapshot(self, switched_on: ALEState) -> bytes:
        """Return the state, in ALE's own format; only the start if `replayed`."""
        state = switched_on if self.replayed else self.ale.cloneState(include_rng=True)
        saved: bytes = state.serialize()
        return saved

    def restore(self, state: bytes, recorded: bytes, held: int) -> None:
        """Resume from what `snapshot`, `recorded` and `held` gave, in the same game."""
        self.switch_on(ALEState(state))
        for action in recorded:
            self.press(action)
        self.held = held


class Starts:
    """The starts of one game's episodes, by the number of no-ops; shared by all its emulators."""

    def __init__(self, emulator: Emulator, settings: AtariSettings) -> None:
        ale = emulator.ale
        ale.reset_game()
        self.switched_on: ALEState = ale.cloneState(include_rng=True)
        self._first_screen = ale.getScreen()
        colors = palette(emulator.game)[self._first_screen]
        assert np.array_equal(colors, ale.getScreenRGB()), f"the palette of {emulator.game}"
        fires = settings.fire_reset and FIRE in emulator.actions
        self._fire_frames = settings.frameskip if fires else 0
        self._cached: dict[int, Start] = {}

    def start(self, emulator: Emulator, noops: int) -> Start:
        """Start an episode after so many no-ops."""
        if noops in self._cached:
            start = self._cached[noops]
            emulator.switch_on(start.state)
            if self._fire_frames:
                emulator.held = FIRE
            return start
        ale = emulator.ale
        emulator.switch_on(self.switched_on)
        frames = 0  # since it was switched on
        for action, count in ((NOOP, noops), (FIRE, self._fire_frames)):
            for _ in range(count):
                emulator.press(action)
                frames += 1
                if ale.game_over():
                    emulator.switch_on(self.switched_on)
                    frames = 0
        start = Start(
            state=ale.cloneState(include_rng=True),
            # A restored emulator shows its old screen until the next frame.
            screen=ale.getScreen() if frames else self._first_screen,
            lives=ale.lives(),
        )
        if not emulator.replayed:
            self._cached[noops] = start
        return start
