"""Where the API server is and how to prove who we are, found by the official Python client.

That client knows kubeconfigs, clusters from within, tokens that change, and credential plugins. Its own calls and
models are not used: they cost ten times the CPU of a plain request.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import yaml

from flowsched_k8s.api.token_file import TokenFile
from flowsched_models.document import InputError, Problem

IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAMESPACE_FILE = _ACCOUNT / "namespace"
_TOKEN_FILE = _ACCOUNT / "token"


@dataclass(frozen=True)
class Tls:
    """Which servers are trusted."""

    authorities: bytes
    """Certificates in PEM; empty for those that this machine trusts."""
    verified: bool
    """Whether the server's certificate is looked at."""


@dataclass(frozen=True)
class Credentials:
    """What is shown to the server."""

    authorization: str | None
    """The header's value."""
    certificate: bytes = b""
    """In PEM; empty if there is none."""
    key: bytes = b""


@dataclass(frozen=True)
class Access:
    """One API server and one identity."""

    server: str
    """Scheme, host and perhaps a path, without a slash at its end."""
    tls: Tls | None
    proxy: str | None
    server_name: str | None
    """The name that the server's certificate must bear, where it is not the host's."""
    namespace: str
    """Of the kubeconfig's context, or of the pod that this runs in; ``default`` if neither says."""
    configuration: Any
    """The official client's ``Configuration``: it renews the credentials."""
    token: TokenFile | None = None
    """Where the token is, if it is in a file: the official client reads that once, or remembers it for a minute."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @property
    def address(self) -> str:
        """The server as it is told in messages: without a user and a password."""
        return without_password(self.server)

    def credentials(self) -> Credentials:
        """What they are now. May run a credential plugin, so not for the event loop. Any thread may ask."""
        with self._lock:
            return self._credentials()

    def _credentials(self) -> Credentials:
        if self.token is not None:
            authorization: str | None = f"Bearer {self.token.read()}"
        else:
            settings = self.configuration.auth_settings()
            authorization = next((str(s["value"]).strip() for s in settings.values() if s.get("value")), None)
        # A plugin may hand out certificates instead; new connections then use the new one.
        if self.tls is None or not self.configuration.cert_file:
            return Credentials(authorization)
        certificate, key = (Path(f).read_bytes() for f in _certificate_files(self.configuration))
        return Credentials(authorization, certificate, key)


def find_access(kubeconfig: Path | None = None, environment: Mapping[str, str] = os.environ) -> Access:
    """Find the cluster: the given kubeconfig, else ``$KUBECONFIG``, else the cluster around us, else ``~/.kube/config``.

    Raises :class:`InputError` with one sentence if there is none or it cannot be used.
    """
    if kubeconfig is not None:
        return _from_kubeconfig(str(kubeconfig))
    if named := environment.get("KUBECONFIG"):
        return _from_kubeconfig(named)
    if environment.get(IN_CLUSTER):
        return _from_within()
    usual = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not usual.is_file():
        message = f"there is no kubeconfig: neither --kubeconfig nor $KUBECONFIG is given, and {usual} does not exist"
        raise InputError.one("kubeconfig", message)
    return _from_kubeconfig(str(usual))


def _from_kubeconfig(paths: str) -> Access:
    # Several files may be named, of which only one need exist.
    named = [Path(p).expanduser() for p in paths.split(os.pathsep) if p]
    found = [path for path in named if path.exists()]
    if not found:
        raise InputError([Problem(str(path), None, "", "there is no such kubeconfig") for path in named])
    for path in found:
        try:
            path.read_bytes()
        except OSError as error:
            raise InputError.one(path, f"the kubeconfig cannot be read: {error.strerror}") from None
    config, configuration = _official_client()
    joined = os.pathsep.join(map(str, found))
    try:
        config.load_kube_config(joined, client_configuration=configuration, persist_config=False)
        _, chosen = config.list_kube_config_contexts(joined)
        namespace = str((chosen["context"] or {}).get("namespace") or "default")
        token = _token_file_of(found, chosen["context"]["user"])
        access = _made(configuration, namespace, _proxy_of(found, chosen["context"]["cluster"]), token)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InputError([Problem(joined, line, "", f"not valid YAML: {getattr(error, 'problem', error)}")]) from None
    # The loader fails in many ways on content of the wrong shape.
    except (config.ConfigException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError.one(joined, f"the kubeconfig cannot be used: {one_line(error)}") from None
    anonymous = not configuration.api_key and not configuration.cert_file
    if access.tls is not None and anonymous:
        message = "the kubeconfig has no credentials for its current context"
        help = "if its user has an 'exec' plugin, run that by hand: it gave none"
        raise InputError.one(joined, message, help)
    return access


def _from_within() -> Access:
    config, configuration = _official_client()
    try:
        config.load_incluster_config(configuration)
        namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
        return _made(configuration, namespace, token=TokenFile(_TOKEN_FILE))
    except (config.ConfigException, OSError, ValueError) as error:
        raise InputError.one(
            "ServiceAccount", f"the cluster cannot be reached from within: {one_line(error)}"
        ) from None


def _official_client() -> tuple[Any, Any]:
    """Its module ``config`` and a new ``Configuration``. Takes most of a second and 65 MiB, so only when needed."""
    config = importlib.import_module("kubernetes.config")
    client = importlib.import_module("kubernetes.client")
    return config, client.Configuration()


def _proxy_of(paths: list[Path], cluster: str) -> str | None:
    """The proxy that kubeconfigs give for a cluster; the official client knows of it only since release 37."""
    documents = [yaml.safe_load(path.read_text()) or {} for path in paths]
    clusters = [c for document in documents for c in document.get("clusters") or [] if c["name"] == cluster]
    return str(clusters[0]["cluster"].get("proxy-url") or "") or None if clusters else None


def _token_file_of(paths: list[Path], user: str) -> TokenFile | None:
    """The file that kubeconfigs name for a user's token, which goes before a token that stands in them."""
    for path in paths:
        document = yaml.safe_load(path.read_text()) or {}
        for named in document.get("users") or []:
            if named["name"] == user:
                told = (named.get("user") or {}).get("tokenFile")
                return TokenFile(path.absolute().parent / str(told)) if told else None
    return None


