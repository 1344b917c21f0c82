"""Issues and reads X.509 certificates with P-256 keys: PEM texts, and what is made of them.

Certificates are valid from an hour ago, because clocks differ.
"""

import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpumanager.errors import GpuManagerError

BACKDATED: Final = timedelta(hours=1)
LONGEST_NAME: Final = 64


class CertificateTrouble(GpuManagerError):
    """There is no certificate to serve with, or not the one wanted: why, and what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, or a chain that begins with it, and its key; both PEM.

    callers: the CAs of client certificates, PEM; None: clients have none. A certificate of another
    CA gets no connection; a client without any is up to the server.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    callers: bytes | None = None

    def context(self) -> ssl.SSLContext:
        """Return a server's context; raises CertificateTrouble. The ssl module takes files only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory(prefix="gm-") as folder:
            files = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for path, content in zip(files, (self.certificate, self.key), strict=True):
                path.touch(0o600)
                path.write_bytes(content)
            try:
                context.load_cert_chain(*files, password="")  # no terminal is asked for one
            except ssl.SSLError as error:
                cause = f"the certificate and its key do not go together: {error}"
                raise CertificateTrouble(cause) from error
        if self.callers is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cadata=self.callers.decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                cause = f"the client CA file holds no certificates: {error}"
                raise CertificateTrouble(cause) from error
        return context


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """From when until when a certificate is valid, and for which DNS names."""

    not_before: datetime
    not_after: datetime
    names: frozenset[str]

    def life_over(self, now: datetime) -> float:
        """Return the part of its life that is over: 0 to 1, and more than 1 when it has expired."""
        return (now - self.not_before) / (self.not_after - self.not_before)


def make_authority(now: datetime, life: timedelta) -> KeyPair:
    """Make a CA for certificates of servers, with a common name that no other CA has."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(f"gpu-manager {uuid4().hex}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    end = now + life
    return _sign(name, key, (name, key), (now, end), {constraints: True, usage: True})


def issue(authority: KeyPair, names: Sequence[str], now: datetime, life: timedelta) -> KeyPair:
    """Issue a certificate for a server of these DNS names; it expires no later than the CA."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise CertificateTrouble("the CA's key is not an elliptic curve key")
    extensions: dict[x509.ExtensionType, bool] = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]): False,
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()): False,
    }
    key, end = ec.generate_private_key(ec.SECP256R1()), min(now + life, issuer.not_valid_after_utc)
    return _sign(_name(names[0]), key, (issuer.subject, signer), (now, end), extensions)


def read_certificate(certificate: bytes) -> CertificateSummary:
    """Read the first certificate of a PEM text; raises CertificateTrouble."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        extensions = parsed.extensions
    except ValueError as error:
        raise CertificateTrouble(f"not a certificate: {error}") from error
    try:
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = alternatives.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    return CertificateSummary(
        parsed.not_valid_before_utc, parsed.not_valid_after_utc, frozenset(names)
    )


def unexpired(bundle: bytes, now: datetime) -> bytes:
    """Return those certificates of a PEM text that have not expired."""
    found = x509.load_pem_x509_certificates(bundle)
    texts = (
        one.public_bytes(serialization.Encoding.PEM)
        for one in found
        if one.not_valid_after_utc > now
    )
    return b"".join(texts)


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    life: tuple[datetime, datetime],
    extensions: Mapping[x509.ExtensionType, bool],
) -> KeyPair:
    """extensions: and whether they are critical."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0])
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before((life[0] - BACKDATED).astimezone(UTC))
        .not_valid_after(life[1].astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical=critical)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = builder.sign(issuer[1], hashes.SHA256())
    return KeyPair(made.public_bytes(serialization.Encoding.PEM), text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:LONGEST_NAME])])
