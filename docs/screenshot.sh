#!/bin/sh
# Draws docs/images/report.png: the top of the demo's report in headless Chromium. Run from the repository's root.
set -eu
out=$(mktemp -d)
.venv/bin/flowsched simulate parsec-memcached-2024 --policy flow --policy all-at-once --policy kube-default \
    --policy lpt --out "$out" >/dev/null
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --user-data-dir="$out/profile" --hide-scrollbars \
    --window-size=1180,1920 --screenshot=docs/images/report.png "file://$out/report.html" >/dev/null 2>&1
rm -rf "$out"
