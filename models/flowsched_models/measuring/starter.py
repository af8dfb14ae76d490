"""Starts one program on given CPUs, waits for it and reports what it took. A script of its own, with no imports of ours.

It is run as ``python -I -S starter.py PARENT REPORT CORES PROGRAM...``, where REPORT is a file descriptor for one
line of JSON. It stands between measuring and measured process for three reasons:

- Linux hands the peak memory of the process that forks down to the one that is executed, so that a program started by a
  large process seems at least as large. This script is small: only below about 10 MiB nothing can be told.
- CPUs are chosen and signals are set without running Python between fork and exec of a large process.
- When the measuring process is killed (SIGKILL), this one still ends the program.
"""

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
ORPHANED = signal.SIGHUP
"""What the kernel sends when the process that measures is gone."""
NOT_STARTED = 127


def main() -> None:
    """Run the program named on the command line."""
    parent, report = int(sys.argv[1]), int(sys.argv[2])
    cores = {int(core) for core in sys.argv[3].split(",")}
    command = sys.argv[4:]
    os.set_inheritable(report, False)
    signal.signal(ORPHANED, lambda *_: end_session())
    # An aggressor is asked to end by SIGTERM to its whole session; its report is still wanted.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent(ORPHANED)
    # They are held back while a process is started.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if os.getppid() != parent:
        end_session()
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        tell(report, error=f"it cannot be pinned to cores {sys.argv[3]}: {error.strerror}")
        return
    failed, failure = os.pipe()
    start_s = time.monotonic()
    child = os.fork()
    if child == 0:
        execute(command, failure)
    os.close(failure)
    _, status, usage = os.wait4(child, 0)
    end_s = time.monotonic()
    if reason := os.read(failed, 4096).decode():
        tell(report, error=f"it cannot be started: {reason}")
        return
    tell(
        report,
        start_s=start_s,
        end_s=end_s,
        exit_code=os.waitstatus_to_exitcode(status),
        user_s=usage.ru_utime,
        sys_s=usage.ru_stime,
        max_rss_mib=usage.ru_maxrss / 1024,
    )


def execute(command: list[str], failure: int) -> None:
    """Become the program; never comes back."""
    for number in (ORPHANED, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent(signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failure, (error.strerror or "error").encode())
    os._exit(NOT_STARTED)


def die_with_parent(number: int) -> None:
    """Have the kernel send a signal to this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end_session() -> None:
    """Kill every process of this session, this one last."""
    own = os.getsid(0)
    for entry in os.scandir("/proc"):
        name = entry.name
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getsid(int(name)) == own:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
    os.kill(os.getpid(), signal.SIGKILL)


def tell(where: int, **what: object) -> None:
    """Write the report."""
    os.write(where, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
