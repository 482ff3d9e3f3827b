"""Certificates of the public listener: one made here and renewed, or the person's own files.

Our own is signed by itself: nobody vouches for it, so a person compares its fingerprint, or hands the file to the
programs that shall trust it. Its key stays when it is made anew. Names that it once had it keeps, so that a laptop
that comes back to a network shows the same certificate.
"""

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runtime.atomic_files import write_atomically
from runtime.errors import WorldFault
from runtime.host.access import own_addresses
from runtime.messages.api import Certificate

VALID_DAYS = 397
"""Browsers and macOS accept no longer ones (CA/Browser Forum, ballot SC-31)."""
RENEW_DAYS = 30
"""Made anew so long before it expires."""
MAX_NAMES = 64
_MAX_FILE_BYTES = 1024 * 1024
_BACKDATED = datetime.timedelta(hours=1)
"""Clocks of other machines may be behind."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a certificate, with those that signed it, and of its key."""

    certificate_path: Path
    key_path: Path

    def stamp(self) -> tuple[float, ...]:
        """Changes when a file does; zeros for what is not there."""
        return tuple(map(_modified_at, (self.certificate_path, self.key_path)))


def own_files(folder: Path) -> TlsFiles:
    """Where our own certificate is kept."""
    return TlsFiles(folder / "certificate.pem", folder / "key.pem")


def ensure_own(files: TlsFiles, now: datetime.datetime) -> bool:
    """Make our own certificate where there is none that will do; true if one was made. Blocks.

    Raises:
        WorldFault: it cannot be written.
    """
    wanted = own_certificate_names()
    known: tuple[str, ...] = ()
    try:
        found = _certificates(files)[0]
        key = _key(files)
        known = names_of(found)
        is_good = (
            found.not_valid_before_utc <= now < found.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
            and set(wanted) <= set(known)
            and _belongs(found, key)
            and isinstance(key, ec.EllipticCurvePrivateKey)
        )
    except WorldFault:
        is_good, key = False, None
    if is_good:
        return False
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(key, (*wanted, *(name for name in known if name not in wanted))[:MAX_NAMES], now)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        if os.name != "nt":
            files.key_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(files.key_path, key_pem, private=True)
        write_atomically(files.certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise WorldFault(
            f"The certificate cannot be saved: {error.strerror or error}.",
            hint="Check the free space and the permissions of the data folder.",
        ) from error
    return True


def open_files(files: TlsFiles, now: datetime.datetime, *, is_own: bool) -> tuple[ssl.SSLContext, Certificate]:
    """A context for a server with these files, and what a person may know of the certificate. Blocks.

    Raises:
        WorldFault: a file is missing or is no such file, they do not belong together, or it has expired.
    """
    certificates = _certificates(files)
    first = certificates[0]
    key = _key(files)
    if not _belongs(first, key):
        raise WorldFault(
            f"{files.key_path.name} is not the key of {files.certificate_path.name}.",
            hint="Choose the key that was made with the certificate.",
        )
    if now >= first.not_valid_after_utc:
        raise WorldFault(
            f"The certificate in {files.certificate_path.name} expired on {first.not_valid_after_utc:%Y-%m-%d}.",
            hint="Renew it, or use the one that Deskside makes.",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate_path, files.key_path, password=_no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise WorldFault(
            f"The certificate in {files.certificate_path.name} cannot be used: {error}.",
            hint="Choose PEM files of a certificate and its key.",
        ) from error
    fingerprint = first.fingerprint(hashes.SHA256()).hex(":").upper()
    return context, Certificate(
        fingerprint=fingerprint,
        expires_s=first.not_valid_after_utc.timestamp(),
        names=names_of(first)[:MAX_NAMES],
        file=str(files.certificate_path),
        is_own=is_own,
    )


def own_certificate_names() -> tuple[str, ...]:
    """Names and addresses by which other machines and this one may call."""
    host = socket.gethostname().lower()
    names = ["localhost", "127.0.0.1", "::1", *own_addresses()]
    names += [name for name in (host, f"{host}.local") if _is_dns_name(name)]
    return tuple(dict.fromkeys(names))[:MAX_NAMES]


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Host names and addresses that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = tuple(map(str, found.get_values_for_type(x509.IPAddress)))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _sign(key: ec.EllipticCurvePrivateKey, names: Iterable[str], now: datetime.datetime) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Deskside on this machine")])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([*map(_general_name, names)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _is_dns_name(name: str) -> bool:
    return bool(name) and name.isascii() and all(part and len(part) < 64 for part in name.split("."))  # noqa: PLR2004


def _certificates(files: TlsFiles) -> list[x509.Certificate]:
    raw = _read(files.certificate_path, "certificate")
    try:
        return x509.load_pem_x509_certificates(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise WorldFault(
            f"{files.certificate_path.name} holds no certificate.",
            hint="Choose a PEM file that begins -----BEGIN CERTIFICATE-----.",
        ) from None


def _key(files: TlsFiles) -> PrivateKeyTypes:
    raw = _read(files.key_path, "private key")
    try:
        return serialization.load_pem_private_key(raw, None)
    except TypeError:
        raise WorldFault(
            f"The key in {files.key_path.name} has a passphrase.", hint="Save a copy of it without one."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise WorldFault(
            f"{files.key_path.name} holds no private key.",
            hint="Choose a PEM file that begins -----BEGIN PRIVATE KEY-----.",
        ) from None


def _belongs(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Whether it is the key of this certificate; not where the certificate's own cannot be read."""
    try:
        return certificate.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


def _read(path: Path, what: str) -> bytes:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise WorldFault(f"{path} is no file.", hint="Choose the PEM file.")
        if path.exists() and path.stat().st_size > _MAX_FILE_BYTES:
            raise WorldFault(f"{path.name} is far too large for a {what}.", hint="Choose the PEM file.")
        return path.read_bytes()
    except FileNotFoundError:
        raise WorldFault(f"There is no {what} at {path}.", hint="Choose the file again.") from None
    except OSError as error:
        raise WorldFault(
            f"The {what} {path} cannot be read: {error.strerror or error}.", hint="Check its permissions."
        ) from None


def _modified_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _no_passphrase() -> str:
    """Without this, OpenSSL would ask on the terminal."""
    return ""
