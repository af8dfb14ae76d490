"""Where the API server is and how to prove who we are: from the pod's service account, or from a kubeconfig.

Within a cluster this needs no package: an agent on every node should be small. Kubeconfigs are read by the official client.
"""

from __future__ import annotations

import importlib
import os
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowsched_models.document import InputError, Problem

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    """One API server and one identity."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]
    """The Authorization header as it is now: tokens of service accounts change every hour."""


def find_access(
    kubeconfig: Path | None, environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT
) -> Access:
    """The API server. Raises :class:`InputError` with one sentence if it cannot be found."""
    if kubeconfig is not None:
        return _from_kubeconfig(kubeconfig)
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host:
        help = "run the agent in a pod, or name a kubeconfig in kubernetes.kubeconfig"
        raise InputError([Problem("kubernetes", None, "kubeconfig", "there is no cluster around the agent", help)])
    port = int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        (account / "token").read_text()
    except OSError as error:
        message = f"the service account in {account} cannot be used: {error.strerror or error}"
        raise InputError([Problem("kubernetes", None, "", message)]) from None

    def authorization() -> str:
        return f"Bearer {(account / 'token').read_text().strip()}"

    return Access(host, port, tls, authorization)


def _from_kubeconfig(path: Path) -> Access:
    try:
        config: Any = importlib.import_module("kubernetes.config")
        client: Any = importlib.import_module("kubernetes.client")
    except ImportError:
        help = "install flowsched with its extra 'k8s'"
        raise InputError([Problem(str(path), None, "", "kubeconfigs need the package kubernetes", help)]) from None
    configuration = client.Configuration()
    try:
        config.load_kube_config(str(path), client_configuration=configuration, persist_config=False)
        parts = urllib.parse.urlsplit(configuration.host)
        tls = None
        if parts.scheme == "https":
            tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
            if not configuration.verify_ssl:
                tls.check_hostname = False
                tls.verify_mode = ssl.CERT_NONE
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        host, port = parts.hostname, parts.port or (443 if tls else 80)
    # The loader fails in many ways on content of the wrong shape.
    except (config.ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"the kubeconfig cannot be used: {' '.join(str(error).split())}"
        raise InputError([Problem(str(path), None, "", message)]) from None
    if not host:
        raise InputError([Problem(str(path), None, "", f"its server {configuration.host!r} is no address")])

    def authorization() -> str | None:
        settings = configuration.auth_settings()
        return next((str(s["value"]).strip() for s in settings.values() if s.get("value")), None)

    return Access(host, port, tls, authorization)
