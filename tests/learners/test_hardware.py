from __future__ import annotations

import pytest
import torch

from leap_rl.core.determinism import has_bfloat16_units
from leap_rl.learners.config import AgentConfig
from leap_rl.learners.hardware import check_machine, resolve


@pytest.mark.parametrize(
    ("gpu", "units", "expected"),
    [
        (False, False, ("cpu", "float32")),
        (False, True, ("cpu", "bfloat16")),
        (True, False, ("cpu", "float32")),
    ],
)
def test_auto_is_what_the_machine_has(
    gpu: bool, units: bool, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": units}, raising=False)
    config = resolve(AgentConfig())
    assert (config.device, config.precision) == expected


def test_what_is_said_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    given = AgentConfig(device="cpu", precision="float32", lr=0.5, reward_clip=1.0)
    config = resolve(given)
    assert (config.precision, config.lr, config.reward_clip) == ("float32", 0.5, 1.0)
    assert resolve(config) == config


def test_what_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": False}, raising=False)
    with pytest.raises(ValueError, match=r"agent\.device = cuda: .*use cpu"):
        check_machine(AgentConfig(device="cuda"))
    with pytest.raises(ValueError, match=r"agent\.precision = bfloat16: .*use float32"):
        check_machine(resolve(AgentConfig(precision="bfloat16")))
    check_machine(resolve(AgentConfig()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_machine(AgentConfig(device="cuda", precision="bfloat16"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    check_machine(AgentConfig(precision="bfloat16"))


@pytest.mark.parametrize(
    ("allowed", "units"),
    [
        ("AVX2", False),
        ("avx512_core_vnni", False),
        ("AVX512_CORE_BF16", True),
        ("AVX512_CORE_AMX", True),
        ("default", True),
    ],
)
@pytest.mark.parametrize("processor", ["amx_bf16", "avx512_bf16"])
def test_units_that_may_not_be_used_are_none(
    allowed: str, units: bool, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {processor: True}, raising=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", allowed)
    assert has_bfloat16_units() == units


def test_a_gpu_computes_in_float32_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    assert resolve(AgentConfig(device="cuda")).precision == "float32"
    assert resolve(AgentConfig(device="cuda", precision="bfloat16")).precision == "bfloat16"
