"""A small evaluation's estimates against the oracle's, which reads the episodes' file itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from leap_rl.cli import main
from leap_rl.evaluation.comparison import read_summary
from leap_rl.evaluation.estimates import estimates_document
from leap_rl.storage.run_folder import RunFolder
from tests.evaluation import oracle

LOCALLY = ["--runtime.kind", "local", "--tracking.tensorboard", "false"]
LOCALLY += ["--tracking.console", "quiet"]
CATCH = ["--task.kind", "catch", "--task.games", "catch", "--task.num_envs", "8"]
CATCH += ["--agent.lr", "0.01", "--task.unroll_length", "4", "--meta.meta_steps", "1"]
BUDGET, AGENTS, RANDOM_AGENTS = 960, 5, 7


def literal(folder: Path) -> dict[tuple[str, int, str], list[oracle.Agent]]:
    """Agents by initialization, run and game, in slot order: seed, game, initialization, run."""
    described = json.loads((folder / "checkpoints/000000/state.json").read_text())["evaluation"]
    episodes = pq.read_table(folder / "curves/000000.parquet").to_pylist()
    found: dict[tuple[str, int, str], list[oracle.Agent]] = {}
    slot = 0
    counts = {"random": described.get("random_agents", described["seeds"])}
    for seed in range(max(described["seeds"], *counts.values())):
        for game in described["games"]:
            for name in described["initializations"]:
                if seed >= counts.get(name, described["seeds"]):
                    continue
                for run in range(len(described["runs"].get(name, [name]))):
                    own = [one for one in episodes if one["slot"] == slot]
                    agent = tuple((one["agent_steps"], one["episode_return"]) for one in own)
                    found.setdefault((name, run, game), []).append(agent)
                    slot += 1
    return found


@pytest.mark.usefixtures("without_plots")
def test_estimates_are_those_of_the_episodes_file(tmp_path: Path) -> None:
    for seed in ("0", "1"):
        argv = ["train", *CATCH, *LOCALLY, "--seed", seed, "--run_dir", str(tmp_path / seed)]
        assert main([*argv, "--meta.batch_size", "1", "--task.agent_steps", "320"]) == 0
    out = tmp_path / "out"
    argv = ["--init", f"leap={tmp_path / '0'},{tmp_path / '1'}", "--seeds", str(AGENTS)]
    argv += ["--games", "catch", "--agent_steps", str(BUDGET)]
    argv += ["--random_agents", str(RANDOM_AGENTS)]
    assert main(["evaluate", *argv, *LOCALLY, "--out", str(out)]) == 0
    summary = read_summary(RunFolder(out))
    (comparison,) = summary.comparisons
    document = estimates_document(summary)
    assert comparison.trained == 320
    agents = literal(out)
    assert [len(of) for of in agents.values()] == [RANDOM_AGENTS, AGENTS, AGENTS]
    assert summary.evaluation.complete
    pair = [agents["leap", run, "catch"] for run in range(2)], agents["random", 0, "catch"]
    found: dict[str, Any] = {
        row["measure"]: row for row in document["rows"] if row["member"] == "catch"
    }
    windows = oracle.windows_of(pair[1], BUDGET)
    random = oracle.side_of([pair[1]], BUDGET, windows[:2])
    reference = document["members"][0]["reference"]
    assert (reference["m0"], reference["m1"]) == pytest.approx((random.first, random.final))
    expected = oracle.estimate(oracle.saved(BUDGET), [pair], BUDGET)
    assert comparison.games["catch"].saved == pytest.approx(expected, rel=1e-9)
    assert comparison.games["catch"].most == pytest.approx(oracle.most(BUDGET, random))
    if reference["verdict"] in ("sound", "uncertain"):
        row = found["agent_steps_saved"]
        assert [row["estimate"], row["low"], row["high"]] == pytest.approx(expected, rel=1e-9)
    final = oracle.estimate(lambda ours, theirs: ours.final - theirs.final, [pair], BUDGET)
    row = found["final_return_difference"]
    assert [row["estimate"], row["low"], row["high"]] == pytest.approx(final, rel=1e-9)
    assert (row["runs"], row["agents"]) == (2, AGENTS)
    assert "<h2>Agent steps saved</h2>" in (out / "report" / "index.html").read_text()
