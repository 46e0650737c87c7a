"""Certificates for tests, made when they are needed: no key lies in the repository."""

import datetime
from pathlib import Path

import pytest

trustme = pytest.importorskip("trustme", reason="trustme has no wheel for this Python")


class Certificates:
    """PEM files in a folder: an authority, a server and a client (``worker-1``) of it, and
    strangers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours, others = trustme.CA(), trustme.CA()
        self.ca = self._authority("ca", ours)
        self.other_ca = self._authority("other-ca", others)
        names = ("127.0.0.1", "localhost")
        self.server, self.server_key = self._issue("server", ours, *names)
        self.misnamed, self.misnamed_key = self._issue("misnamed", ours, "nsqd.example")
        yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
        self.expired, self.expired_key = self._issue("expired", ours, *names, until=yesterday)
        self.client, self.client_key = self._issue(
            "client", ours, "worker-1", common_name="worker-1"
        )
        self.stranger, self.stranger_key = self._issue("stranger", others, "worker-1")

    def _authority(self, name: str, ca: trustme.CA) -> str:
        path = self._folder / f"{name}.pem"
        ca.cert_pem.write_to_path(path)
        return str(path)

    def _issue(
        self,
        name: str,
        ca: trustme.CA,
        *identities: str,
        common_name: str | None = None,
        until: datetime.datetime | None = None,
    ) -> tuple[str, str]:
        issued = ca.issue_cert(*identities, common_name=common_name, not_after=until)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        return str(certificate), str(key)
