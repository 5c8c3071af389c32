"""Actors that Ray never starts or calls twice behind our back, and calls of them that raise what
they raised."""

from __future__ import annotations

import logging
import time
from typing import Any, TypeAlias

import ray
from ray.exceptions import ActorUnavailableError, RayTaskError

from leap_rl.training.runtime.ray.actors import pauses

Reference: TypeAlias = "ray.ObjectRef[Any]"

_log = logging.getLogger(__name__)


def actor(cls: type, **options: Any) -> Any:
    """Return the class as an actor that Ray starts once, if not told otherwise, and never calls
    twice."""
    return ray.remote(cls).options(**{"max_restarts": 0, "max_task_retries": 0, **options})


def ask(method: Any, *arguments: Any) -> Any:
    """Return what a method of the server answers, however often it dies meanwhile."""
    for pause_s in pauses():
        try:
            return result_of(method.remote(*arguments))
        except ActorUnavailableError as error:
            _log.warning("the parameter server is out of reach: %s", first_line(error))
            time.sleep(pause_s)
    raise AssertionError


def result_of(reference: Reference) -> Any:
    """Return a call's result, or raise what the call itself raised."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause
        raise cause from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says anything."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
