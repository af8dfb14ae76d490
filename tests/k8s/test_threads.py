"""Work beside the event loop that outlives who asked for it."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from flowsched_k8s.threads import Threads


def test_work_is_counted_until_it_returns_even_where_its_caller_is_gone() -> None:
    async def main() -> list[int]:
        threads, begun, end = Threads(), Event(), Event()

        def work() -> str:
            begun.set()
            end.wait(30.0)
            return "done"

        task = asyncio.create_task(threads.run(work))
        await asyncio.to_thread(begun.wait, 30.0)
        seen = [threads.under_way]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen.append(threads.under_way)
        end.set()
        while threads.under_way:
            await asyncio.sleep(0.01)
        return [*seen, threads.under_way]

    assert asyncio.run(main()) == [1, 1, 0]


def test_answers_and_faults_come_through() -> None:
    async def main() -> tuple[int, int]:
        threads = Threads()
        answer = await threads.run(max, 1, 2)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        return answer, threads.under_way

    assert asyncio.run(main()) == (2, 0)
