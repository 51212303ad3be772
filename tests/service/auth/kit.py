"""An issuer for tests: real keys, tokens of any shape, and a server that publishes the keys."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from penstock.service.auth.issuers import AUDIENCE, Family, Issuer

NOW: Final = 1_800_000_000
ISSUER: Final = "https://id.example.org/"


class Signer:
    """A key with a name, as an issuer has it."""

    def __init__(self, kid: str = "k1", alg: str = "ES256") -> None:
        self.kid = kid
        self.alg = alg
        self.private: Any
        if alg.startswith(("RS", "PS")):
            self.private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        elif alg == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = ec.generate_private_key(ec.SECP256R1() if alg == "ES256" else ec.SECP384R1())

    @property
    def public(self) -> dict[str, Any]:
        """The key as it is published."""
        key = self.private.public_key()
        if self.alg.startswith(("RS", "PS")):
            found = RSAAlgorithm.to_jwk(key, as_dict=True)
        elif self.alg == "EdDSA":
            found = OKPAlgorithm.to_jwk(key, as_dict=True)
        else:
            found = ECAlgorithm.to_jwk(key, as_dict=True)
        return {**found, "kid": self.kid, "use": "sig", "alg": self.alg}

    def sign(self, header: str | bytes, claims: str | bytes) -> str:
        """A token of exactly these bytes."""
        start = f"{encoded(header)}.{encoded(claims)}"
        return f"{start}.{encoded(self.signature(start.encode()))}"

    def signature(self, text: bytes) -> bytes:
        """The signature of a text."""
        algorithm = jwt.get_algorithm_by_name(self.alg)
        return algorithm.sign(text, self.private)

    def token(self, claims: dict[str, Any] | None = None, **header: Any) -> str:
        """A good token, but for what is given; a header of None is left out."""
        head = {"alg": self.alg, "typ": "JWT", "kid": self.kid} | header
        kept = {name: value for name, value in head.items() if value is not None}
        return self.sign(json.dumps(kept), json.dumps(good() if claims is None else claims))


def good(**claims: Any) -> dict[str, Any]:
    """Claims of a good token, but for what is given; a claim of None is left out."""
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "iat": NOW - 10,
        "exp": NOW + 300,
        "tid": "acme",
        "scope": "read enqueue:mail.*",
    } | claims
    return {name: value for name, value in found.items() if value is not None}


def encoded(text: str | bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).rstrip(b"=").decode()


def issuer(jwks: str = "keys.json", family: Family = Family.ES, **more: Any) -> Issuer:
    """The issuer of the tests."""
    return Issuer(issuer=ISSUER, family=family, jwks=jwks, **more)


def key_set(*signers: Signer | dict[str, Any]) -> bytes:
    """Keys as they are published."""
    keys = [each.public if isinstance(each, Signer) else each for each in signers]
    return json.dumps({"keys": keys}).encode()


class Publisher:
    """A server of an issuer. `answer` is what it says, `status` how; `asked` counts the questions."""

    def __init__(self) -> None:
        self.answer = b"{}"
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.url = ""


@contextmanager
def publishing() -> Iterator[Publisher]:
    """A publisher on this machine, for the time of the block."""
    publisher = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            publisher.asked += 1
            self.send_response(publisher.status)
            for name, value in publisher.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(publisher.answer)))
            self.end_headers()
            self.wfile.write(publisher.answer)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    publisher.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
