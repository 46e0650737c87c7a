"""TLS contexts from files."""

import shutil
import ssl
import subprocess

import pytest

from nsqclient.errors import TLSError
from nsqclient.runtime.tls import client_context, server_context
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_a_client_verifies_by_default(certificates):
    """Without options: the system's authorities, the name checked, nothing below TLS 1.2."""
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert [ca["subject"] for ca in context.get_ca_certs()] == [
        ca["subject"] for ca in ssl.create_default_context().get_ca_certs()
    ]
    ours, = client_context(ca_file=certificates.ca).get_ca_certs()
    assert ours["subject"] != ()


@pytest.mark.parametrize("name, version", [
    ("tls1.2", ssl.TLSVersion.TLSv1_2), ("tls1.3", ssl.TLSVersion.TLSv1_3),
])
def test_the_lowest_tls_version_is_the_configured_one(certificates, name, version):
    keys = {"cert": certificates.server, "key": certificates.server_key}
    assert client_context(min_version=name).minimum_version is version
    assert server_context(min_version=name, **keys).minimum_version is version


def test_a_server_asks_for_certificates_only_when_configured(certificates):
    keys = {"cert": certificates.server, "key": certificates.server_key}
    assert server_context(**keys).verify_mode is ssl.CERT_NONE
    strict = server_context(ca_file=certificates.ca, verify_clients=True, **keys)
    assert strict.verify_mode is ssl.CERT_REQUIRED and len(strict.get_ca_certs()) == 1
    assert server_context(verify_clients=True, **keys).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("options, what", [
    ({"ca_file": "{missing}"}, "cannot use the authorities in '{missing}': No such file"),
    ({"ca_file": "{text}"}, "cannot use the authorities in '{text}': no certificate"),
    ({"cert": "{missing}", "key": "{key}"}, "cannot read '{missing}': No such file"),
    ({"cert": "{cert}", "key": "{missing}"}, "cannot read '{missing}': No such file"),
    ({"cert": "{text}", "key": "{key}"}, "cannot use certificate '{text}' with key '{key}': "),
    ({"cert": "{cert}", "key": "{other}"}, "cannot use certificate '{cert}' with key '{other}': "
     "key values mismatch"),
    ({"ca_file": "a\0b"}, "cannot use the authorities in 'a\\x00b': "),
    ({"cert": "a\0b", "key": "{key}"}, "cannot read 'a\\x00b': "),
])
def test_a_file_that_cannot_be_used(certificates, tmp_path, options, what):
    text = tmp_path / "text.pem"
    text.write_text("no certificate\n")
    names = {
        "missing": str(tmp_path / "missing.pem"), "text": str(text), "cert": certificates.client,
        "key": certificates.client_key, "other": certificates.server_key,
    }
    given = {name: value.format(**names) for name, value in options.items()}
    with pytest.raises(TLSError) as caught:
        client_context(**given)
    assert caught.value.reason.startswith(what.format(**names))


@pytest.fixture
def locked(certificates, tmp_path):
    """A client key that is encrypted with "pass word"."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl program")
    path = str(tmp_path / "locked.pem")
    subprocess.run(
        ["openssl", "pkey", "-in", certificates.client_key, "-aes256",
         "-passout", "pass:pass word", "-out", path], check=True, capture_output=True)
    return path


def test_an_encrypted_key_is_refused(certificates, locked):
    """OpenSSL would ask for the password at the terminal; the error says what to do instead."""
    with pytest.raises(TLSError, match="the key is encrypted: set tls_key_password_file"):
        client_context(cert=certificates.client, key=locked)


def test_an_encrypted_key_with_its_password(certificates, locked):
    for key in (locked, certificates.client_key):
        client_context(cert=certificates.client, key=key, key_password="pass word")
        server_context(cert=certificates.client, key=key, key_password="pass word")


def test_a_wrong_password_is_said_and_not_shown(certificates, locked):
    with pytest.raises(TLSError, match="locked.pem.*wrong password") as caught:
        client_context(cert=certificates.client, key=locked, key_password="s3cret")
    assert "s3cret" not in str(caught.value)
