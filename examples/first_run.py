"""Meta-train, evaluate, and take the encoder, all from Python: minutes on two cores."""

from __future__ import annotations

import leap_rl

config = leap_rl.TrainConfig.from_yaml("demo", {"meta.meta_steps": 2, "task.agent_steps": 16000})
run = leap_rl.train(config, [lambda run, row: print(row["meta_step"], row["agent_steps"])])
found = leap_rl.evaluate({"leap": [run]}, games="breakout@mode=12", seeds=2)
print(found.verdict)
encoder = leap_rl.load_encoder(run)  # a torch.nn.Module: uint8 [N, H, W, C] to features [N, F]
