"""Certificates for tests: an authority of a folder, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Its certificate is in ``file``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.file = folder / "authority.crt"
        ends = x509.BasicConstraints(ca=True, path_length=None)
        made = _begun(self._name, self._name, self._key).add_extension(ends, critical=True)
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files of a certificate for a name or an address, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            host: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            host = x509.DNSName(name)
        made = _begun(_name(name), self._name, key).add_extension(x509.SubjectAlternativeName([host]), critical=False)
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    begins = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=2))
    )
