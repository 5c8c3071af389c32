"""A small evaluation's estimates against the oracle's, which reads the episodes' file itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from leap_rl.cli import main
from leap_rl.evaluation import plots
from leap_rl.evaluation.comparison import read_summary
from leap_rl.evaluation.estimates import estimates_document
from leap_rl.storage.run_folder import RunFolder
from tests.evaluation import oracle

LOCALLY = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
LOCALLY += ["--tracking.console", "quiet"]
CATCH = ["--task.kind", "catch", "--task.games", "catch", "--task.num_envs", "8"]
CATCH += ["--agent.lr", "0.01", "--task.unroll_length", "4", "--meta.meta_steps", "1"]
BUDGET, AGENTS = 3_200, 5


def literal(folder: Path) -> dict[tuple[str, int, str], list[oracle.Agent]]:
    """Agents by initialization, run and game, in slot order: seed, game, initialization, run."""
    described = json.loads((folder / "checkpoints/000000/state.json").read_text())["evaluation"]
    episodes = pq.read_table(folder / "curves/000000.parquet").to_pylist()
    found: dict[tuple[str, int, str], list[oracle.Agent]] = {}
    slot = 0
    for _ in range(described["seeds"]):
        for game in described["games"]:
            for name in described["initializations"]:
                for run in range(len(described["runs"].get(name, [name]))):
                    own = [one for one in episodes if one["slot"] == slot]
                    agent = tuple((one["agent_steps"], one["episode_return"]) for one in own)
                    found.setdefault((name, run, game), []).append(agent)
                    slot += 1
    return found


def test_estimates_are_those_of_the_episodes_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "DPI", 30)
    for seed in ("0", "1"):
        argv = ["train", *CATCH, *LOCALLY, "--seed", seed, "--run_dir", str(tmp_path / seed)]
        assert main([*argv, "--meta.batch_size", "1", "--task.agent_steps", "320"]) == 0
    out = tmp_path / "out"
    argv = ["--init", f"leap={tmp_path / '0'},{tmp_path / '1'}", "--seeds", str(AGENTS)]
    argv += ["--games", '["catch", "catch_dark"]', "--agent_steps", str(BUDGET)]
    assert main(["evaluate", *argv, *LOCALLY, "--out", str(out)]) == 0
    summary = read_summary(RunFolder(out))
    (comparison,) = summary.comparisons
    document = estimates_document(summary)
    assert comparison.trained == 320
    agents = literal(out)
    assert {len(of) for of in agents.values()} == {AGENTS}
    games = {
        game: ([agents["leap", run, game] for run in range(2)], agents["random", 0, game])
        for game in ("catch", "catch_dark")
    }
    statistic = oracle.saved(BUDGET)
    for (game, pair), member in zip(games.items(), document["members"], strict=True):
        found: dict[str, Any] = {
            row["measure"]: row for row in document["rows"] if row["member"] == game
        }
        windows = oracle.windows_of(pair[1], BUDGET)
        random = oracle.side_of([pair[1]], BUDGET, windows[:2])
        reference = member["reference"]
        assert (reference["m0"], reference["m1"]) == pytest.approx((random.first, random.final))
        assert reference["verdict"] in ("sound", "uncertain"), reference
        expected = oracle.estimate(statistic, [pair], BUDGET)
        row = found["agent_steps_saved"]
        assert [row["estimate"], row["low"], row["high"]] == pytest.approx(expected, rel=1e-9)
        assert (row["runs"], row["agents"]) == (2, AGENTS)
        share = found["agent_steps_saved_share"]["estimate"]
        assert share == pytest.approx(expected[0] / oracle.most(BUDGET, random))
        final = oracle.estimate(lambda ours, theirs: ours.final - theirs.final, [pair], BUDGET)
        row = found["final_return_difference"]
        assert [row["estimate"], row["low"], row["high"]] == pytest.approx(final, rel=1e-9)
    both = oracle.estimate(statistic, list(games.values()), BUDGET)
    assert comparison.over["all"].saved == pytest.approx(both, rel=1e-9)
    assert (out / "report" / "index.html").read_text().count("Agent steps saved") > 0
