"""The report and the tables of controllers on one machine: what stands in them, and that they stand alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as Tree

import pytest
from node_world import Scripted, memcached, run, run_all, scenario

from flowsched.node import Allocation, Reading, ServiceGrant, TaskGrant
from flowsched_simulator.node.comparison import node_result
from flowsched_simulator.node.report.cores import core_steps
from flowsched_simulator.node.report.jobs import pieces
from flowsched_simulator.node.report.page import render_node_report
from flowsched_simulator.node.simulation import NodeOptions
from flowsched_simulator.node.table import render_node_table


def busy(reading: Reading) -> Allocation:
    """Paused every second second, memcached on one core meanwhile."""
    on = int(reading.t_s + 1e-6) % 2 == 0
    grants = {t.task.name: TaskGrant(on, (1, 2, 3) if on else (2, 3)) for t in reading.tasks}
    return Allocation({"memcached": ServiceGrant((0,) if on else (0, 1))}, grants)


def outcome(**options: Any) -> dict[str, Any]:
    world = scenario()
    runs = (
        run(of=world, options=NodeOptions(**options)),
        run(of=world, controller=Scripted(busy), options=NodeOptions(**options)),
    )
    return node_result(world, runs)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return outcome()


@pytest.fixture(scope="module")
def page(result: dict[str, Any]) -> str:
    return render_node_report(result)


class Words(HTMLParser):
    """All text outside of styles and scripts, and every address."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.addresses: list[str] = []
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent = tag in ("style", "script")
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.found.append(" ".join(data.split()))


def drawings(page: str) -> dict[str, Tree.Element]:
    found = [Tree.fromstring(text) for text in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]
    return {svg.get("id", ""): svg for svg in found}


def part(svg: Tree.Element, klass: str) -> list[Tree.Element]:
    return [e for e in svg.iter() if klass in e.get("class", "").split()]


def test_every_run_has_its_jobs_its_latency_and_its_cores(page: str) -> None:
    assert list(drawings(page)) == [f"{kind}-{n}{tail}" for n in (0, 1) for kind, tail in
                                    (("jobs", ""), ("latency", "-0"), ("cores", "-0"))]  # fmt: skip


def test_the_page_needs_nothing_beside_itself(page: str) -> None:
    words = Words(page)

    assert words.addresses == ["data:,"]
    assert "url(http" not in page
    assert "@import" not in page


def test_the_same_result_gives_the_same_bytes(result: dict[str, Any], page: str) -> None:
    assert render_node_report(result) == page


def test_figures_are_text(result: dict[str, Any], page: str) -> None:
    text = "\n".join(Words(page).found)

    for one in result["runs"]:
        assert f"makespan {one['makespan_s']:.1f} s" in text
        assert f"{one['violations']} of {one['points']} points over SLO" in text
        for job in one["jobs"]:
            assert f"{job['active_s']:.1f}" in text
            assert f"active {job['active_s']:.1f} s" in text
    assert "K QPS" in text
    assert "SLO 1 ms" in text
    assert "the noise of a measurement (log-normal" in text


def test_a_pause_is_a_gap_in_the_bar(result: dict[str, Any], page: str) -> None:
    job = result["runs"][1]["jobs"][0]
    bars = drawings(page)["jobs-1"]
    (bar,) = [e for e in part(bars, "piece") if e.get("fill")][:1]

    assert job["pauses"] > 1
    assert len(pieces(job["stretches"])) == job["pauses"] + 1
    assert bar.get("d", "").count("M") == job["pauses"] + 1
    whole = drawings(page)["jobs-0"]
    assert [e.get("d", "").count("M") for e in part(whole, "piece")] == [1, 1]


