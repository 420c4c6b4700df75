"""What the cell's authority signs, for whom and for how long."""

from datetime import UTC, datetime
from typing import TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from borgish.errors import Invalid, UnsafeConfiguration
from borgish.tls.authority import (
    Authority,
    describe,
    endorses,
    key_id,
    new_key,
    public_key_of,
    request_to_sign,
)
from borgish.tls.bundle import authorities_in, authority_hash, bundle_hash
from borgish.tls.validity import Validity

NOW = 1_800_000_000.0
DAY = 86400.0
Keys = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def made() -> Authority:
    return Authority.make("c1", new_key(), NOW)


T = TypeVar("T", bound=x509.ExtensionType)


def extension(certificate: x509.Certificate, kind: type[T]) -> T:
    return certificate.extensions.get_extension_for_class(kind).value


def names_in(certificate: x509.Certificate) -> set[str]:
    return {str(name.value) for name in extension(certificate, x509.SubjectAlternativeName)}


def signed_request(key: Keys) -> bytes:
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    wish = x509.SubjectAlternativeName([x509.DNSName("master.c1.borgish")])
    authority = x509.BasicConstraints(ca=True, path_length=None)
    builder = builder.add_extension(wish, critical=False).add_extension(authority, critical=True)
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM)


def test_the_authority_signs_leaves_for_ten_years_and_nothing_else() -> None:
    certificate = x509.load_pem_x509_certificate(made().pem)
    basic, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
    assert (basic.ca, basic.path_length) == (True, 0)
    assert usage.key_cert_sign
    assert (usage.digital_signature, usage.crl_sign, usage.key_agreement) == (False, False, False)
    assert certificate.not_valid_before_utc == datetime.fromtimestamp(NOW - 600, UTC)
    assert (certificate.not_valid_after_utc - datetime.fromtimestamp(NOW, UTC)).days == 3650
    assert certificate.serial_number.bit_length() > 100
    certificate.verify_directly_issued_by(certificate)


def test_a_machine_is_named_by_the_master_whatever_it_asked_for() -> None:
    authority, key = made(), ec.generate_private_key(ec.SECP256R1())
    certificate = x509.load_pem_x509_certificate(authority.sign_machine("c1", "m1", signed_request(key), NOW))
    assert names_in(certificate) == {"m1.borglet.c1.borgish"}
    assert certificate.public_key() == key.public_key()
    assert not extension(certificate, x509.BasicConstraints).ca
    assert set(extension(certificate, x509.ExtendedKeyUsage)) == {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pem))
    assert (certificate.not_valid_after_utc - datetime.fromtimestamp(NOW, UTC)).days == 30


def test_a_master_is_named_by_its_cell_and_by_what_it_is_reached_by() -> None:
    pem = made().sign_master("c1", new_key(), ["host-a", "192.0.2.1", "::1"], NOW)
    assert describe(pem).names == {"master.c1.borgish", "host-a", "192.0.2.1", "::1"}


def test_names_of_the_longest_cell_and_machine_fit() -> None:
    longest = "x" * 63
    authority = Authority.make(longest, new_key(), NOW)
    pem = authority.sign_machine(longest, longest, request_to_sign(new_key(), longest), NOW)
    assert describe(pem).names == {f"{longest}.borglet.{longest}.borgish"}


def test_two_authorities_of_a_cell_differ_by_name() -> None:
    one, other = (x509.load_pem_x509_certificate(made().pem).subject for _ in range(2))
    assert one != other


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["P-384", "RSA", "Ed25519"],
)
def test_keys_of_other_kinds_are_refused(key: Keys) -> None:
    with pytest.raises(Invalid, match="not on P-256"):
        public_key_of(signed_request(key))


def test_a_request_that_its_key_did_not_sign_is_refused() -> None:
    der = bytearray(x509.load_pem_x509_csr(request_to_sign(new_key(), "m1")).public_bytes(Encoding.DER))
    der[-1] ^= 1
    pem = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(Invalid, match="not signed with its own key"):
        public_key_of(pem)


@pytest.mark.parametrize("text", [b"", b"\xff", made().pem, b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n"])
def test_what_is_no_request_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        public_key_of(text)


def test_a_request_has_a_size() -> None:
    with pytest.raises(Invalid, match="4096 bytes"):
        public_key_of(request_to_sign(new_key(), "m1") + b"\n" * 4096)


def test_an_authority_is_read_back_with_its_own_key_only() -> None:
    key = new_key()
    authority = Authority.make("c1", key, NOW)
    assert Authority.read(authority.pem, key).sha256 == authority_hash(authority.pem) == authority.sha256
    assert authority.key_id == key_id(key)
    with pytest.raises(UnsafeConfiguration, match="another certificate"):
        Authority.read(authority.pem, new_key())
    with pytest.raises(UnsafeConfiguration, match="cannot be read"):
        Authority.read(authority.pem, b"nonsense")


def test_a_bundle_is_known_by_its_authorities_and_their_order() -> None:
    one, other = made().pem, made().pem
    assert authorities_in(b"# words\n" + one + b"\n" + other) == [one, other]
    assert len({bundle_hash(one), bundle_hash(one + other), bundle_hash(other + one)}) == 3
    for wrong in (b"", b"\xff", one * 5, b"x" * 20_000):
        with pytest.raises(Invalid):
            authorities_in(wrong)


def test_an_authority_says_which_one_follows_on_it() -> None:
    one, following, other = made(), made(), made()
    signature = one.endorse(following.pem)
    assert endorses(one.pem, following.pem, signature)
    for known, shown, signed in (
        (other.pem, following.pem, signature),
        (one.pem, other.pem, signature),
        (one.pem, following.pem, signature[:-1]),
        (one.pem, following.pem, b""),
        (b"nonsense", following.pem, signature),
        (one.pem, b"nonsense", signature),
    ):
        assert not endorses(known, shown, signed)


def test_when_a_leaf_is_renewed_and_when_its_end_is_an_alarm() -> None:
    leaf = Validity(0, 30 * DAY)
    assert leaf.renewal_at() == 20 * DAY
    assert leaf.renewal_at(spread=1.0) == pytest.approx(17 * DAY)
    days = {day: leaf.alarm(day * DAY) / DAY for day in (16.1, 20, 20.9, 21.1, 26.9, 27.1, 31)}
    assert days == {16.1: 0, 20: 0, 20.9: 0, 21.1: 14, 26.9: 14, 27.1: 3, 31: 3}
    kept = {day: leaf.alarm(day * DAY, renews=False) / DAY for day in (15.9, 16.1, 27.1)}
    assert kept == {15.9: 0, 16.1: 14, 27.1: 3}
