"""The worker where there is no C compiler: the same words in and out as ``worker.c``, and a coarser clock."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
NANO = 1_000_000_000


def main(arguments: list[str]) -> int:
    """One process of the measurement."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 1
    if arguments == ["hog"]:
        if not _wait_for_start():
            return 1
        while True:
            pass
    runtime, period, jobs, width, relative = (int(word) for word in arguments[1:])
    windows = jobs * period // width
    response, used = [0] * jobs, [0] * (windows + 1)
    if not _wait_for_start():
        return 1
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + period
    release, last = start, time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    for job in range(jobs):
        time.sleep(max(0, release - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) / NANO)
        begin = cpu = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
        now = release
        while cpu - begin < runtime:
            cpu = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            used[min(windows, (now - start) // width)] += cpu - last
            last = cpu
        response[job] = now - release
        release = now + period - runtime if relative else release + period
    print("jobs", *response)
    print("windows", *used[:windows])
    return 0


def _wait_for_start() -> bool:
    print("ready", flush=True)
    return bool(sys.stdin.readline())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
