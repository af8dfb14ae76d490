"""The page: one self-contained HTML file over one or more records."""

from flowsched.inspector.page.page import render_page

__all__ = ["render_page"]
