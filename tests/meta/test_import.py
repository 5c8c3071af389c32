"""`leap_rl.meta` is for anybody's loop: it imports torch and a few files of its own."""

from __future__ import annotations

import subprocess
import sys

ALLOWED = {
    "leap_rl",
    *("leap_rl.meta", "leap_rl.meta.config", "leap_rl.meta.gradient_path", "leap_rl.meta.leap"),
    *("leap_rl.meta.outer_step", "leap_rl.meta.relatives", "leap_rl.meta.vectors"),
    "leap_rl.meta.watch",
}


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_beyond_torch_it_imports_its_own_files_alone() -> None:
    """Without the metadata of an installed package, which take longer to find than all of these."""
    imported = python(
        "import sys, torch\n"
        "sys.modules['importlib.metadata'] = None  # an ImportError for whoever asks for it\n"
        "before = set(sys.modules)\n"
        "from leap_rl.meta import *\n"
        "print(*sorted(set(sys.modules) - before))\n"
        "Leap().start(torch.zeros(2)).observe(torch.zeros(2), 0.0, torch.zeros(2))\n"
        "OuterStep(torch.zeros(2), optimizer='adam', meta_lr=1.0).step([torch.ones(2)])\n"
        "assert 'torch._dynamo' not in sys.modules\n"  # torch's compiler: seconds
    )
    assert set(imported.split()) == ALLOWED


def test_configs_are_read_without_torch() -> None:
    python(
        "import sys\n"
        "from leap_rl.meta import MetaConfig\n"
        "from leap_rl.learners.config import AgentConfig\n"
        "import leap_rl.learners.registry\n"
        "from leap_rl.tasks.config import TaskConfig\n"
        "MetaConfig(), AgentConfig(), TaskConfig()\n"
        "sys.exit('torch' in sys.modules)\n"
    )


def test_a_copy_that_was_not_installed_has_no_version() -> None:
    python(
        "from importlib import metadata\n"
        "def missing(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = missing\n"
        "import leap_rl\n"
        "assert leap_rl.__version__ == 'unknown'\n"
    )
