from __future__ import annotations

import asyncio
import signal
import threading
import time

import numpy as np
import pytest
import verbena
from conftest import Node
from verbena import aio


def test_every_operation(nodes: list[Node]) -> None:
    async def main() -> None:
        async with aio.Memory(nodes[0].socket) as here, aio.Memory(str(nodes[1].socket), timeout=10) as there:
            made = await here.allocate(48, "x", coherence="version", copies=2, placement="b")
            found = await there.find("x")
            assert (found.id, found.name, found.size, found.coherence) == (made.id, "x", 48, "version")
            assert (found.home, found.copies, found.owner) == ("b", 2, made.owner)
            assert repr(found) == repr(made) and repr(made).startswith("<verbena.Segment ")
            version = (await made.get()).version
            assert await found.put(b"part", 4, over=version) == version + 1
            value = await made.get(4, 4)
            assert (bytes(value), value.version) == (b"part", version + 1)
            with pytest.raises(verbena.Conflict) as raised:
                await made.put(b"late", over=version)
            assert raised.value.current == version + 1
            assert await made.store(np.arange(6.0), over=version + 1) == version + 2
            assert (await found.array("f8", (2, 3)))[1, 2] == 5
            with pytest.raises(verbena.Elsewhere):
                await made.window()
            assert (await found.window()).array("f8").tolist() == [0, 1, 2, 3, 4, 5]
            into = bytearray(8)
            assert await found.get_into(into, 40) == version + 2
            assert into == np.float64(5).tobytes() and (await found.stat()).version == version + 2
            assert [segment.id for segment in await there.list()] == [made.id]
            await made.release()
            with pytest.raises(verbena.Released):
                await made.get()
            await here.allocate(8, "y")
            await there.release("y")
            assert await here.list() == []
            with pytest.raises(RuntimeError, match="is open"):
                async with here:
                    pass
        for late in (made.get(), here.find("x")):
            with pytest.raises(verbena.Disconnected, match="closed"):
                await late
        with pytest.raises(verbena.NoHelper):
            async with aio.Memory("/nowhere/at/all.sock"):
                pass

    asyncio.run(main())


def test_nothing_is_lost_under_a_lock(nodes: list[Node]) -> None:
    """Tasks of one connection keep each other out, where a connection would get once more what it has."""
    inside = 0

    async def main() -> None:
        async with aio.Memory(nodes[0].socket) as here, aio.Memory(nodes[1].socket) as there:
            await here.allocate(8, "counter")

            async def count(memory: aio.Memory) -> None:
                nonlocal inside
                counter = await memory.find("counter")
                for _ in range(5):
                    async with counter.lock(timeout=60) as mine:
                        inside += 1
                        assert inside == 1 and mine.hold.held and not mine.hold.shared
                        value = int.from_bytes(bytes(await mine.get()), "little")
                        await asyncio.sleep(0.001)
                        await mine.put((value + 1).to_bytes(8, "little"))
                        inside -= 1
                with pytest.raises(verbena.Disconnected, match="closed"):
                    await mine.get()

            await asyncio.gather(*(count(memory) for memory in (here, here, there, there)))
            counter = await here.find("counter")
            assert int.from_bytes(bytes(await counter.get()), "little") == 20
            async with counter.lock(shared=True) as one, (await there.find("counter")).lock(5, shared=True) as other:
                assert one.hold.held and other.hold.shared
                with pytest.raises(verbena.NotInTime):
                    async with counter.lock(timeout=0.05):
                        pass

    asyncio.run(main())


def test_who_waits_keeps_nobody_and_is_cancelled(nodes: list[Node]) -> None:
    async def main() -> None:
        async with aio.Memory(nodes[0].socket, timeout=10) as memory:
            segment = await memory.allocate(8, "x", placement="b")

            async def waits() -> None:
                async with segment.lock():
                    raise AssertionError("somebody has it")

            async with segment.lock() as mine:
                task = asyncio.create_task(waits())
                await asyncio.sleep(0.2)
                # The connection is another one.
                assert bytes(await segment.get()) == bytes(8) and not task.done() and mine.hold.held
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # What has not begun is not done; what has is waited for. A helper that is stopped answers nobody.
            nodes[0].signal(signal.SIGSTOP)
            nodes[0].wait_until_stopped()
            begun = asyncio.create_task(segment.put(b"1" * 8))
            await asyncio.sleep(0.05)
            queued = asyncio.create_task(segment.put(b"2" * 8))
            await asyncio.sleep(0.05)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            assert not begun.done()
            begun.cancel()
            await asyncio.sleep(0.05)
            assert not begun.done()
            nodes[0].signal(signal.SIGCONT)
            with pytest.raises(asyncio.CancelledError):
                await begun
            # As the other node knows: this one may have been believed dead.
            async with aio.Memory(nodes[1].socket, timeout=10) as there:
                assert bytes(await (await there.find("x")).get()) != b"2" * 8

    try:
        asyncio.run(main())
    finally:
        nodes[0].signal(signal.SIGCONT)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)
    assert threading.active_count() == 1


def test_tasks_of_one_connection_save_together(nodes: list[Node]) -> None:
    async def main() -> None:
        async with aio.Memory(nodes[0].socket) as memory:
            made = await memory.make_checkpoints("run", 3, 8, kept=3)
            assert made.name == "run" and repr(made) == "<verbena.Checkpoints run>"
            begins_again = asyncio.Event()
            rolled_back = 0

            async def compute(process: int) -> None:
                nonlocal rolled_back
                checkpoints = await memory.checkpoints("run")
                while True:
                    joined = await checkpoints.join(process)
                    assert joined.process == process and (joined.part is None) == (joined.number == 0)
                    total = int.from_bytes(joined.part or b"", "little")
                    try:
                        for number in range(joined.number + 1, 21):
                            total += number
                            await joined.save(number, total.to_bytes(8, "little"))
                            await joined.wait(number, timeout=30)
                            if process == 2 and number == 10 and not begins_again.is_set():
                                begins_again.set()
                                raise KeyError
                        break
                    except verbena.RolledBack:
                        rolled_back += 1
                    except KeyError:
                        pass
                assert total == 210

            await asyncio.gather(*(compute(process) for process in range(3)))
            shown = await made.show()
            assert (shown.era, shown.complete, rolled_back) == (2, 20, 2)
            assert await made.part(1, 19) == (190).to_bytes(8, "little")
            await made.roll_back(19)
            joined = await made.join(0)
            assert (joined.era, joined.number) == (3, 19) and repr(joined).startswith("<verbena.Joined process 0 ")
            await joined.save(20, b"")
            began = time.monotonic()
            with pytest.raises(verbena.NotInTime, match="checkpoint 20 was not complete"):
                await joined.wait(20, 0.1)
            assert time.monotonic() - began >= 0.1
            # Who waits keeps the connection from nobody.
            waits = asyncio.create_task(joined.wait(20, 60))
            await asyncio.sleep(0.1)
            async with asyncio.timeout(30):
                assert (await made.show()).processes[0] == (True, 20) and not waits.done()
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await made.remove()
            with pytest.raises(verbena.NotFound):
                await memory.checkpoints("run")

    asyncio.run(main())
