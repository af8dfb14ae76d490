"""The page: one self-contained HTML file over one or more records."""
