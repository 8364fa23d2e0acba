from __future__ import annotations

import asyncio
import contextlib
import signal
import threading

import pytest
import verbena
from conftest import Node
from verbena import aio


def test_tasks_take_turns(nodes: list[Node]) -> None:
    number = 0
    tokens: list[int] = []

    async def count(nth: int) -> None:
        nonlocal number
        async with aio.lock("x", timeout=30, path=nodes[nth % 2].socket) as hold:
            before = number
            await asyncio.sleep(0.005)
            number = before + 1
            tokens.append(hold.token)
            assert hold.held

    async def main() -> None:
        await asyncio.gather(*(count(nth) for nth in range(20)))

    asyncio.run(main())
    assert number == 20 and tokens == sorted(tokens)


def test_a_task_that_is_cancelled_leaves_nothing_behind(nodes: list[Node]) -> None:
    async def main() -> None:
        here, there = nodes[0].socket, nodes[1].socket

        async def hold_it(path: object) -> None:
            async with aio.lock("x", path=path):  # type: ignore[arg-type]
                raise AssertionError("somebody has it")

        async with aio.lock("x", path=here):
            waits = [asyncio.create_task(hold_it(path)) for path in (here, there, there)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(hold_it(there), 0.2)
            for task in waits:
                task.cancel()
            assert all(isinstance(how, asyncio.CancelledError) for how in await asyncio.gather(*waits, return_exceptions=True))
        async with aio.lock("x", timeout=5, path=there):
            pass
        # At any moment: while it connects, asks, waits, holds.
        for nth in range(30):

            async def briefly() -> None:
                async with aio.lock("y", path=there):
                    await asyncio.sleep(10)

            task = asyncio.create_task(briefly())
            await asyncio.sleep(nth * 0.0003)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with aio.lock("y", timeout=5, path=here):
                pass

    asyncio.run(main())
    # Threads of locks that are over end by themselves.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)
    assert threading.active_count() == 1


def test_what_nobody_uses_is_forgotten(nodes: list[Node]) -> None:
    here, there = nodes[0].socket, nodes[1].socket

    async def main() -> None:
        async with aio.lock("x", path=here) as hold:
            with pytest.raises(verbena.InUse, match="at a holds it"):
                await aio.remove("x", path=there)
            assert hold.held
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(verbena.InUse):
                    assert await aio.remove("x", path=there)
                    break
        assert not await aio.remove("x", path=there)
        with pytest.raises(verbena.NoHelper):
            await aio.remove("x", path="/nowhere/at/all.sock")

    asyncio.run(main())


def test_a_block_whose_lock_was_lost_says_so(nodes: list[Node]) -> None:
    async def main() -> None:
        async with aio.lock("x", path=nodes[1].socket) as hold:
            assert not await aio.wait_lost(hold, timeout=0.05)
            nodes[1].signal(signal.SIGKILL)
            assert await aio.wait_lost(hold, timeout=20)
            raise KeyError("inside")

    with pytest.raises(verbena.Lost) as raised:
        asyncio.run(main())
    assert isinstance(raised.value.__cause__, KeyError)


def test_what_cannot_be_had_is_raised_in_the_task(nodes: list[Node]) -> None:
    async def main() -> None:
        with pytest.raises(verbena.NoHelper):
            async with aio.lock("x", path="/nowhere/at/all.sock"):
                pass
        with pytest.raises(ValueError):
            async with aio.lock("", path=nodes[0].socket):
                pass
        one = aio.lock("x", path=nodes[0].socket, shared=True)
        async with one as hold:
            assert hold.shared
            with pytest.raises(RuntimeError, match="in use"):
                async with one:
                    pass
            with pytest.raises(verbena.NotInTime):
                async with aio.lock("x", timeout=0, path=nodes[0].socket):
                    pass
            hold.release()
        # And again.
        async with one:
            pass

    asyncio.run(main())
