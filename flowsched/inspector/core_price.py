"""What the certificate of a round of flow says that cores are worth."""

from __future__ import annotations

from typing import Any

from flowsched.cluster.snapshot import MILLI
from flowsched.inspector.record_view import Part


def core_price(part: Part, machine: str, width_milli: int) -> dict[str, Any] | None:
    """Price of a machine's cores in the bound: ``machine``, ``group``, ``per_core``, ``per_task`` (of a task of this
    width), in units of cost; None where cores have none.
    """
    group = part.group_of.get(machine)
    certificate = part.certificate
    price = 0.0 if group is None or certificate is None else float(certificate.get("prices", {}).get(group, 0.0))
    if not price:
        return None
    return {"machine": machine, "group": group, "per_core": price * MILLI, "per_task": price * width_milli}
