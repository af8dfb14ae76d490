"""Pages in a real browser, one after the other in one tab: with a new tab for each, they took twice as much of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from requirements_on_machine import needs

sync_api = pytest.importorskip("playwright.sync_api")
Page = Any
"""``playwright.sync_api.Page``."""


@dataclass(frozen=True)
class Seen:
    """What pages complained of, in the console or by an error, and the addresses that were asked for."""

    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def browser_tab(why: str) -> Iterator[Page]:
    """The tab of a browser that finds no other host."""
    path = needs("chromium", why)
    with sync_api.sync_playwright() as playwright:
        args = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = playwright.chromium.launch(executable_path=path, args=args)
        yield browser.new_page()
        browser.close()


@contextmanager
def watched(tab: Page, **viewport: int) -> Iterator[Seen]:
    """The tab as if it were new, and what is seen until the last page is left."""
    seen = Seen()
    listeners = {
        "console": lambda message: seen.complaints.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: seen.complaints.append(str(error)),
        "request": lambda request: seen.asked.append(request.url),
    }
    tab.mouse.move(0, 0)
    tab.set_viewport_size(viewport)
    tab.emulate_media(media="null", color_scheme="light")
    for event, listener in listeners.items():
        tab.on(event, listener)
    yield seen
    tab.goto("about:blank")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)


def show(tab: Page, address: str) -> Page:
    """Open a page, anew also where its address differs from the last one's in the fragment only; wait until it is drawn."""
    if tab.url != "about:blank":
        tab.goto("about:blank")
    tab.goto(address)
    tab.wait_for_selector("html[data-ready]", state="attached")
    return tab
