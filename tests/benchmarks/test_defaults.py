from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.defaults import BUDGETS, Ended, final_return, main, spread

GAME = "CartPole-v1"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, GAME, 1600)


def test_the_last_tenth_counts() -> None:
    episodes = [Ended(900, 1.0), Ended(901, 2.0), Ended(1000, 4.0)]
    assert final_return(episodes, 1000) == 3.0
    assert final_return(episodes[:1], 1000) is None


def test_what_a_cell_says() -> None:
    assert spread([0.5, None, 0.75]) == "0.62 (0.50 to 0.75)"
    assert spread([-200.0, -100.4]) == "-150 (-200 to -100)"
    assert spread([None]) == "none ended"


def learn(out: Path, *agents: str) -> str:
    assert main(["--out", str(out), "--games", GAME, "--seeds", "0", "--agents", *agents]) == 0
    return (out / "defaults.md").read_text()


def test_agents_are_kept_and_not_learned_again(tmp_path: Path) -> None:
    head, _, row = learn(tmp_path, "random actions", "leap_rl").splitlines()
    assert head.endswith("| random actions | leap_rl |")
    assert row.startswith(f"| `{GAME}` | 1,600 | ")
    (tmp_path / f"{GAME}-leap_rl-0.json").write_text("123.0")
    assert "| 123 (123 to 123) |" in learn(tmp_path, "leap_rl")


def test_the_peer_learns_the_same_game(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="no dependency of leap_rl: pip install it")
    assert " to " in learn(tmp_path, "stable-baselines3").splitlines()[-1]


def test_other_options_have_a_column_of_their_own(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path), "--games", GAME, "--seeds", "0", "--agents"]
    assert main([*words, "--options", "gamma=0.5", "normalize_observations=true"]) == 0
    name = "leap_rl, gamma=0.5, normalize_observations=true"
    assert (tmp_path / "defaults.md").read_text().startswith(f"| game | agent steps | {name} |")
    with pytest.raises(ValueError, match=r"^agent\.gamma = 2: must lie in"):
        main([*words, "--options", "gamma=2"])
