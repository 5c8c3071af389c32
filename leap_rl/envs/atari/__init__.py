"""Atari 2600 games: the emulator, its screens, modes and pools."""
