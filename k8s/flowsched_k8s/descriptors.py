"""File descriptors: each connection takes one, and a process that has none left can open no connection."""

from __future__ import annotations

import logging
import resource

from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)

WANTED = 4096
"""The limit that is asked for where more is allowed than there is."""
ENOUGH = 1024
"""Also for as many requests that hang as are let hang."""
NEEDED = 256
"""With fewer nothing is begun: watches, lists and bindings have a connection each, and files are open beside them."""


def provide_descriptors(needed: int = NEEDED, wanted: int = WANTED) -> int:
    """Raise the limit of this process to ``wanted``, or as far as is allowed; what it is then.

    Raises :class:`InputError` if it is less than what is ``needed``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        LOG.debug("the limit of file descriptors was raised", extra={"was": soft, "is": most})
        soft = most
    if soft != resource.RLIM_INFINITY and soft < needed:
        text = f"this process may have {soft} file descriptors, and needs {needed}"
        raise InputError.one(
            "limits", text, "raise the limit: ulimit -Hn, LimitNOFILE of systemd, or the runtime's own"
        )
    if soft != resource.RLIM_INFINITY and soft < ENOUGH:
        LOG.warning("few file descriptors: hundreds of requests that hang would use them up", extra={"limit": soft})
    return wanted if soft == resource.RLIM_INFINITY else soft
