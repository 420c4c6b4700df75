"""A whole cell on TLS with an authority of its own: master, borglet and borgctl, as on hosts of their own."""

import ipaddress
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from borgish.cli.borgctl import run
from borgish.clock import SystemClock
from tests.forked import Forked
from tests.invited import invite
from tests.ports import free_port

# What an authority's key is for: Python 3.13 trusts none that does not say it.
SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
ROOT = Path(__file__).parents[3]
SECONDS_MAX = 60.0
TLS = '[tls]\ncertificate = "{0}.pem"\nkey = "{0}.key"\nca = "ca.pem"\n'
JOB = 'name: hello\nrun: [sleep, "600"]\nresources: {cpu: 10m, ram: 16MiB, disk: 1MiB}\nallow_exec: true\n'


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.begins = datetime.fromtimestamp(SystemClock().now().wall - 3600, UTC)
        itself = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder("authority", self.key.public_key()).add_extension(basic, critical=True)
        builder = builder.add_extension(SIGNS, critical=True)
        certificate = builder.add_extension(itself, critical=False).sign(self.key, hashes.SHA256())
        (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(self, name: str) -> None:
        """Write ``name.pem`` and ``name.key``."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = self._builder(name, key.public_key()).add_extension(address, critical=False)
        certificate = builder.add_extension(signer, critical=False).sign(self.key, hashes.SHA256())
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / f"{name}.key").write_bytes(pem)

    def _builder(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        ends, serial = self.begins + timedelta(days=1), x509.random_serial_number()
        return x509.CertificateBuilder(issuer, subject, key, serial, self.begins, ends)


def daemon(module: str, config: Path, *options: str) -> Forked:
    with (config.with_suffix(".log")).open("ab") as log, open(os.devnull, "rb") as nothing:
        return Forked(module, ["--config", config, *options], (nothing, log, log))


@contextmanager
def cell(folder: Path) -> Iterator[str]:
    """Run a master and a borglet in a folder with certificates; gives the master's address."""
    port = free_port()
    url, tls = f"https://127.0.0.1:{port}", TLS.format("cell")
    (folder / "cell.toml").write_text(f'name = "tls"\nlisten = "127.0.0.1:{port}"\n{tls}')
    about = f'machine = "m1"\nmaster = "{url}"\njoin_token_file = "tokens/join.token"\nstate = "m1"\n'
    (folder / "borglet.toml").write_text(
        f'{about}ports = "29000-29010"\nruntimes = ["process"]\n{TLS.format("m1")}'
    )
    invite(folder, "m1", folder / "tokens" / "join.token")
    daemons = [daemon("borgish.master.main", folder / "cell.toml")]
    daemons.append(daemon("borgish.borglet.main", folder / "borglet.toml"))
    try:
        yield url
    finally:
        for process in reversed(daemons):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(SECONDS_MAX) for process in daemons]
        daemon("borgish.borglet.main", folder / "borglet.toml", "--stop-all").wait(SECONDS_MAX)
    assert codes == [0, 0]


def until_up(folder: Path) -> None:
    deadline = SystemClock().now().mono + SECONDS_MAX
    while run(["--dir", str(folder), "machine", "show", "m1"]) != 0:
        assert SystemClock().now().mono < deadline, (folder / "cell.log").read_text()
        time.sleep(0.05)


