"""An address to listen on, as configuration files write it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from flowsched_models.quantity import QuantityError, shown


@dataclass(frozen=True)
class Address:
    """Where to listen. An empty host means every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As in a file: ``:8081``, ``127.0.0.1:8081``, ``[::1]:8081``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine, or the pod, reaches it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host is ``localhost`` or an address of it. No other name is looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def overlap(first: Address, second: Address) -> bool:
    """Whether only one of two addresses can be had."""
    same = first.host == second.host or "" in (first.host, second.host)
    return same and first.port == second.port != 0


def loopback_only(address: Address) -> Address:
    """The address as it is. Raises :class:`QuantityError` unless it is on loopback."""
    if not address.is_loopback:
        raise QuantityError(f"{address} is not on loopback", f'write it as "127.0.0.1:{address.port}"')
    return address


def parse_address(value: Any, usual_port: int, besides: str = "") -> Address:
    """Where to listen. Raises :class:`QuantityError`, whose help has examples with the usual port.

    ``besides``: what else may be written, at the end of that help.
    """
    help = f'write it as ":{usual_port}" (every interface), "127.0.0.1:{usual_port}" or "[::1]:{usual_port}"{besides}'
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s/]*):([0-9]{1,5})", value if isinstance(value, str) else "")
    if match is None:
        raise QuantityError(f"{shown(value)} is not an address to listen on", help)
    host, port = match[1].strip("[]"), int(match[2])
    if port > 65535:
        raise QuantityError(f"there is no port {port}", "ports go up to 65535")
    if match[1].startswith("["):
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise QuantityError(f"'{host}' is not an IPv6 address", help) from None
    return Address(host, port)
