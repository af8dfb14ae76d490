from __future__ import annotations
from collections.abc import Iterator
import pytest
from plane import Plane, Space, wait_for
from running import Running, Site, running_scheduler, site_of

@pytest.fixture
def site(plane: Plane, space: Space, tmp_path) -> Iterator[Site]:
    with running_scheduler(plane, tmp_path) as started, site_of(started, space) as made:
        yield made

def test_probe(site: Site) -> None:
    site.node(cpu="1")
    site.pod("p", cpu="1")
    site.bound("p")
    site.space.admin.patch(f"{site.space.pods_path}/p/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
    wait_for(lambda: site.scheduler.metric("flowsched_kubelet_rejections_total", reason="OutOfcpu"), "counted", 15)