def _made(configuration: Any, namespace: str, proxy: str | None = None, token: TokenFile | None = None) -> Access:
    server = str(configuration.host).rstrip("/")
    parts = urllib.parse.urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"its server is {without_password(server)!r}, which is not an http or https address")
    tls = None
    if parts.scheme == "https":
        # What cannot be used is to be told now, and not by each request.
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
        if configuration.cert_file:
            context.load_cert_chain(*_certificate_files(configuration))
        authorities = Path(configuration.ssl_ca_cert).read_bytes() if configuration.ssl_ca_cert else b""
        tls = Tls(authorities, bool(configuration.verify_ssl))
    if proxy is None and not goes_direct(parts.hostname, configuration.no_proxy or ""):
        # From the environment.
        proxy = configuration.proxy or None
    name = getattr(configuration, "tls_server_name", None)
    return Access(server, tls, proxy, name, namespace, configuration, token)


def without_password(url: str) -> str:
    """An address as it may be told, without what stands before the host's name; whether or not it is a sound one."""
    scheme, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if slashes else url.rpartition("@")[2]


def goes_direct(host: str, no_proxy: str) -> bool:
    """Whether ``no_proxy`` names a host: by its name, its domain, its address, or a network around that."""
    for entry in (e.strip().lower() for e in no_proxy.split(",")):
        if entry == "*":
            return True
        name = entry.lstrip("*").lstrip(".")
        if name and (host == name or host.endswith(f".{name}")):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


def _certificate_files(configuration: Any) -> tuple[str, str]:
    """Of the certificate and of its key, which may stand in the same file."""
    return configuration.cert_file, configuration.key_file or configuration.cert_file


def one_line(error: BaseException) -> str:
    """What is said of a fault; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
