"""What the server's actor adds to the server: claims that wait for a slot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from leap_rl.storage.run_folder import RunFolder
from leap_rl.training.messages import Assignment, Wait
from tests.training.fakes import FakePlan, assigned, claim, complete, make_server, ray_module

if TYPE_CHECKING:
    from leap_rl.training.runtime.ray.server_actor import ServerActor

SOON_S = 0.05


@pytest.fixture
def actor(folder: RunFolder) -> ServerActor:
    """An actor of this process whose run has rounds of one task."""
    made: ServerActor = ray_module("server_actor").ServerActor(None)  # the server is there
    made._made = make_server(folder, FakePlan(batch=1))
    return made


def test_trainers_that_die_while_they_wait_cost_a_slot_nothing(actor: ServerActor) -> None:
    """All trainers of a machine that is gone, say, of which one had work."""

    async def play() -> None:
        assert isinstance(await actor.claim(claim("a")), Assignment)
        waiting = [asyncio.create_task(actor.claim(claim(trainer))) for trainer in "bcd"]
        await asyncio.sleep(SOON_S)
        for dead in "abcd":
            await actor.trainer_lost(dead, "killed")
            await asyncio.sleep(SOON_S)
        assert await asyncio.gather(*waiting) == [Wait()] * 3  # nobody hears it
        work = assigned(await actor.claim(claim("a", incarnation=2)))
        assert work.ticket.attempt == 2

    asyncio.run(play())


def test_a_claim_waits_until_there_is_work(actor: ServerActor) -> None:
    async def play() -> None:
        work = assigned(await actor.claim(claim("a")))
        waiting = asyncio.create_task(actor.claim(claim("b")))
        await asyncio.sleep(SOON_S)
        assert not waiting.done()
        # "a" asks for the next round's task along with its sum, and gets it.
        await actor.complete(complete(work.ticket, claim("a", number=2)))
        await asyncio.sleep(SOON_S)
        assert not waiting.done()
        await actor.trainer_lost("a", "killed")
        assert await waiting == Wait()
        assert isinstance(await actor.claim(claim("b", number=2)), Assignment)

    asyncio.run(play())