def test_thickness_is_cores() -> None:
    job = {"stretches": [[0.0, 1.0, "0-3", 1.0, None], [1.0, 2.0, "1,2,3", 1.0, 0.5], [2.0, 3.0, "0-2", 1.0, None],
                         [5.0, 6.0, "0", 1.0, None]]}  # fmt: skip
    assert pieces(job["stretches"]) == [(0.0, 1.0, 4), (1.0, 3.0, 3), (5.0, 6.0, 1)]


def test_cores_of_a_service_follow_its_grants(result: dict[str, Any], page: str) -> None:
    one = result["runs"][1]
    steps = core_steps(one, "memcached")

    assert [count for _, _, count in steps[:4]] == [1, 2, 1, 2]
    assert sum(end - start for start, end, _ in steps) == pytest.approx(one["end_s"])
    assert len(part(drawings(page)["cores-1-0"], "cores")) == len(steps)


def test_every_window_is_a_bar_under_one_line_of_load(result: dict[str, Any], page: str) -> None:
    for n, one in enumerate(result["runs"]):
        latency = drawings(page)[f"latency-{n}-0"]
        over = sum(w["p95_us"] > 1000.0 for w in one["latency"])
        assert len(part(latency, "window")) == len(one["latency"])
        assert len(part(latency, "over")) == over
        (load,) = part(latency, "load")
        assert load.get("d", "").count("H") == len(one["latency"])
        assert load.get("d", "").count("M") == 1


def test_two_services_have_drawings_of_their_own() -> None:
    world = scenario(services=(memcached("a", (0,)), memcached("b", (3,))))
    both = node_result(world, (run(run_all((1, 2)), of=world),))

    assert list(drawings(render_node_report(both))) == [
        "jobs-0",
        "latency-0-0",
        "cores-0-0",
        "latency-0-1",
        "cores-0-1",
    ]


def test_names_from_files_are_text() -> None:
    world = scenario()
    hostile = node_result(world, (run(of=world),))
    hostile["description"] = "<script>alert(1)</script>"

    assert "<script>alert" not in render_node_report(hostile)


def test_jobs_that_never_ended_are_told_apart() -> None:
    def stop(reading: Reading) -> Allocation:
        return Allocation(
            tasks={t.task.name: TaskGrant(reading.t_s < 2.0 and t.task.name == "vips", (2,)) for t in reading.tasks}
        )

    world = scenario(jobs={"radix": 1.0, "vips": 1.0})
    late = node_result(world, (run(stop, of=world),))
    text = "\n".join(Words(render_node_report(late)).found)
    table = render_node_table(late)

    assert "2 jobs did not finish" in text
    assert "Never started: radix." in text
    assert "2.0 +" in text
    assert "never" in table
    assert "2.0+" in table


def test_without_noise_the_report_and_the_table_say_so() -> None:
    quiet = outcome(noise=0.0)

    assert "without the noise of a measurement" in render_node_report(quiet)
    table = render_node_table(quiet)
    assert "without noise" in table
    assert "no noise" not in table.splitlines()[0]


def test_the_table_has_a_row_per_run_and_the_active_seconds(result: dict[str, Any]) -> None:
    lines = render_node_table(result).splitlines()

    assert lines[1].split()[:2] == ["policy", "s"]
    assert [line.split()[0] for line in lines[3:5]] == ["scripted", "scripted"]
    assert lines[3].split()[1] == f"{result['runs'][0]['makespan_s']:.1f}"
    assert lines[6].split()[2:] == ["radix", "vips"]
    assert lines[8].split()[1:] == [f"{job['active_s']:.1f}" for job in result["runs"][0]["jobs"]]
    assert "load" not in lines[0]


def test_runs_with_several_intervals_are_told_apart() -> None:
    world = scenario()
    runs = [run(of=world, options=NodeOptions(qps_interval_s=s)) for s in (5.0, 1.0)]
    both = node_result(world, runs)

    assert "load changes every 1 s" in render_node_report(both)
    assert [line.split()[1] for line in render_node_table(both).splitlines()[3:5]] == ["5", "1"]