def test_a_cell_on_tls(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    authority.sign("cell")
    authority.sign("m1")
    (tmp_path / "job.yaml").write_text(JOB)
    here, token = ["--dir", str(tmp_path)], str(tmp_path / "tokens" / "admin.token")
    with cell(tmp_path) as url:
        until_up(tmp_path)
        assert run([*here, "job", "submit", "--settle", "0", str(tmp_path / "job.yaml")]) == 0
        assert run([*here, "task", "exec", "hello/0", "--", "echo", "over tls"]) == 0
        assert "over tls" in capfd.readouterr().out
        assert run([*here, "--token-file", token, "status"]) == 0
        elsewhere = ["--url", url, "--token-file", token, "status"]
        assert run(elsewhere) == 4
        assert "certificate verify failed" in capfd.readouterr().err
        monkeypatch.setenv("BORGISH_CA", str(tmp_path / "ca.pem"))
        assert run(elsewhere) == 0
        monkeypatch.setenv("BORGISH_CA", str(tmp_path / "none.pem"))
        assert run(elsewhere) == 4
        assert "none.pem cannot be used" in capfd.readouterr().err


def until(holds: Callable[[], bool], log: Path) -> None:
    deadline = SystemClock().now().mono + SECONDS_MAX
    while not holds():
        assert SystemClock().now().mono < deadline, log.read_text()
        time.sleep(0.05)


def ended(process: Forked) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(SECONDS_MAX)


def test_a_cell_with_files_of_an_operator_is_carried_over_and_no_task_is_touched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def borgctl(*arguments: str) -> int:
        return run(["--dir", str(tmp_path), *arguments])

    def adopt(*options: str) -> int:
        capfd.readouterr()
        return run(["cell", "adopt", "--config", str(tmp_path / "cell.toml"), *options])

    def pid() -> str:
        capfd.readouterr()
        assert borgctl("task", "exec", "hello/0", "--", "cat", "pid") == 0
        return capfd.readouterr().out

    authority = Authority(tmp_path)
    authority.sign("cell")
    authority.sign("m1")
    told = JOB.replace('[sleep, "600"]', '[sh, -c, "echo $$ > pid; exec sleep 600"]')
    (tmp_path / "job.yaml").write_text(told)
    files = Files(tmp_path)
    master, borglet = files.master(), files.borglet()
    try:
        until_up(tmp_path)
        assert borgctl("job", "submit", "--settle", "0", str(tmp_path / "job.yaml")) == 0
        before = pid()
        assert adopt("--finish") == 1
        assert adopt() == 0
        assert "restart the borgmaster" in capfd.readouterr().err
        assert ended(master) == 0
        master = files.master()
        until(lambda: adopt() == 0 and "to be carried over: m1" in capfd.readouterr().out, files.log)
        assert pid() == before, "a machine is known as before"
        assert adopt("--finish") == 1
        assert "not carried over yet: m1" in capfd.readouterr().err

        assert borgctl("machine", "invite", "m1") == 0
        line = capfd.readouterr().out.split()
        assert ended(borglet) == 0
        joining = ["join", *line[2:], "--dir", str(tmp_path), "--no-start"]
        assert files.daemon("borgish.borglet.main", *joining).wait(SECONDS_MAX) == 0, files.log.read_text()
        assert "[tls]" not in (tmp_path / "borglet.toml").read_text()
        assert "[tls]" in (tmp_path / "borglet.toml.before").read_text()
        borglet = files.borglet()
        until(lambda: adopt() == 0 and "every machine is carried over" in capfd.readouterr().err, files.log)
        assert pid() == before
        assert adopt("--finish") == 0
        assert "[tls]" not in (tmp_path / "cell.toml").read_text()
        assert ended(master) == 0
        for file in ("ca.pem", "cell.pem", "cell.key", "m1.pem", "m1.key"):
            (tmp_path / file).unlink()
        master = files.master()
        until(lambda: borgctl("task", "exec", "hello/0", "--", "true") == 0, files.log)
        assert pid() == before
        assert borgctl("status") == 0
        assert "1 machine, of which m1 for 29d" in capfd.readouterr().out
    finally:
        codes = [ended(borglet), ended(master)]
        files.daemon("borgish.borglet.main", "--config", files.machine, "--stop-all").wait(SECONDS_MAX)
    assert codes == [0, 0]


class Files:
    """A master's file and a machine's with certificates of an operator, and the daemons that go by them."""

    def __init__(self, folder: Path) -> None:
        self.cell, self.machine, self.log = folder / "cell.toml", folder / "borglet.toml", folder / "log"
        port, machine_port = free_port(), free_port()
        listen = f'name = "c1"\nlisten = "127.0.0.1:{port}"\n'
        self.cell.write_text(listen + TLS.format("cell") + "\n[keep]\naudit_days = 30\n")
        about = f'machine = "m1"\nmaster = "https://127.0.0.1:{port}"\nlisten = "127.0.0.1:{machine_port}"\n'
        rest = 'join_token_file = "tokens/join.token"\nstate = "m1"\nports = "29100-29110"\n'
        self.machine.write_text(f'{about}{rest}runtimes = ["process"]\n{TLS.format("m1")}')
        invite(folder, "m1", folder / "tokens" / "join.token")

    def master(self) -> Forked:
        return self.daemon("borgish.master.main", "--config", self.cell)

    def borglet(self) -> Forked:
        return self.daemon("borgish.borglet.main", "--config", self.machine)

    def daemon(self, module: str, *arguments: object) -> Forked:
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            return Forked(module, [str(argument) for argument in arguments], (nothing, log, log))
