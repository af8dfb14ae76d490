"""What a configuration says of metrics that are served on a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from flowsched.support.configuration import Place, Section, key
from flowsched_models.document import Document, KeyPath, Problem


class ProtectedServer(Section):
    """Metrics by TLS, for callers that are admitted."""

    authentication: Literal["kubernetes", "none"] = key(
        "`kubernetes`: callers of `metrics` show a token, and the API server says whether its user may `get` `/metrics`; "
        "`none`: every caller is answered",
        "kubernetes",
    )
    certificate_file: Place | None = key(
        "certificate of `metrics` in PEM, with those that signed it; read again when it changes. Default: one that "
        "flowsched signs itself"
    )
    key_file: Place | None = key("private key of that certificate")

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Files of certificate and key."""
        if self.certificate_file is None or self.key_file is None:
            return None
        return self.certificate_file, self.key_file


def certificate_conflicts(document: Document, place: KeyPath, server: ProtectedServer) -> Iterator[Problem]:
    """One of the two files without the other."""
    files = {"certificateFile": server.certificate_file, "keyFile": server.key_file}
    if sum(file is None for file in files.values()) == 1:
        lacks, has = sorted(files, key=lambda name: files[name] is not None)
        yield document.problem((*place, lacks), f"is missing, and {has} is given", "name both, or neither")
