"""The time from the command to an agent's first update, measured from outside.

`leap-rl learn` runs in a process of its own with a budget of one update, once for each runtime. A
watcher notes when it says where its run folder is (everything is imported and checked by then) and
when the agent's slot is on disk, which is after the first update and one more batch. What lies
between is told apart by doing the parts alone, each in a fresh process:

* import: `python -c "import leap_rl.cli.learn"`, which is most of it, torch above all;
* ray: a cluster that starts and answers, as `leap-rl doctor` takes it;
* roms: making the environments, from the first ROM to the first observation.

What then remains of the whole is the first update, with the compilation or the loading of kernels,
and in Ray the trainer process's own start and imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.system.config import StartupConfig
from leap_rl.bench.machine import circumstances
from leap_rl.core.errors import RunFailedError

RUNTIMES: Final = ("local", "ray")
LONGEST_S = 300.0
LOOK_EVERY_S = 0.005

_IMPORT = "import leap_rl.cli.learn"

_ROMS = """\
import sys, time
from leap_rl.envs.atari.envs import AtariEnvs
from leap_rl.envs.atari.settings import AtariSettings
started = time.monotonic()
AtariEnvs(sys.argv[1], num_envs=int(sys.argv[2]), settings=AtariSettings()).reset(seed=0)
print(time.monotonic() - started)
"""

_RAY = """\
from leap_rl.training.runtime.ray.environment import probe_own_cluster
print(probe_own_cluster())
"""


def measure(config: StartupConfig, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure how long it takes to the first update.

    Args:
        config: Of which game, and how often.
        progress: Called now and then with what is going on.

    Returns:
        The metrics by name, all of them plain values, in seconds; medians over the repeats.
    """
    taken: dict[str, list[float]] = {}
    for number in range(config.repeats):
        progress(f"starting, {number + 1} of {config.repeats}")
        for name, seconds in _once(config).items():
            taken.setdefault(name, []).append(seconds)
    parts = {name: median(seconds) for name, seconds in taken.items()}
    return {
        "bench": "startup",
        "game": config.game,
        "envs": config.envs,
        "repeats": config.repeats,
        "local": runtime_parts(parts, "local"),
        "ray": runtime_parts(parts, "ray"),
        **circumstances(),
    }


def runtime_parts(taken: Mapping[str, float], runtime: str) -> dict[str, float]:
    """Return the parts of one runtime's start in seconds; they add up to `total_s`.

    Args:
        taken: Seconds of `import`, `ray` and `roms` alone, and, for each runtime, until the run's
            `folder` was announced and until the agent was `updated`.
        runtime: local or ray.
    """
    total, folder = taken[f"{runtime}_updated"], taken[f"{runtime}_folder"]
    parts = {
        "import_s": taken["import"],
        "config_s": folder - taken["import"],
        "ray_s": taken["ray"] if runtime == "ray" else 0.0,
        "roms_s": taken["roms"],
    }
    parts["first_update_s"] = total - sum(parts.values())
    return {name: round(seconds, 3) for name, seconds in (*parts.items(), ("total_s", total))}


def _once(config: StartupConfig) -> dict[str, float]:
    started_s = time.monotonic()
    _python(_IMPORT)
    taken = {"import": time.monotonic() - started_s}
    taken["roms"] = float(_python(_ROMS, config.game, str(config.envs)))
    taken["ray"] = float(_python(_RAY))
    for runtime in RUNTIMES:
        taken[f"{runtime}_folder"], taken[f"{runtime}_updated"] = _learn(config, runtime)
    return taken


def _learn(config: StartupConfig, runtime: str) -> tuple[float, float]:
    """Return the seconds until the run's folder is announced, and until an update is done."""
    with tempfile.TemporaryDirectory(prefix="leap_rl-bench-") as parent:
        run = Path(parent) / "run"
        options = {
            "run_dir": str(run),
            "runtime.kind": runtime,
            "runtime.trainers": "1",
            "task.games": f'["{config.game}"]',
            "task.num_envs": str(config.envs),
            "task.agent_steps": str(config.envs * 5),
            "tracking.tensorboard": "false",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        log = Path(parent) / "output"
        started_s = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "leap_rl", "learn", *words], stdout=output, stderr=output
            )
        try:
            announced_s = _wait(process, log, lambda: b"run folder" in log.read_bytes())
            slot_or_checkpoint = ("slots/*/*.safetensors", "checkpoints/000001")
            updated_s = _wait(
                process, log, lambda: any(any(run.glob(name)) for name in slot_or_checkpoint)
            )
            process.wait(LONGEST_S)
        finally:
            process.terminate()
            process.wait()
        return announced_s - started_s, updated_s - started_s


def _wait(process: subprocess.Popen[bytes], log: Path, happened: Callable[[], bool]) -> float:
    """Return when something happened, monotonic seconds.

    Raises:
        RunFailedError: The process ended without it, or it takes too long.
    """
    until_s = time.monotonic() + LONGEST_S
    while time.monotonic() < until_s:
        ended = process.poll() is not None
        if happened():
            return time.monotonic()
        if ended:
            break
        time.sleep(LOOK_EVERY_S)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise RunFailedError(f"`leap-rl learn` made no update: {' '.join(last)}")


def _python(code: str, *arguments: str) -> str:
    """Run code in a fresh process and return what it prints."""
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        last = run.stderr.strip().splitlines()[-1:]
        raise RunFailedError(f"a part of the start failed: {' '.join(last)}")
    return run.stdout


def table(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as a table for people."""
    explained = {
        "import_s": "Python and most imports",
        "config_s": "options read and checked, run folder made",
        "ray_s": "a Ray cluster of our own starts and answers",
        "roms_s": "emulators made and reset",
        "first_update_s": "the rest: kernels, acting, one update (Ray: a trainer's own imports)",
        "total_s": "from the command to the first update",
    }
    lines = [
        f"leap-rl learn, {metrics['game']}, {metrics['envs']} environments; "
        f"medians of {metrics['repeats']}, in seconds",
        f"{metrics['processor']}, {metrics['cores']} cores",
        "",
        f"  {'':<16} {'local':>7} {'ray':>7}",
    ]
    lines += [
        f"  {name:<16} {metrics['local'][name]:>7.2f} {metrics['ray'][name]:>7.2f}  {text}"
        for name, text in explained.items()
    ]
    return "\n".join(lines)
