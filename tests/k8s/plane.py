"""A real control plane for tests: started once per process, and what tests need to fill and question it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from requirements_on_machine import give_up, needs

SCRIPT = Path(__file__).parents[2] / "k8s" / "control_plane" / "control_plane.py"
sys.path.append(str(SCRIPT.parent))  # scripts of their own, and no part of what is installed

from control_plane import Plane as ScriptPlane  # noqa: E402
from control_plane import free_ports as free_ports  # noqa: E402

HOME = Path(tempfile.gettempdir()) / f"flowsched-planes-{os.getuid()}"
"""Planes lie here in folders named after the process that owns them, so that those of dead ones can be cleared."""
T = TypeVar("T")
Object = dict[str, Any]


class RefusedError(Exception):
    """The API server answered with something else than success."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


def wait_for(predicate: Callable[[], T], what: str, within: float = 180.0) -> T:
    """What the predicate says once it is true. The limit only ends a test that has failed anyway."""
    until = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < until, f"waited {within:g} s in vain for: {what}"
        time.sleep(0.02)
    return value


async def becomes(predicate: Callable[[], T], what: str, within: float = 180.0) -> T:
    """The same among coroutines."""
    until = time.monotonic() + within
    while not (value := predicate()):
        assert time.monotonic() < until, f"waited {within:g} s in vain for: {what}"
        await asyncio.sleep(0.02)
    return value


def run_script(*words: str | Path) -> str:
    """Run control_plane.py. Raises ``CalledProcessError`` with what it said.

    What it starts looks for garbage a quarter as often as usual, on one processor: heaps are small here, and CPU is short.
    """
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    environment = {"GOGC": "400", "GOMAXPROCS": "1", **os.environ}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def require_executable() -> None:
    """Skip the tests (or fail them, in CI) if the control plane can neither be found nor built."""
    if not Path(run_script("path")).exists():
        needs("go", "to build the Kubernetes control plane that this test runs against")
        try:
            run_script("build")
        except subprocess.CalledProcessError as error:
            give_up(f"the control plane cannot be built: {error.stderr.strip().splitlines()[0]}")


