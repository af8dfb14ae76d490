"""Drawing by elements; names from users become text, never markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Tree

from markupsafe import Markup

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def length(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def add(parent: Tree.Element, tag: str, text: str = "", **attributes: str | float) -> Tree.Element:
    """Append an element to ``parent``. ``klass`` is the class; ``_`` in a name stands for ``-``."""
    element = Tree.SubElement(parent, tag)
    for name, value in attributes.items():
        key = "class" if name == "klass" else name.replace("_", "-")
        element.set(key, printable(value) if isinstance(value, str) else length(value))
    if text:
        element.text = printable(text)
    return element


def picture(ident: str, klass: str, width: float, height: float, title: str, desc: str) -> Tree.Element:
    """Return an empty drawing of ``width`` by ``height`` user units that says what it shows."""
    root = Tree.Element("svg")
    root.set("xmlns", "http://www.w3.org/2000/svg")
    root.set("viewBox", f"0 0 {length(width)} {length(height)}")
    root.set("class", klass)
    root.set("id", ident)
    root.set("role", "img")
    root.set("aria-labelledby", f"{ident}-title")
    root.set("aria-describedby", f"{ident}-desc")
    add(root, "title", title, id=f"{ident}-title")
    add(root, "desc", desc, id=f"{ident}-desc")
    return root


def hatch(root: Tree.Element, ident: str) -> str:
    """Define a hatching, and return how to fill with it."""
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    pattern = add(add(root, "defs"), "pattern", id=ident, width=5, height=5, **turned)
    add(pattern, "line", klass="hatch-over", x1=0, y1=0, x2=0, y2=5)
    return f"url(#{ident})"


def markup(root: Tree.Element) -> Markup:
    """Return the drawing for a page."""
    return Markup(Tree.tostring(root, encoding="unicode"))


def printable(text: str) -> str:
    """Return ``text`` without characters that no document may hold."""
    return _UNPRINTABLE.sub("\ufffd", text)
