"""Actors without Ray's own retries, and calls that raise the actor's exception."""

from __future__ import annotations

import logging
import random
import re
import time
from typing import Any, TypeAlias

import ray
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    ObjectLostError,
    RayTaskError,
    UnserializableException,
)

from leap_rl.core.errors import RunFailedError

ANSWER_TIMEOUT_S = 60.0
"""A call unanswered for this long is sent again."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0

Reference: TypeAlias = "ray.ObjectRef[Any]"

_COLORS = re.compile(r"\x1b\[[0-9;]*m")

_log = logging.getLogger(__name__)


def actor(cls: type, **options: Any) -> Any:
    """Return the class as an actor; Ray never calls it twice, and starts it once unless told."""
    return ray.remote(cls).options(**{"max_restarts": 0, "max_task_retries": 0, **options})


def ask(method: Any, *arguments: Any, timeout_s: float | None = None) -> Any:
    """Call a method of the server until it answers, across restarts of the server.

    A call that has no answer after ``timeout_s`` is sent again, though it may have been executed.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return result_of(method.remote(*arguments), timeout_s)
        except (GetTimeoutError, ActorUnavailableError, ObjectLostError) as error:
            _log.warning("the parameter server is out of reach: %s", first_line(error))
        # Pauses differ, or all trainers would come back at once after the server's death. No seed:
        # what is computed depends on no pause.
        time.sleep(pause_s * random.SystemRandom().uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def result_of(reference: Reference, timeout_s: float | None = None) -> Any:
    """Return a call's result, or raise what the call itself raised."""
    try:
        return ray.get(reference, timeout=timeout_s)
    except RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause
        raise cause from error
    except UnserializableException as error:  # as of classes whose __init__ takes what str() lacks
        # Its text ends with the traceback, and that with the exception.
        raise RunFailedError(str(error).strip().splitlines()[-1]) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says anything.

    Where an actor could not be made that is the last one: those before are Ray's, of where.
    """
    lines = [line.strip() for line in _COLORS.sub("", str(error)).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1 if "in its creation task" in lines[0] else 0]
