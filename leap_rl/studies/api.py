"""Studies from Python: carry one out, read what it came to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leap_rl.core.errors import RunFailedError
from leap_rl.core.parsing import refuse_imports
from leap_rl.evaluation.estimates import ESTIMATES
from leap_rl.studies.config import StudyConfig
from leap_rl.studies.folder import StudyFolder
from leap_rl.training.interrupts import StopReason

if TYPE_CHECKING:
    from pandas import DataFrame


class Study:
    """A study in its folder. It may be finished, or stopped.

    Args:
        path: The folder.

    Raises:
        ValueError: There is no study.
    """

    def __init__(self, path: str | Path) -> None:
        self._folder = StudyFolder.at(path)
        config = self._folder.read()
        if config is None:
            raise ValueError(f"{path}: holds no study; leap_rl.study makes one")
        self.config: StudyConfig = config
        """Every option of the study."""

    def __repr__(self) -> str:
        """Say where it is."""
        return f"<Study {self.path}>"

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @property
    def page(self) -> Path:
        """The page: question, answer, figures, tables, costs."""
        return self._folder.page

    @property
    def verdict(self) -> str:
        """The answer in sentences, a line each.

        Raises:
            ValueError: Its page was not written yet.
        """
        return "\n".join(self._folder.read_estimates()["answer"])

    def estimates(self) -> DataFrame:
        """Return a row for each arm, member and measure, with its 95 % interval.

        Raises:
            ValueError: Its page was not written yet.
        """
        from pandas import DataFrame

        return DataFrame(self._folder.read_estimates().get("rows", []), columns=list(ESTIMATES))

    @property
    def best(self) -> Path:
        """The file of the initialization from which new agents learned best.

        Where they took a part of it, as in `leap_mixed`, `best_start_mix` of estimates.json is its
        share λ: they started from λ · this + (1 − λ) · a random start.

        Raises:
            ValueError: No run has finished agents in all members, or random's are missing.
        """
        best: str | None = self._folder.read_estimates()["best_start"]
        if best is None:
            raise ValueError(
                f"{self.path}: no run has finished agents in all members, or random's are missing; "
                "carry it out again"
            )
        return self.path / best


def study(
    config: StudyConfig | str | Path,
    *,
    out: str | Path,
    options: Mapping[str, Any] | None = None,
    trust_imports: bool = False,
    quiet: bool = False,
) -> Study:
    """Find out which start helps new agents on a family of environments, as `leap-rl study` does.

    Ctrl-C stops it and raises KeyboardInterrupt; called again it resumes, to the same bits. Its
    cells are computed in processes of their own.

    Args:
        config: The study, or its file.
        out: The study's folder, new, or one in which it was begun.
        options: With a file, any options by dotted name, over the file's.
        trust_imports: Whether modules may be imported that the study names.
        quiet: Whether the study says nothing on stderr.

    Returns:
        The study; it is not finished if its time was over (runtime.stop_after_s).

    Raises:
        ValueError: The study cannot be; the message names the field.
        RunFailedError: A cell failed, or the study was told to terminate.
    """
    if isinstance(config, StudyConfig):
        if options:
            raise ValueError("options: are of a study's file; a StudyConfig has its own")
    else:
        config = StudyConfig.from_yaml(config, options, trust_imports=trust_imports)
    if not trust_imports:
        refuse_imports(config.imports)
    if quiet:
        config = replace(config, tracking=replace(config.tracking, console="quiet"))
    from leap_rl.studies.study import carry_out

    folder = StudyFolder.at(out)
    started_s = time.monotonic()
    outcome = carry_out(folder, config, trusts_imports=trust_imports, started_s=started_s)
    if outcome.status == StopReason.INTERRUPTED.value:
        raise KeyboardInterrupt
    if outcome.status == StopReason.TERMINATED.value:
        raise RunFailedError("leap-rl study was told to terminate; call it again to resume")
    return Study(folder.path)
