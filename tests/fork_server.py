"""A process that has imported flowsched and loaded its compiled code, and forks a process for each command asked for.

What it forks is what ``python -m MODULE`` would be, but for the imports: a process of its own, with its own folder,
environment and standard files, that runs the module as ``__main__`` and ends with its exit code. ``ready_python.py`` asks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import traceback
from pathlib import Path

PACKAGES = ("flowsched", "flowsched_models", "flowsched_simulator", "flowsched_k8s", "flowsched_agent")
LATE = ("ortools.sat.python.cp_model", "pandas", "scipy.optimize", "scipy.sparse")
"""What some commands import when they first need it."""


def load() -> None:
    """All that a command may import, and what it would read of the compiled code."""
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    warm_up = importlib.import_module("flowsched.round.warm_up").warm_up
    prepare_bulk = importlib.import_module("flowsched.round.linear.preparation").prepare
    warm_up()
    prepare_bulk()
    # A command that prepares itself does so again: the code is loaded, but what it calls and leaves is its own.
    warm_up.cache_clear()
    prepare_bulk.cache_clear()


def forked(requests: socket.socket) -> list[str] | None:
    """Forks a process for each request. Returns in that process, with its words, and in this one at the end: None.

    Between the two stands a process that says on a pipe which id the command has, and with which code it ends.
    """
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            return None
        if os.fork():
            for file in files:
                os.close(file)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # of those between that have ended
                    pass
            continue
        requests.close()
        pid = os.fork()
        if pid:
            os.write(files[3], f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            os.write(files[3], f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        asked = json.loads(message)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        words: list[str] = asked["words"]
        return words


def run(module: str, *words: str) -> int:
    """What ``python -m MODULE WORDS`` does from there to its end, and the exit code."""
    sys.argv[1:] = words
    sys.path[0] = str(Path.cwd())
    sys.modules.pop(module, None)
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    # All that Python does at its end, but for taking apart what was imported: that would copy it first.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    own = socket.socket(fileno=int(sys.argv[1]))
    load()
    # A thread would be missing in what is forked, with whatever it holds. That of pyarrow's allocator looks after itself.
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert threads.count("jemalloc_bg_thd") == len(threads) - 1, threads
    # Nothing of this is garbage in what is forked: looking at it would copy it.
    gc.collect()
    gc.freeze()
    if words := forked(own):
        os._exit(run(*words))
