"""Mistakes of people who come from other job queues, and what they are told."""

from datetime import UTC, datetime

import pytest

from penstock import ConfigError, OptionError, Penstock


@pytest.fixture
def app() -> Penstock:
    return Penstock("memory://")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("delay", r"await send\.enqueue\(…\), or with app\.blocking as queue: queue\.enqueue\(send, …\)"),
        ("apply_async", r"send\.options\(delay=60\)\.enqueue"),
        ("s", r"send\.call\(…\)"),
        ("anything", "a task has no 'anything'"),
    ],
)
def test_what_other_queues_call_it_is_told_as_what_it_is_here(app: Penstock, name: str, told: str) -> None:
    @app.task
    def send() -> None: ...

    assert not hasattr(send, name)
    with pytest.raises(AttributeError, match=told):
        getattr(send, name)


def test_the_blocking_face_has_to_be_entered(app: Penstock) -> None:
    with pytest.raises(AttributeError, match=r"with app\.blocking as queue: queue\.enqueue\(…\)"):
        app.blocking.enqueue  # type: ignore[attr-defined]  # noqa: B018


def test_a_handler_that_takes_self_is_told_of_its_context(app: Penstock) -> None:
    with pytest.raises(ConfigError, match=r"send\(self, …\) cannot be a task: .* ctx: JobContext"):

        @app.task
        def send(self, to: str) -> None: ...  # type: ignore[no-untyped-def]


def test_an_interval_that_is_a_number_is_told_what_it_lacks(app: Penstock) -> None:
    with pytest.raises(
        OptionError, match=r"interval: found 1, wanted a timedelta, or seconds=.*every\(seconds=30\)"
    ):
        app.every(1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"), [("id", "a"), ("idempotency_key", "k"), ("run_at", datetime(2030, 1, 1, tzinfo=UTC))]
)
def test_what_one_call_can_say_is_refused_of_all(app: Penstock, option: str, value: object) -> None:
    wanted = rf"{option}: found .*, wanted none here: it is of one call, as in task\.options\({option}=…\)"
    with pytest.raises(OptionError, match=wanted):
        app.queue("mail", **{option: value})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=wanted):
        app.task(**{option: value})  # type: ignore[call-overload]


def test_an_unknown_option_is_told_those_that_can_be_given_there(app: Penstock) -> None:
    with pytest.raises(OptionError, match=r"wanted one of .*mode.*max_active") as caught:
        app.queue("mail", rat=5)  # type: ignore[call-arg]
    assert "run_at" not in str(caught.value)
    with pytest.raises(OptionError, match=r"wanted one of .*executor.*permissions") as caught:
        app.task(rat=5)  # type: ignore[call-overload]
    assert "max_active" not in str(caught.value)


def test_an_app_without_a_store_obeys_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "memory://")
    assert Penstock().url == "memory://"
    assert Penstock("sqlite:///other.db").url == "sqlite:///other.db"
    monkeypatch.delenv("PENSTOCK_URL")
    assert Penstock().url == "sqlite:///penstock.db"
