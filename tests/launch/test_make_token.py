from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make_token(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(ROOT / "launch/make-token"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_token_is_made_where_ray_looks_for_it(tmp_path: Path) -> None:
    done = make_token(home=tmp_path)
    token = tmp_path / ".ray" / "auth_token"
    assert (done.returncode, done.stdout) == (0, f"token in {token}\n")
    assert len(token.read_text()) == 64
    assert set(token.read_text()) <= set("0123456789abcdef")
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert token.read_text() not in done.stdout


def test_two_tokens_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert make_token(str(tmp_path / name), home=tmp_path).returncode == 0
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


@pytest.mark.parametrize("kind", ["file", "link to nowhere"])
def test_what_is_there_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, beyond = tmp_path / "token", tmp_path / "beyond"
    if kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(beyond)
    done = make_token(str(path), home=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"make-token: {path}: is there already and stays")
    assert done.stderr.count("\n") == 1
    assert not beyond.exists()
    assert kind != "file" or path.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--overwrite"], "no such option"),
        (["a", "b"], "takes one FILE"),
        (["/proc/none/token"], "cannot be made"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    done = make_token(*words, home=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_says_what_a_token_is(tmp_path: Path) -> None:
    done = make_token("--help", home=tmp_path)
    assert done.returncode == 0
    assert "never overwritten" in done.stdout
    assert not (tmp_path / ".ray").exists()
