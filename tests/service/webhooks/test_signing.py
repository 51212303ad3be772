"""Signatures are those of the Standard Webhooks specification."""

import pytest

from penstock.core.errors import OptionError
from penstock.service.webhooks.errors import SignatureError
from penstock.service.webhooks.signing import check_secret, new_secret, signed, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1_614_265_330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": MESSAGE, "webhook-timestamp": str(AT), "webhook-signature": SIGNATURE}


def test_the_vector_of_the_specification_is_met() -> None:
    assert signed([SECRET], MESSAGE, AT, BODY) == HEADERS


def test_a_signed_message_is_verified() -> None:
    assert verify(SECRET, HEADERS, BODY, now=AT) == MESSAGE
    assert verify(SECRET, {name.title(): value for name, value in HEADERS.items()}, BODY, now=AT) == MESSAGE
    assert verify(SECRET.removeprefix("whsec_"), HEADERS, BODY, now=AT) == MESSAGE


def test_one_good_signature_among_others_is_enough() -> None:
    others = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,x v1a,y"

    told = verify(SECRET, HEADERS | {"webhook-signature": f"{others} {SIGNATURE}"}, BODY, now=AT)

    assert told == MESSAGE


def test_while_a_secret_is_replaced_either_one_verifies() -> None:
    new = new_secret()
    headers = signed([new, SECRET], MESSAGE, AT, BODY)

    assert verify(new, headers, BODY, now=AT) == verify(SECRET, headers, BODY, now=AT) == MESSAGE
    with pytest.raises(SignatureError):
        verify(new_secret(), headers, BODY, now=AT)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"webhook-id": "msg_other"},
        {"webhook-id": ""},
        {"webhook-timestamp": str(AT + 1)},
        {"webhook-timestamp": f"0{AT}"},
        {"webhook-timestamp": f"{AT}.0"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "now"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": SIGNATURE.removeprefix("v1,")},
        {"webhook-signature": SIGNATURE.replace("v1", "v2")},
        {"webhook-signature": SIGNATURE.lower()},
        {"webhook-signature": "v1,é"},
    ],
)
def test_headers_that_were_changed_are_refused(spoiled: dict[str, str]) -> None:
    with pytest.raises(SignatureError):
        verify(SECRET, HEADERS | spoiled, BODY, now=AT)


@pytest.mark.parametrize("name", HEADERS)
def test_a_message_without_one_of_its_headers_is_refused(name: str) -> None:
    with pytest.raises(SignatureError):
        verify(SECRET, {each: value for each, value in HEADERS.items() if each != name}, BODY, now=AT)


def test_a_body_that_was_changed_is_refused() -> None:
    with pytest.raises(SignatureError):
        verify(SECRET, HEADERS, BODY.replace(b" ", b""), now=AT)


@pytest.mark.parametrize("seconds", [-301, 301])
def test_a_message_from_another_time_is_refused(seconds: int) -> None:
    with pytest.raises(SignatureError, match="away from now"):
        verify(SECRET, HEADERS, BODY, now=AT + seconds)


@pytest.mark.parametrize(
    "secret", [None, "", "whsec_", "whsec_c2hvcnQ=", "whsec_!!", "plain", "whsec_" + "A" * 200]
)
def test_what_cannot_be_a_secret_is_refused(secret: object) -> None:
    with pytest.raises(OptionError):
        check_secret("secret", secret)


def test_a_secret_that_is_refused_is_not_repeated() -> None:
    with pytest.raises(OptionError) as refused:
        check_secret("secret", "whsec_c2hvcnQ=")

    assert "c2hvcnQ" not in str(refused.value)


def test_new_secrets_can_be_used_and_differ() -> None:
    made = {check_secret("secret", new_secret()) for _ in range(10)}

    assert len(made) == 10
