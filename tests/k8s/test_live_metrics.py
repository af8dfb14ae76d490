"""Metrics on the network, scraped with the tokens of ServiceAccounts that a real API server is asked about."""

from __future__ import annotations

from pathlib import Path

import yaml
from plane import Plane
from running import MANIFESTS, running_scheduler

ROLE = MANIFESTS.parent / "examples" / "metrics-role.yaml"


def token_of(kubeconfig: Path) -> str:
    (user,) = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"]
    return str(user["user"]["token"])


def test_the_account_of_prometheus_reads_metrics_and_no_other_does(plane: Plane, tmp_path: Path) -> None:
    role, _ = yaml.safe_load_all(ROLE.read_text(encoding="utf-8"))
    with running_scheduler(plane, tmp_path) as scheduler:
        prometheus, other = (
            token_of(scheduler.home.service_account_kubeconfig(rules)) for rules in (role["rules"], [])
        )
        status, text = scheduler.scrape(prometheus)
        assert (status, "scheduler_pending_pods" in text) == (200, True)
        assert scheduler.scrape(other)[0] == 403
        for token in (prometheus[:-8] + "AAAAAAAA", "nonsense"):
            assert scheduler.scrape(token)[0] == 401


def test_without_authentication_every_caller_is_answered_and_the_log_warns(plane: Plane, tmp_path: Path) -> None:
    with running_scheduler(plane, tmp_path, listens={"authentication": "none"}) as scheduler:
        assert scheduler.scrape("nonsense")[0] == 200
        (line,) = (line for line in scheduler.log() if line.get("key") == "server.authentication")
        assert line["level"] == "warning"
