"""Every random stream of a run, derived from the run's seed by a keyed hash of bytes.

A stream is named by a path: what it belongs to (the initialization; a meta-step; a slot of a
meta-step) and what it is for. Equal paths give equal streams on every machine, in every process
and in any order of execution, so that a task that is repeated elsewhere draws the same numbers,
and no two streams share theirs.

    run seed ── initialization                   the encoder of version 0
             ├─ games, meta-step s               which games fill the batch
             └─ task, meta-step s, slot k        a task's own seed
                    ├─ heads                     policy and value heads
                    ├─ environments              emulators, no-ops, sticky actions
                    ├─ actions                   sampling from the policy
                    ├─ restart, number r         the seed in its place, after a divergence
                    └─ data                      anything else that a task draws

    seed of an analysis ── bootstrap             what an interval redraws
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

SEED_BITS = 63
"""Seeds are this many bits wide: the widest that every generator in use accepts unsigned."""


class Purpose(StrEnum):
    """What a random stream is for; the last component of its path."""

    INITIALIZATION = "initialization"
    GAMES = "games"
    TASK = "task"
    HEADS = "heads"
    ENVIRONMENTS = "environments"
    ACTIONS = "actions"
    RESTART = "restart"
    DATA = "data"
    BOOTSTRAP = "bootstrap"


def derive_seed(seed: int, purpose: Purpose, *path: int | str) -> int:
    """Return the seed, in [0, 2**63), of the stream named by ``purpose`` and ``path``.

    ``seed`` is the run's or, for a stream inside a task, the task's; ValueError if it is out of the
    same range. ``path`` goes from the outside in, such as the meta-step and the slot.
    """
    if not 0 <= seed < 2**SEED_BITS:
        raise ValueError(f"seed = {seed}: must lie in [0, 2**{SEED_BITS})")
    digest = blake2b(digest_size=8, key=seed.to_bytes(8, "little"), person=b"leap_rl")
    for component in (str(purpose), *path):
        # The type and the length go in too, so that no two paths have the same bytes.
        kind = b"s" if isinstance(component, str) else b"i"
        text = str(component).encode()
        digest.update(kind + len(text).to_bytes(4, "little") + text)
    return int.from_bytes(digest.digest(), "little") >> (64 - SEED_BITS)
