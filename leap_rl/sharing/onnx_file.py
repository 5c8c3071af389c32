"""Encoders as ONNX files, by torch.onnx: for programs without PyTorch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_WAY_OUT = "`pip install --upgrade 'leap-rl[onnx]'` has what it takes"


def onnx_of(encoder: nn.Module, observation_shape: tuple[int, ...]) -> bytes:
    """Return the bytes of an ONNX file that computes what an encoder on the CPU does.

    A model of `observations`, uint8 [N, H, W, C] or float32 [N, L], to `features`, float32 [N, F],
    for any N. ValueError if a package that torch.onnx needs is missing, or too old.
    """
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise ValueError(f"--to onnx: {' and '.join(missing)} is not installed; {_WAY_OUT}")
    import torch

    dtype = torch.uint8 if len(observation_shape) == 3 else torch.float32
    example = torch.zeros((2, *observation_shape), dtype=dtype)
    try:
        with _quiet():
            program = torch.onnx.export(
                encoder,
                (example,),
                dynamo=True,
                input_names=["observations"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("N")},),
                verbose=False,
            )
    except ImportError as error:  # of a version that is too old for torch
        raise ValueError(f"--to onnx: {error}; {_WAY_OUT}") from None
    assert program is not None
    model = program.model_proto
    graph = model.graph
    # torch's notes have paths of this machine.
    parts = (graph.node, graph.initializer, graph.value_info, graph.input, graph.output)
    for one in (model, graph, *(one for part in parts for one in part)):
        one.ClearField("metadata_props")
    return bytes(model.SerializeToString(deterministic=True))


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