def started_at(pid: int) -> str | None:
    """The kernel's start time of a process; None once it has ended, waited for or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def clear_dead_planes() -> None:
    """Stop what earlier test runs left behind when they were killed."""
    for folder in HOME.glob("*-*-*"):
        pid, started, _ = folder.name.split("-")
        if started_at(int(pid)) != started:
            with contextlib.suppress(subprocess.CalledProcessError):
                run_script("down", folder)
            shutil.rmtree(folder, ignore_errors=True)


_numbers = itertools.count()


@contextlib.contextmanager
def running_plane(*options: str) -> Iterator[Plane]:
    """A fresh plane, gone afterwards. ``options`` are those of ``control_plane.py up``."""
    require_executable()
    HOME.mkdir(mode=0o700, exist_ok=True)
    clear_dead_planes()
    folder = HOME / f"{os.getpid()}-{started_at(os.getpid())}-{next(_numbers)}"
    folder.mkdir()
    try:
        try:
            run_script("up", folder, *options)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"the control plane did not start: {error.stderr}") from None
        yield Plane(folder)
    finally:
        run_script("down", folder)
        shutil.rmtree(folder, ignore_errors=True)


class Admin:
    """A client that may do everything; one kept-alive connection per thread."""

    def __init__(self, server: str, pki: Path) -> None:
        parts = urllib.parse.urlsplit(server)
        assert parts.hostname and parts.port
        self.host, self.port = parts.hostname, parts.port
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        self._local = threading.local()
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        """One request; the answer decoded. Raises :class:`RefusedError`."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        for attempt in (1, 2):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection(self.host, self.port, context=self._tls, timeout=60)
                self._local.connection = connection
            try:
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                content = answer.read()
                break
            except (OSError, http.client.HTTPException):
                # Kept alive for too long, or the API server was restarted.
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
        decoded = json.loads(content) if content.startswith(b"{") else {"message": content.decode(errors="replace")}
        if answer.status >= 300:
            raise RefusedError(answer.status, decoded.get("message", ""))
        return decoded

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self.request("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Object, kind: str = "merge-patch") -> Object:
        """``kind`` is ``merge-patch`` or ``strategic-merge-patch``."""
        return self.request("PATCH", path, body, f"application/{kind}+json")

    def delete(self, path: str, grace: int | None = 0) -> Object:
        return self.request("DELETE", path, {} if grace is None else {"gracePeriodSeconds": grace})

    def find(self, path: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return self.get(path)
        except RefusedError as error:
            if error.status != 404:
                raise
            return None

    def items(self, path: str, **selectors: str) -> list[Object]:
        """What a collection holds, by ``labelSelector`` or ``fieldSelector`` if given."""
        query = f"?{urllib.parse.urlencode(selectors)}" if selectors else ""
        return list(self.get(path + query)["items"])

    def apply(self, documents: str | Iterable[Object], namespace: str = "default") -> list[Object]:
        """Apply YAML documents on the server's side, as ``kubectl apply --server-side`` does."""
        objects = yaml.safe_load_all(documents) if isinstance(documents, str) else documents
        return [self._apply(obj, namespace) for obj in objects if obj]

    def _apply(self, obj: Object, namespace: str) -> Object:
        version, kind = obj["apiVersion"], obj["kind"]
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._resources:
            for resource in self.get(prefix)["resources"]:
                if "/" not in resource["name"]:
                    self._resources[(version, resource["kind"])] = (resource["name"], resource["namespaced"])
        resource, namespaced = self._resources[(version, kind)]
        place = f"/namespaces/{obj['metadata'].get('namespace', namespace)}" if namespaced else ""
        path = f"{prefix}{place}/{resource}/{obj['metadata']['name']}?fieldManager=tests&force=true"
        return self.request("PATCH", path, yaml.safe_dump(obj), "application/apply-patch+yaml")


class Plane:
    """A control plane that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        state = json.loads((folder / "state.json").read_text())
        self.server: str = state["server"]
        self.scheduler: str = state.get("scheduler", "")
        self.kubeconfig = folder / "admin.kubeconfig"
        self.admin = Admin(self.server, folder / "pki")

    def pid(self, part: str) -> int:
        return int(json.loads((self.folder / "state.json").read_text())["processes"][part]["pid"])

    def stop(self, part: str) -> None:
        run_script("stop", self.folder, part)

    def start(self, part: str) -> None:
        run_script("start", self.folder, part)

    def restart(self, part: str) -> None:
        run_script("restart", self.folder, part)

    def compact(self) -> None:
        """Make the store forget all old revisions."""
        run_script("compact", self.folder)

    def environment(self) -> dict[str, str]:
        """For programs that use a kubeconfig, kubectl among them; they write nothing outside the plane's folder."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {
            **os.environ,
            "PATH": path,
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
        }

    def kubectl(self, *words: str) -> str:
        """What kubectl prints. Raises ``CalledProcessError`` with what it said."""
        command = [str(self.folder / "bin" / "kubectl"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment())
        return done.stdout

    @contextlib.contextmanager
    def space(self, name: str) -> Iterator[Space]:
        """A namespace of its own; its pods and nodes are deleted afterwards."""
        name = f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')[:40].rstrip('-')}-{next(_numbers)}"
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        made = Space(self, name)
        try:
            yield made
        finally:
            made.clear()

    def kubeconfig_for(self, namespace: str, account: str, server: str = "") -> Path:
        """A kubeconfig with a token of a ServiceAccount; through another address if given."""
        path = self.folder / f"{namespace}.{account}.{next(_numbers)}.kubeconfig"
        ScriptPlane(self.folder).token(namespace, account, path)
        if server:
            path.write_text(path.read_text().replace(self.server, server))
        return path


class Space:
    """One test's namespace and its nodes."""

    def __init__(self, plane: Plane, name: str) -> None:
        self.plane = plane
        self.name = name
        self._accounts = itertools.count()

    @property
    def admin(self) -> Admin:
        return self.plane.admin

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.name}/pods"

    @property
    def pool(self) -> dict[str, str]:
        """The label that all nodes of this test bear, and no others."""
        return {"flowsched.test/space": self.name}

    def make_nodes(
        self,
        count: int,
        *,
        prefix: str = "node",
        cpu: str = "4",
        memory: str = "16Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Object] = (),
        kwok: bool = True,
        resources: Mapping[str, str] | None = None,
        images: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Ready nodes at once, with images of so many bytes. Those that KWOK looks after run the pods bound to them."""
        names = [f"{self.name}-{prefix}-{number}" for number in range(count)]
        allocatable = {"cpu": cpu, "memory": memory, "pods": str(pods), **(resources or {})}
        for name in names:
            self.admin.post(
                "/api/v1/nodes",
                {
                    "metadata": {
                        "name": name,
                        "labels": {"kubernetes.io/hostname": name, **self.pool, **(labels or {})},
                        "annotations": {"kwok.x-k8s.io/node": "fake"} if kwok else {},
                    },
                    "spec": {"taints": list(taints)},
                    "status": {
                        "allocatable": allocatable,
                        "capacity": allocatable,
                        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
                        "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
                    },
                },
            )
        return names

    def make_pod(
        self,
        name: str,
        *,
        cpu: str = "100m",
        memory: str = "64Mi",
        scheduler: str = "flowsched",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: tuple[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod as the API server made it; further fields of its spec by their names in the API.

        ``owner``: (kind, uid) of its controller, of ``apps/v1``.
        """
        container = {"name": "main", "image": "test", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        body = {
            "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
            "spec": {"schedulerName": scheduler, "containers": [container], **spec},
        }
        if owner is not None:
            named = {"kind": owner[0], "uid": owner[1], "name": owner[0].lower(), "controller": True}
            body["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", **named}]
        return self.admin.post(self.pods_path, body)

    def pod(self, name: str) -> Object:
        return self.admin.get(f"{self.pods_path}/{name}")

    def pods(self) -> list[Object]:
        return self.admin.items(self.pods_path)

    def delete_pod(self, name: str, grace: int | None = 0) -> None:
        self.admin.delete(f"{self.pods_path}/{name}", grace)

    def events(self, **selectors: str) -> list[Object]:
        return self.admin.items(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events", **selectors)

    def service_account_kubeconfig(
        self, rules: Sequence[Object], namespaced: Sequence[Object] = (), server: str = ""
    ) -> Path:
        """A kubeconfig with the token of a new ServiceAccount that has exactly these rules.

        ``rules`` hold in the whole cluster, ``namespaced`` in this namespace only.
        """
        account = f"account-{next(self._accounts)}"
        group = "rbac.authorization.k8s.io"
        subjects = [{"kind": "ServiceAccount", "name": account, "namespace": self.name}]
        documents: list[Object] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}]
        for prefix, name, given in (("Cluster", f"{self.name}-{account}", rules), ("", account, namespaced)):
            role = {"apiVersion": f"{group}/v1", "kind": f"{prefix}Role", "metadata": {"name": name}}
            reference = {"apiGroup": group, "kind": f"{prefix}Role", "name": name}
            documents.append({**role, "rules": list(given)})
            documents.append({**role, "kind": f"{prefix}RoleBinding", "roleRef": reference, "subjects": subjects})
        self.admin.apply(documents, self.name)
        return self.plane.kubeconfig_for(self.name, account, server)

    def clear(self) -> None:
        """Delete pods and nodes; without the namespace controller, the namespace itself would never go."""

        def empty() -> bool:
            self.admin.delete(self.pods_path)
            return not self.pods()

        wait_for(empty, f"the pods of {self.name} to be deleted")
        selector = urllib.parse.urlencode({"labelSelector": f"flowsched.test/space={self.name}"})
        self.admin.delete(f"/api/v1/nodes?{selector}")


class Fault(Enum):
    """What a :class:`Wire` does to what passes."""

    NONE = "none"
    LOSE_REPLIES = "lose replies"
    """Requests arrive; at the first byte of an answer the connection is cut."""
    LOSE_REQUESTS = "lose requests"
    """At the first byte of a request the connection is cut, and nothing arrives."""
    SILENCE = "silence"
    """Connections stay open, and nothing arrives any more."""
    REFUSE = "refuse"
    """New connections are closed at once."""


class Wire:
    """A TCP proxy in front of the API server, for what networks do."""

    def __init__(self, server: str) -> None:
        target = urllib.parse.urlsplit(server)
        self._target = (target.hostname, target.port)
        self.fault = Fault.NONE
        self.lost = 0
        """How many connections a fault has cut."""
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Wire:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.address = f"https://127.0.0.1:{started.result()}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Cut every connection."""

        def close() -> None:
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(close)

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fault is Fault.REFUSE:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            ways = (
                self._pump(reader, far_writer, Fault.LOSE_REQUESTS),
                self._pump(far_reader, writer, Fault.LOSE_REPLIES),
            )
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: Fault) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                while self.fault is Fault.SILENCE:
                    await asyncio.sleep(0.02)
                if self.fault is loses:
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()
