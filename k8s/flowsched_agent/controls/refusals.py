"""What a refusal of the kernel means: one sentence with what was asked, what was found, and what would help."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)
"""How a process or cgroup that has vanished answers."""
_MEANING = {
    errno.EPERM: "permission is missing; run the agent as root of the host, or with CAP_SYS_NICE and CAP_SYS_ADMIN",
    errno.EACCES: "permission is missing; run the agent as root of the host, with its cgroup tree mounted for writing",
    errno.EROFS: "the tree is mounted read-only; mount the host's cgroup tree for writing, as a privileged pod may",
    errno.EINVAL: "this kernel does not allow the value here; ask for another",
    errno.EBUSY: "something that is there excludes it; what is there must go first",
    errno.EAGAIN: "it is not possible right now; try again",
    errno.ENOENT: "the process or group has vanished; nothing is left to steer",
    errno.ESRCH: "the process has vanished; nothing is left to steer",
    errno.ENODEV: "the group has vanished; nothing is left to steer",
    errno.ENOSYS: "this kernel or machine has no such call",
    errno.EOPNOTSUPP: "this kind of group does not allow it; a threaded or invalid group must be made a domain first",
    errno.ENOSPC: "no room is left for it; a cpuset needs CPUs and memory nodes before it takes processes",
}


class ControlError(Exception):
    """Something could not be set or read: one sentence with what was asked, what was found, what would help."""

    def __init__(self, what: str, why: str, *, gone: bool = False) -> None:
        """``gone``: the process or cgroup is no longer there; its caller lets go of it and goes on."""
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.gone = gone


def refusal(
    what: str, error: OSError, meanings: Mapping[int, str] | None = None, *, gone: bool = False
) -> ControlError:
    """The refusal of ``what`` as an error.

    ``meanings``: by error code, where it means something particular for this request; ``gone``: whether the process or
    group was found to have vanished.
    """
    number = error.errno or 0
    code = errno.errorcode.get(number, str(number))
    why = (meanings or {}).get(number) or _MEANING.get(number) or os.strerror(number) or str(error)
    return ControlError(what, f"{code}, {why}", gone=gone or number == errno.ESRCH)
