"""One emulated Atari: how it is made, how an episode starts, its snapshots and its colors.

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

from leap_rl.envs.atari.games import find_mode
from leap_rl.envs.atari.preprocessing import WIDTH
from leap_rl.envs.atari.settings import AtariSettings

REPLAYED = frozenset({"qbert"})
"""Games whose clones lack a part; see the top of this module."""

NOOP: int = Action.NOOP.value
FIRE: int = Action.FIRE.value

# A pixel of `ALEInterface.getScreen` is an index into a palette of the game's television format. An
# even index is one of 128 colors: the hue in the upper four bits, the brightness in the next three.
# An odd one is the gray of the color before it: what a PAL set shows of a picture whose number of
# lines is odd, and what NTSC games never have.
# ALE's `NTSCPalette` and `PALPalette` (src/ale/common/Palettes.hpp, 0.12.1): RRGGBB, one hue a
# line, from dark to light.
_NTSC = """
000000 4a4a4a 6f6f6f 8e8e8e aaaaaa c0c0c0 d6d6d6 ececec
484800 69690f 86861d a2a22a bbbb35 d2d240 e8e84a fcfc54
7c2c00 904811 a26221 b47a30 c3903d d2a44a dfb755 ecc860
901c00 a33915 b55328 c66c3a d5824a e39759 f0aa67 fcbc74
940000 a71a1a b83232 c84848 d65c5c e46f6f f08080 fc9090
840064 97197a a8308f b846a2 c659b3 d46cc3 e07cd2 ec8ce0
500084 68199a 7d30ad 9246c0 a459d0 b56ce0 c57cee d48cfc
140090 331aa3 4e32b5 6848c6 7f5cd5 956fe3 a980f0 bc90fc
000094 181aa7 2d32b8 4248c8 545cd6 656fe4 7580f0 8490fc
001c88 183b9d 2d57b0 4272c2 548ad2 65a0e1 75b5ef 84c8fc
003064 185080 2d6d98 4288b0 54a0c5 65b7d9 75cceb 84e0fc
004030 18624e 2d8169 429e82 54b899 65d1ae 75e7c2 84fcd4
004400 1a661a 328432 48a048 5cba5c 6fd26f 80e880 90fc90
143c00 355f18 527e2d 6e9c42 87b754 9ed065 b4e775 c8fc84
303800 505916 6d762b 88923e a0ab4f b7c25f ccd86e e0ec7c
482c00 694d14 866a26 a28638 bb9f47 d2b656 e8cc63 fce070
"""
_PAL = """
000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
805800 96711a ab8732 be9c48 cfaf5c dfc06f eed180 fce090
445c00 5e791a 769332 8cac48 a0c25c b3d76f c4ea80 d4fc90
703400 89511a a06b32 b68448 c99a5c dcaf6f ecc280 fcd490
006414 1a8035 329852 48b06e 5cc587 6fd99e 80ebb4 90fcc8
700014 891a35 a03252 b6486e c95c87 dc6f9e ec80b4 fc90c8
005c5c 1a7676 328e8e 48a4a4 5cb8b8 6fcbcb 80dcdc 90ecec
70005c 841a74 963289 a8489e b75cb0 c66fc1 d380d1 e090e0
003c70 195a89 2f75a0 448eb6 57a5c9 68badc 79ceec 88e0fc
580070 6e1a89 8332a0 9648b6 a75cc9 b76fdc c680ec d490fc
002070 193f89 2f5aa0 4474b6 578bc9 68a1dc 79b5ec 88c8fc
340080 4a1a96 5f32ab 7248be 835ccf 936fdf a280ee b090fc
000088 1a1a9d 3232b0 4848c2 5c5cd2 6f6fe1 8080ef 9090fc
000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
"""

PAL_GAMES = frozenset({"adventure", "air_raid"})
"""The games whose ROM ale-py 0.12.1 runs in PAL format; the other 60 are NTSC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How an episode starts."""

    state: ALEState
    screen: NDArray[np.uint8]
    """[height, 160]: palette indices of the last frame."""
    lives: int


class Emulator:
    """An ALE emulator of a game in one mode, with the state that ALE lacks.

    `actions` are ALE's numbers of the game's minimal ones. `held` is the last frame's action, which
    a sticky frame repeats; `pressed` are those of all frames since the start, if `replayed`.
    """

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
        self.actions: list[int] = [action.value for action in self.ale.getMinimalActionSet()]
        self.height, width = self.ale.getScreenDims()
        assert width == WIDTH, f"a screen of {width} columns"
        self.held = NOOP
        self.replayed = self.game in REPLAYED or settings.frameskip < 3
        self.pressed = bytearray() if self.replayed else None

    def switch_on(self, state: ALEState) -> None:
        """Go to a state from which an episode starts or is replayed, the same in every emulator."""
        if self.pressed is not None:
            self.ale.reset_game()  # clears the picture tube and ends the television's frame
            self.pressed.clear()
        self.ale.restoreState(state)
        self.held = NOOP

    def press(self, action: int) -> int:
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
        """Resume from what `snapshot`, `pressed` and `held` were, in the same game."""
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


def palette(game: str) -> NDArray[np.uint8]:
    """Return the game's colors, uint8 [256, 3], as `getScreenRGB` gives them."""
    table = _PAL if game in PAL_GAMES else _NTSC
    even = np.frombuffer(bytes.fromhex(table), dtype=np.uint8).reshape(128, 3)
    odd = np.repeat(luminances(even)[:, None], 3, axis=1)
    return np.stack((even, odd), axis=1).reshape(256, 3)


def luminances(colors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the gray of colors [..., 3], as ALE computes it (ColourPalette.cpp).

    That of an odd index is its own. `getScreenGrayscale` has there, by an oversight, the blue of
    the color after it.
    """
    gray: NDArray[np.int64] = (colors @ np.array([2989, 5870, 1140]) + 5000) // 10000
    return gray.astype(np.uint8)
