"""Which ROMs this machine has."""

from __future__ import annotations

from ale_py import roms

from leap_rl.envs.atari.games import ACTION_COUNTS


def missing_roms() -> list[str]:
    """Return the games whose ROM ale_py does not find."""
    return [game for game in ACTION_COUNTS if roms.get_rom_path(game) is None]
