"""Agents that are carried over from round to round: pretraining's.

    RUN/carried_over/000012/pong.safetensors  pong's agent as it was at the end of round 12

A checkpoint has the round in which each game's agent was last trained. Agents that neither the
newest checkpoint nor the one before it refers to are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leap_rl.core.regular_file import read_regular
from leap_rl.storage.checksummed_file import ChecksumError, decode_arrays, encode_arrays
from leap_rl.storage.locked_folder import RunFolderError
from leap_rl.storage.run_folder import RunFolder, file_name
from leap_rl.training.messages import Bytes
from leap_rl.training.rounds.plan import DroppedSlot, FilledSlot


class CarriedAgents:
    """The agents of a run; `rounds` is the newest checkpoint's, by game."""

    def __init__(self, folder: RunFolder, fingerprint: str, rounds: Mapping[str, int]) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._rounds = dict(rounds)
        self._before = self._rounds

    def read(self, game: str) -> Bytes | None:
        """Return the snapshot of a game's agent, or none before its first round.

        Raises:
            RunFolderError: It is missing, damaged, or of another run.
        """
        if game not in self._rounds:
            return None
        number = self._rounds[game]
        path = self._folder.carried_agent(number, game)
        try:
            arrays, header = decode_arrays(read_regular(path))
            if header != self._header(game):
                raise RunFolderError(f"{path}: belongs to another game or run")
            agent: Bytes = arrays["agent"]
        except (OSError, ChecksumError, KeyError) as error:
            raise RunFolderError(
                f"{path}: cannot be resumed from ({error}); a fork of the run at checkpoint "
                f"{self._folder.latest()} starts with new agents"
            ) from None
        return agent

    def after(self, number: int, results: Sequence[FilledSlot | DroppedSlot]) -> dict[str, int]:
        """Write the agents that a round leaves; returns the rounds for its checkpoint."""
        rounds = dict(self._rounds)
        for slot in results:
            if isinstance(slot, FilledSlot) and slot.carried_agent is not None:
                path = self._folder.carried_agent(number, slot.spec.game)
                self._folder.write(
                    path, encode_arrays({"agent": slot.carried_agent}, self._header(slot.spec.game))
                )
                rounds[slot.spec.game] = number
        return rounds

    def committed(self, rounds: Mapping[str, int]) -> None:
        """Take the rounds of a checkpoint that is on disk, and remove agents out of use."""
        self._before, self._rounds = self._rounds, dict(rounds)
        used = {*self._before.items(), *self._rounds.items()}
        for folder in self._folder.carried_rounds():
            games = {file_name(game) for game, number in used if number == int(folder.name)}
            if not games:
                self._folder.remove(folder, ignore_errors=True)
                continue
            for path in folder.glob("*.safetensors"):
                if path.stem not in games:
                    self._folder.remove(path)

    def _header(self, game: str) -> dict[str, str]:
        return {"fingerprint": self._fingerprint, "game": game}
