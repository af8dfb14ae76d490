"""The certificate of a server: files that are read again when they change, or one that the process signs itself."""

from __future__ import annotations

import hashlib
import logging
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flowsched_models.document import InputError

LOG = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
VALID = timedelta(days=365)
"""How long a certificate holds that the process signed; after half of that it is replaced."""


class ServedCertificate:
    """Gives what new connections are served with. A mount changes by turning a link, so contents are compared, not times."""

    def __init__(self, files: tuple[Path, Path] | None, clock: Callable[[], float]) -> None:
        """``files``: certificate and key in PEM; None for one of its own. ``clock``: seconds since 1970.

        Raises :class:`InputError` for files that cannot be used.
        """
        self._files = files
        self._clock = clock
        self._looked_at = clock()
        if files is None:
            self._context = _self_signed(self._looked_at)
            return
        self._seen = _digest(files)
        try:
            self._context = _loaded(files)
        except OSError as error:
            raise InputError.one(files[0], _told(error), "server.certificateFile and keyFile name it") from None

    def context(self) -> ssl.SSLContext:
        """As it is now; while the files cannot be used, as it was before."""
        now = self._clock()
        if self._files is None:
            if abs(now - self._looked_at) > VALID.total_seconds() / 2:
                self._context, self._looked_at = _self_signed(now), now
        elif abs(now - self._looked_at) >= LOOK_EVERY_S:
            self._looked_at = now
            self._look(self._files)
        return self._context

    def _look(self, files: tuple[Path, Path]) -> None:
        found = _digest(files)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._context = _loaded(files)
        except OSError as error:
            why = {"file": str(files[0]), "error": _told(error)}
            LOG.warning("the new certificate cannot be used; the old one stays", extra=why)
        else:
            LOG.info("another certificate", extra={"file": str(files[0])})


def _digest(files: tuple[Path, Path]) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            content = str(error).encode()
        digest.update(hashlib.sha256(content).digest())
    return digest.digest()


def _loaded(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # Without the password that it would otherwise ask for on a terminal.
    context.load_cert_chain(*files, password="")
    return context


def _told(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"is not a certificate with the key beside it: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return f"cannot be read: {error.strerror or error}"


def _self_signed(now: float) -> ssl.SSLContext:
    """Signed by itself, so that a client can only pass over who it is: what is sent is encrypted all the same."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flowsched")])
    begins = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("flowsched")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    # Python reads them from files only. The folder is this user's alone.
    with tempfile.TemporaryDirectory() as folder:
        certificate, private = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        certificate.write_bytes(made.public_bytes(pem))
        private.write_bytes(key.private_bytes(pem, *plain))
        return _loaded((certificate, private))
