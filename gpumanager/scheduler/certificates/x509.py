"""Issues and reads X.509 certificates with P-256 keys: PEM texts, and what is made of them.

Certificates are valid from an hour ago, because clocks differ.
"""

import re
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpumanager.errors import GpuManagerError

BACKDATED: Final = timedelta(hours=1)
LONGEST_NAME: Final = 64
_HASH: Final = hashes.SHA256()
_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    builder = _builder(f"gpu-manager {serial:x}", key, now, now + life, ca=True)
    builder = builder.serial_number(serial)
    return _pair(builder.issuer_name(_name(f"gpu-manager {serial:x}")).sign(key, _HASH), key)


def issue(authority: KeyPair, names: Sequence[str], now: datetime, life: timedelta) -> KeyPair:
    """Issue a certificate for a server of these DNS names; it expires no later than the CA."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise CertificateTrouble("the CA's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(names[0], key, now, min(now + life, issuer.not_valid_after_utc), ca=False)
        .issuer_name(issuer.subject)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_dns_names(names), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _pair(builder.sign(issuer_key, _HASH), key)


def make_request(names: Sequence[str]) -> KeyPair:
    """Make a key and a certificate signing request, which stands in `KeyPair.certificate`."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(names[0]))
    return _pair(builder.add_extension(_dns_names(names), critical=False).sign(key, _HASH), key)


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


def split_bundle(bundle: bytes) -> tuple[bytes, ...]:
    """Return each certificate of a PEM text as a PEM text."""
    return tuple(block + b"\n" for block in _BLOCK.findall(bundle))


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime, *, ca: bool
) -> x509.CertificateBuilder:
    """Return what all certificates have; the issuer and the serial number are missing."""
    usage = x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    public = key.public_key()
    length = 0 if ca else None
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(public)
        .not_valid_before((now - BACKDATED).astimezone(UTC))
        .not_valid_after(end.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=length), critical=True)
        .add_extension(usage, critical=True)
    )


def _pair(
    made: x509.Certificate | x509.CertificateSigningRequest, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyPair(made.public_bytes(serialization.Encoding.PEM), text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:LONGEST_NAME])])


def _dns_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
