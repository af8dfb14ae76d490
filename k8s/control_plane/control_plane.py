#!/usr/bin/env python3
"""Build and run a real Kubernetes control plane on loopback, for tests and benchmarks.

    control_plane.py build                 compile the executable into the cache, and print its path
    control_plane.py version               print the version of Kubernetes that it is of
    control_plane.py up DIR [options]      start etcd, kube-apiserver and the parts that are asked for
    control_plane.py status DIR            which parts run
    control_plane.py stop|start|restart DIR PART
    control_plane.py compact DIR           forget old revisions in etcd, so that old lists and watches expire
    control_plane.py token DIR NAMESPACE SERVICEACCOUNT [--output FILE]
                                           write a kubeconfig with a token of a ServiceAccount, and print its path
    control_plane.py down DIR              stop everything that `up DIR` started

The executable is kept below $FLOWSCHED_CACHE (else ~/.cache/flowsched), in a folder named after what it is built from.
$FLOWSCHED_KUBERNETES, such as 1.35, takes another minor version of Kubernetes than that of go.mod, from the folder versions.
`up` writes admin.kubeconfig, state.json, logs and the programs (bin/kubectl among them) into DIR and nothing elsewhere.
Needs Go and the Python standard library only.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

HERE = Path(__file__).resolve().parent
BASE = ("etcd", "kube-apiserver")
OPTIONAL = ("kube-scheduler", "kube-controller-manager", "kwok")
PROGRAMS = (*BASE, *OPTIONAL, "kubectl", "pki")
IDENTITIES = ("admin", "kube-scheduler", "kube-controller-manager", "kwok")
"""Who gets a client certificate; the same names stand in pki.go."""

# Enough for Jobs, ReplicaSets and namespaces to work. No node lifecycle: with it, thousands of
# simulated nodes would have to send heartbeats, which alone keeps two cores busy.
CONTROLLERS = (
    "namespace-controller,serviceaccount-controller,garbage-collector-controller,"
    "job-controller,replicaset-controller,deployment-controller,disruption-controller,"
    "pod-garbage-collector-controller"
)
FOR_REAL_NODES = "daemonset-controller,root-ca-certificate-publisher-controller"
"""Kubelets mount the root certificate into every pod with a token."""
VERSION_VARIABLE = "FLOWSCHED_KUBERNETES"
SERVICE_ADDRESS = "10.0.0.1"
"""Where pods expect the API server: the first address of the range of services."""
READY_WITHIN = 120.0
"""Seconds; a busy machine has been seen to need 17."""
PATIENCE = 5.0
"""Seconds between asking a process to end and ending it."""


class PlaneError(Exception):
    """What was asked for cannot be done; the text says why."""


class Process(TypedDict):
    """One started part. The pid and the kernel's start time together name a process for good."""

    pid: int
    started: int | None
    argv: list[str]
    env: dict[str, str]
    ready: str


# Building


