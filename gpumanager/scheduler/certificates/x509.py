"""Issues and reads X.509 certificates with P-256 keys.

Certificates are valid from an hour ago, because clocks differ.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpumanager.scheduler.certificates.values import CertificateTrouble, KeyPair

BACKDATED: Final = timedelta(hours=1)
LONGEST_NAME: Final = 64
_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _common_name(f"gpu-manager {serial:x}")
    builder = (
        _builder(name, name, key.public_key(), now, now + life)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
    )
    return _sign(builder, key, key)


def issue(authority: KeyPair, names: Sequence[str], now: datetime, life: timedelta) -> KeyPair:
    """Issue a certificate for a server of these DNS names; it expires no later than the CA."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise CertificateTrouble("the CA's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + life, issuer.not_valid_after_utc)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(_common_name(names[0]), issuer.subject, key.public_key(), now, end)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_dns_names(names), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _sign(builder, key, issuer_key)


def make_request(names: Sequence[str]) -> KeyPair:
    """Make a key and a certificate signing request, which stands in `KeyPair.certificate`."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(names[0]))
    request = builder.add_extension(_dns_names(names), critical=False).sign(key, hashes.SHA256())
    return KeyPair(request.public_bytes(serialization.Encoding.PEM), _key_pem(key))


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
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .not_valid_before((now - BACKDATED).astimezone(UTC))
        .not_valid_after(end.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _sign(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:LONGEST_NAME])])


def _dns_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(name) for name in names])


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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