def cache_dir() -> Path:
    """Where executables are kept from one run to the next."""
    root = os.environ.get("FLOWSCHED_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "flowsched"


def versions() -> dict[str, Path]:
    """What there is to build, by minor version: the file that says of which modules."""
    files = [HERE / "go.mod", *(HERE / "versions").glob("*.mod")]
    found = {".".join(kubernetes_version(file).lstrip("v").split(".")[:2]): file for file in files}
    return dict(sorted(found.items()))


def module_file() -> Path:
    """That of the version that is asked for, go.mod if none is."""
    asked = os.environ.get(VERSION_VARIABLE)
    if not asked:
        return HERE / "go.mod"
    known = versions()
    if asked not in known:
        raise PlaneError(f"{VERSION_VARIABLE} must be one of {', '.join(known)}, got {asked!r}")
    return known[asked]


def kubernetes_version(file: Path = HERE / "go.mod") -> str:
    """The release that a file of modules asks for."""
    for line in file.read_text().splitlines():
        words = line.split()
        if words[:1] == ["k8s.io/kubernetes"]:
            return words[1]
    raise PlaneError(f"{file.name} does not require k8s.io/kubernetes")


def linker_flags(file: Path = HERE / "go.mod") -> str:
    """Stripped, and with the version that the programs report about themselves."""
    version = kubernetes_version(file)
    major, minor = version.lstrip("v").split(".")[:2]
    stamp = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return "-s -w " + " ".join(f"-X {key}={value}" for key, value in stamp.items())


def executable() -> Path:
    """Where the executable of exactly these sources is, or will be."""
    modules = module_file()
    sources = [modules, modules.with_suffix(".sum"), *sorted((HERE / "cmd").rglob("*.go"))]
    return cache_dir() / "control-plane" / digest_of(linker_flags(modules), HERE, sources) / "control-plane"


def digest_of(options: str, folder: Path, sources: Sequence[Path]) -> str:
    """What distinguishes one build from another: its options, and the names and contents of its sources in a folder."""
    digest = hashlib.sha256(options.encode())
    for source in sources:
        digest.update(f"\0{source.relative_to(folder).as_posix()}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def built_once(target: Path, what: str, make: Callable[[Path], None]) -> Path:
    """What the cache has, made first if it has none; several callers at once make it once. ``make`` is given where to."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            if shutil.which("go") is None:
                raise PlaneError(f"{what} not built yet, and Go is not installed")
            part = target.with_suffix(".part")
            make(part)
            part.rename(target)
    return target


def go_build(what: str, folder: Path, flags: Sequence[str], linked: str, output: str, packages: Sequence[str]) -> None:
    """Compile packages of a module. ``linked``: flags of the linker; ``output``: a file, or a folder and a slash."""
    command = ["go", "build", "-mod=readonly", "-trimpath", *flags, "-ldflags", linked, "-o", output, *packages]
    if subprocess.run(command, cwd=folder, env={**os.environ, "GOWORK": "off"}, check=False).returncode:
        raise PlaneError(f"{what} cannot be built: see above")


def build() -> Path:
    """The executable, compiled first if the cache has none. Several callers at once build it once."""

    def make(part: Path) -> None:
        modules, packages = module_file(), ["./cmd/control-plane"]
        go_build("the control plane", HERE, [f"-modfile={modules}"], linker_flags(modules), str(part), packages)

    return built_once(executable(), "the control plane is", make)


# Helpers


def free_ports(count: int) -> list[int]:
    """Unused ports on loopback.

    They lie below the range from which the kernel takes ports for outgoing connections: none of those can take
    the port of a part while it is being restarted.
    """
    try:
        top = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        top = 32768
    held: list[socket.socket] = []
    try:
        for port in random.sample(range(10260, max(top, 20000)), 200):
            candidate = socket.socket()
            held.append(candidate)
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()
    raise PlaneError("no free ports on loopback")


def started_at(pid: int) -> int | None:
    """The kernel's start time of a living process, in its ticks."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def write_private(path: Path, data: Any) -> Path:
    """Write JSON (which is YAML) that only its owner may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(data, indent=1))
    return path


def write_kubeconfig(path: Path, server: str, ca: Path, name: str, user: dict[str, str], namespace: str = "") -> Path:
    """Write a kubeconfig with one cluster and one user."""
    context = {"cluster": "local", "user": name} | ({"namespace": namespace} if namespace else {})
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca.read_bytes()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "local", "context": context}],
    }
    return write_private(path, config)


def request(url: str, context: ssl.SSLContext | None = None, body: Any = None, timeout: float = 10.0) -> bytes:
    """GET, or POST a body as JSON, without any proxy."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.build_opener(*handlers).open(made, timeout=timeout) as answer:
        return bytes(answer.read())


# Running


class Plane:
    """A control plane whose files are all below one folder."""

    def __init__(self, folder: str | Path) -> None:
        """Read what is known of the folder; it need not exist."""
        self.dir = Path(folder).resolve()
        self.pki = self.dir / "pki"
        self._state_file = self.dir / "state.json"
        self.state: dict[str, Any] = json.loads(self._state_file.read_text()) if self._state_file.exists() else {}

    @property
    def processes(self) -> dict[str, Process]:
        """The parts by name, in the order of their start."""
        found: dict[str, Process] = self.state.setdefault("processes", {})
        return found

    def up(
        self,
        parts: Sequence[str],
        scheduler_qps: int = 0,
        feature_gates: str = "",
        runtime_config: str = "",
        audit_log: bool = False,
        real_nodes: bool = False,
        scheduler_scores: bool = False,
    ) -> None:
        """Start a fresh, empty plane; whatever an earlier one left in the folder is forgotten.

        ``real_nodes``: kubelets will join it, so nodes are held to what is theirs, as in a real cluster.
        ``scheduler_scores``: kube-scheduler scores all nodes, however many there are, and logs every score.
        """
        if any(self.alive().values()):
            raise PlaneError(f"a control plane already runs in {self.dir}")
        binary = build()
        began = time.monotonic()
        for sub in ("etcd", "pki", "bin", "logs"):
            shutil.rmtree(self.dir / sub, ignore_errors=True)
        for sub in ("bin", "logs", "pki"):
            (self.dir / sub).mkdir(parents=True)
        for name in PROGRAMS:
            (self.dir / "bin" / name).symlink_to(binary)
        subprocess.run([str(self.dir / "bin" / "pki"), str(self.pki)], check=True)
        if real_nodes:
            names = "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1"
            extensions = f"extendedKeyUsage=serverAuth\nsubjectAltName={names},IP:{SERVICE_ADDRESS}\n"
            self.certificate("apiserver", "/CN=kube-apiserver", extensions)

        client, peer, secure, scheduler, kwok = free_ports(5)
        server, etcd = f"https://127.0.0.1:{secure}", f"http://127.0.0.1:{client}"
        self.state = {"server": server, "etcd": etcd, "processes": {}, "times": {}}
        for who in IDENTITIES:
            self._certificate_kubeconfig(who)
        self.state["kubeconfig"] = str(self.dir / "admin.kubeconfig")
        gates = [f"--feature-gates={feature_gates}"] if feature_gates else []
        served = [f"--runtime-config={runtime_config}"] if runtime_config else []
        served += self._audit() if audit_log else []
        served += self._for_kubelets() if real_nodes else []
        authorizers = "Node,RBAC" if real_nodes else "RBAC"
        run = f"{CONTROLLERS},{FOR_REAL_NODES}" if real_nodes else CONTROLLERS
        # With controllers, one of them makes the ServiceAccount that every pod of a namespace then needs.
        controllers = "kube-controller-manager" in parts
        starts = {
            "etcd": lambda: self._start_etcd(f"http://127.0.0.1:{peer}"),
            "kube-apiserver": lambda: self._start_api(
                secure, controllers, [f"--authorization-mode={authorizers}", *gates, *served]
            ),
            "kube-scheduler": lambda: self._start_scheduler(scheduler, scheduler_qps, gates, scheduler_scores),
            "kube-controller-manager": lambda: self._start_controllers(run, gates),
            "kwok": lambda: self._start_kwok(f"127.0.0.1:{kwok}"),
        }
        for name, start in starts.items():
            if name in BASE or name in parts:
                start()
                self.state["times"][name] = round(time.monotonic() - began, 2)
        self._save()

    def down(self) -> None:
        """Stop what was started, last first; nothing else."""
        for name in reversed(list(self.processes)):
            self.stop(name)
        if self._state_file.exists():
            self._save()

    def alive(self) -> dict[str, bool]:
        """Whether each part that was started still runs."""
        return {name: self._runs(process) for name, process in self.processes.items()}

    def stop(self, name: str) -> None:
        """Stop one part, if it runs."""
        process = self._process(name)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if not self._runs(process):
                return
            os.kill(process["pid"], sign)
            until = time.monotonic() + PATIENCE
            while self._runs(process) and time.monotonic() < until:
                time.sleep(0.02)

    def start(self, name: str) -> None:
        """Start one part again, with the flags and the port that it had."""
        process = self._process(name)
        if self._runs(process):
            raise PlaneError(f"{name} runs already")
        self._launch(name, process["argv"], process["env"], process["ready"])

    def compact(self) -> int:
        """Make etcd forget every revision but the newest; returns that one."""
        url = f"{self.state['etcd']}/v3/kv"
        key = base64.b64encode(b"\0").decode()
        seen = json.loads(request(f"{url}/range", body={"key": key, "range_end": key, "count_only": True}))
        revision = int(seen["header"]["revision"])
        request(f"{url}/compaction", body={"revision": revision, "physical": True})
        return revision

    def token(self, namespace: str, account: str, output: Path | None = None) -> Path:
        """Write a kubeconfig for a ServiceAccount that exists already, with a token of one hour."""
        url = f"{self.state['server']}/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = json.loads(request(url, self._admin(), wanted))
        path = output or self.dir / f"{namespace}.{account}.kubeconfig"
        user = {"token": answer["status"]["token"]}
        return write_kubeconfig(path, self.state["server"], self.pki / "ca.crt", account, user, namespace)

    def _for_kubelets(self) -> list[str]:
        """What the API server does with them, and how it proves to them who asks."""
        shown = [
            f"--kubelet-client-{part}={self.pki}/admin.{end}" for part, end in (("certificate", "crt"), ("key", "key"))
        ]
        return ["--enable-admission-plugins=NodeRestriction", *shown]

    def certificate(self, name: str, subject: str, extensions: str) -> tuple[Path, Path]:
        """A key and a certificate that the plane's authority signed, in files of the folder of keys. Needs openssl."""
        key, made, wish, more = (self.pki / f"{name}.{end}" for end in ("key", "crt", "csr", "ext"))
        more.write_text(extensions)
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        authority = ["-CA", f"{self.pki}/ca.crt", "-CAkey", f"{self.pki}/ca.key"]
        signed = [*authority, "-set_serial", str(random.getrandbits(63)), "-days", "30"]
        for command in (
            ["openssl", "req", "-new", *curve, "-keyout", str(key), "-out", str(wish), "-subj", subject],
            ["openssl", "x509", "-req", "-in", str(wish), *signed, "-extfile", str(more), "-out", str(made)],
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except FileNotFoundError:
                raise PlaneError("openssl is not installed; it makes the certificates of real nodes") from None
            except subprocess.CalledProcessError as error:
                raise PlaneError(f"openssl made no certificate for {name}: {error.stderr.strip()}") from None
        return key, made

    def _process(self, name: str) -> Process:
        if name not in self.processes:
            known = ", ".join(self.processes) or "none"
            raise PlaneError(f"{self.dir} has no part {name!r} (started: {known})")
        return self.processes[name]

    @staticmethod
    def _runs(process: Process) -> bool:
        return process["started"] is not None and started_at(process["pid"]) == process["started"]

    def _save(self) -> None:
        write_private(self._state_file, self.state)

    def _certificate_kubeconfig(self, who: str) -> None:
        parts = {"client-certificate-data": "crt", "client-key-data": "key"}
        user = {key: base64.b64encode((self.pki / f"{who}.{end}").read_bytes()).decode() for key, end in parts.items()}
        write_kubeconfig(self._config_of(who), self.state["server"], self.pki / "ca.crt", who, user)

    def _config_of(self, who: str) -> Path:
        return self.dir / f"{who}.kubeconfig"

    def _admin(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(str(self.pki / "admin.crt"), str(self.pki / "admin.key"))
        return context

    def _audit(self) -> list[str]:
        """Who asked for what, and how it was answered: a line is in the log before the answer is out.

        Of bindings, deletions of pods and leases also what was sent.
        """
        whole = [
            {"level": "Request", "resources": [{"group": "", "resources": ["pods/binding"]}]},
            {"level": "Request", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
            {"level": "Request", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        ]
        rules = [*whole, {"level": "Metadata"}]
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": rules,
        }
        path = write_private(self.dir / "audit-policy.json", policy)
        log = self.dir / "logs" / "audit.log"
        kept = ["--audit-log-maxsize=100", "--audit-log-maxbackup=2"]
        return [f"--audit-policy-file={path}", f"--audit-log-path={log}", "--audit-log-mode=blocking", *kept]

    def _start_etcd(self, peer: str) -> None:
        url = self.state["etcd"]
        flags = [
            "--name=local",
            f"--data-dir={self.dir / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=local={peer}",
            # A throw-away store: losing it in a power cut costs nothing, waiting for the disk does.
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        ]
        self._launch("etcd", flags, ready=f"{url}/health")

    def _start_api(self, port: int, controllers: bool, more: list[str]) -> None:
        # Nothing would take the not-ready taint off a new node, as the node lifecycle controller does.
        off = "TaintNodesByCondition" if controllers else "TaintNodesByCondition,ServiceAccount"
        key = self.pki / "service-account.key"
        flags = [
            f"--etcd-servers={self.state['etcd']}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--cert-dir={self.pki}",
            f"--tls-cert-file={self.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self.pki / 'apiserver.key'}",
            f"--client-ca-file={self.pki / 'ca.crt'}",
            f"--requestheader-client-ca-file={self.pki / 'ca.crt'}",
            "--requestheader-allowed-names=nobody",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--event-ttl=15m",
            "--profiling=false",
            f"--disable-admission-plugins={off}",
            *more,
        ]
        self._launch("kube-apiserver", flags, ready=f"{self.state['server']}/readyz")

    def _start_scheduler(self, port: int, qps: int, more: list[str], scores: bool) -> None:
        kubeconfig = self._config_of("kube-scheduler")
        connection: dict[str, Any] = {"kubeconfig": str(kubeconfig)}
        if qps:
            connection |= {"qps": qps, "burst": qps}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": connection,
            **({"percentageOfNodesToScore": 100} if scores else {}),
        }
        flags = [
            *(["-v=10"] if scores else []),
            f"--config={write_private(self.dir / 'kube-scheduler.config', config)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.pki / 'kube-scheduler'}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            *more,
        ]
        self.state["scheduler"] = f"https://127.0.0.1:{port}"
        self._launch("kube-scheduler", flags, ready=f"{self.state['scheduler']}/readyz")

    def _start_controllers(self, controllers: str, more: list[str]) -> None:
        flags = [
            f"--kubeconfig={self._config_of('kube-controller-manager')}",
            "--leader-elect=false",
            "--secure-port=0",
            # With one identity for all of them they would be refused everywhere.
            "--use-service-account-credentials=true",
            f"--controllers={controllers}",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            f"--service-account-private-key-file={self.pki / 'service-account.key'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            *more,
        ]
        self._launch("kube-controller-manager", flags)

    def _start_kwok(self, address: str) -> None:
        config = self.dir / "kwok.yaml"
        options = "options: {podPlayStageParallelism: 16, nodePlayStageParallelism: 16}"
        head = f"kind: KwokConfiguration\napiVersion: config.kwok.x-k8s.io/v1alpha1\n{options}\n---\n"
        config.write_text(head + (HERE / "stages.yaml").read_text())
        flags = [
            f"--kubeconfig={self._config_of('kwok')}",
            f"--config={config}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            # With leases, pods stay unmanaged for as long as the lease of an earlier run lives.
            "--node-lease-duration-seconds=0",
            f"--server-address={address}",
        ]
        environment = {"KWOK_WORKDIR": str(self.dir / "kwok")}
        self._launch("kwok", flags, environment, ready=f"http://{address}/readyz")

    def _launch(self, name: str, argv: list[str], env: dict[str, str] | None = None, ready: str = "") -> None:
        """Start a program and wait until its URL answers, where it has one."""
        with (self.dir / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self.dir / "bin" / name), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.dir,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        started = started_at(process.pid)
        self.processes[name] = {"pid": process.pid, "started": started, "argv": argv, "env": env or {}, "ready": ready}
        self._save()
        if ready:
            self._await(name, process, ready)

    def _await(self, name: str, process: subprocess.Popen[bytes], url: str) -> None:
        context = None
        if url.startswith(self.state["server"]):
            context = self._admin()
        elif url.startswith("https"):
            # Its serving certificate is signed by itself.
            context = ssl._create_unverified_context()
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                request(url, context, timeout=2.0)
                return
            except OSError as error:
                if process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                log = (self.dir / "logs" / f"{name}.log").read_text(errors="replace")
                raise PlaneError(f"{name} did not become ready ({error}); the end of its log:\n{log[-3000:]}") from None


# The command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="compile the executable into the cache")
    verbs.add_parser("path", help="print where the executable is or would be")
    verbs.add_parser("version", help="print the version of Kubernetes that it is of")
    for verb in ("up", "down", "status", "stop", "start", "restart", "compact", "token"):
        sub = verbs.add_parser(verb)
        sub.add_argument("dir")
        if verb in ("stop", "start", "restart"):
            sub.add_argument("part")
        if verb == "token":
            sub.add_argument("namespace")
            sub.add_argument("account")
            sub.add_argument("--output", type=Path)
        if verb == "up":
            sub.add_argument(
                "--parts", default=",".join(OPTIONAL), help="besides etcd and kube-apiserver (default: %(default)s)"
            )
            sub.add_argument("--scheduler-qps", type=int, default=0, help="of kube-scheduler (default: its own)")
            sub.add_argument(
                "--scheduler-scores", action="store_true", help="kube-scheduler scores all nodes and logs every score"
            )
            sub.add_argument(
                "--feature-gates", default="", help="of all Kubernetes parts, such as GenericWorkload=true"
            )
            sub.add_argument(
                "--runtime-config",
                default="",
                help="APIs of kube-apiserver, such as scheduling.k8s.io/v1alpha2=true",
            )
            sub.add_argument("--audit-log", action="store_true", help="log every request to DIR/logs/audit.log")
            sub.add_argument("--real-nodes", action="store_true", help="kubelets will join; see real_node.py")
    return parser


def _run(args: argparse.Namespace) -> int:
    if args.verb in ("build", "path"):
        print(build() if args.verb == "build" else executable())
        return 0
    if args.verb == "version":
        print(kubernetes_version(module_file()))
        return 0
    plane = Plane(args.dir)
    if args.verb == "up":
        parts = [part for part in args.parts.split(",") if part]
        options = {name: value for name, value in vars(args).items() if name not in ("verb", "dir", "parts")}
        if unknown := sorted({*parts} - {*OPTIONAL}):
            raise PlaneError(f"no such part: {', '.join(unknown)} (known: {', '.join(OPTIONAL)})")
        try:
            plane.up(parts, **options)
        except BaseException:
            plane.down()
            raise
        print(json.dumps({key: plane.state[key] for key in ("kubeconfig", "server", "times")}))
    elif args.verb == "down":
        plane.down()
    elif args.verb == "compact":
        print(plane.compact())
    elif args.verb == "token":
        print(plane.token(args.namespace, args.account, args.output))
    elif args.verb == "status":
        alive = plane.alive()
        print(json.dumps(alive))
        return 0 if alive and all(alive.values()) else 1
    else:
        if args.verb in ("stop", "restart"):
            plane.stop(args.part)
        if args.verb in ("start", "restart"):
            plane.start(args.part)
    return 0


def main() -> int:
    """Do what the command line says; 1 and one message if that fails."""
    try:
        return _run(_parser().parse_args())
    except (PlaneError, urllib.error.URLError) as error:
        print(f"control_plane.py: {error}", file=sys.stderr)
        return 1


def build_or_path(script: str, description: str | None, build: Callable[[], Path], path: Callable[[], Path]) -> int:
    """The command line of a script that builds something else, with these two verbs; 1 and one message if that fails."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("build", "path"))
    try:
        print(build() if parser.parse_args().verb == "build" else path())
    except (PlaneError, subprocess.CalledProcessError) as error:
        print(f"{script}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
