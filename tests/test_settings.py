"""Settings: where a value comes from, and what is said when it cannot be used."""

from pathlib import Path

import pytest

from penstock import settings
from penstock.core.errors import ConfigError, OptionError


def write(directory: Path, text: str, name: str = "penstock.toml") -> None:
    (directory / name).write_text(text)


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    def lease(flags: dict[str, object], environ: dict[str, str]) -> float | None:
        return settings.load(flags, environ=environ, directory=tmp_path).worker.lease

    environ = {"PENSTOCK_WORKER_LEASE": "2m"}
    assert lease({}, {}) is None
    write(tmp_path, "[worker]\nlease = 60")

    assert lease({}, {}) == 60
    assert lease({}, environ) == 120
    assert lease({"worker.lease": "3m"}, environ) == 180


def test_every_setting_can_be_set_by_flag_by_variable_and_by_file(tmp_path: Path) -> None:
    samples = {
        "worker.queues": "mail=2",
        "worker.log_level": "debug",
        "worker.executor": "process",
        "serve.log_level": "debug",
        "serve.json_values": "7",
        **{f"bloom.{each}_rate": "0.5" for each in ("idempotency", "ghost", "cleanup")},
    }
    times = {"lease", "shutdown_timeout", "no_handler_after", "stuck_after", "poll", "sweep"}
    times |= {"term_after", "kill_after", "target_wait"}
    numbers = times | {"limit", "concurrency", "jobs", "workers", "seed", "port", "health_port"}
    numbers |= {"claim_scan", "promote_limit", "recover_limit", "processes", "min_processes", "max_processes"}
    numbers |= {"backlog_per_slot", "max_jobs", "max_memory"}
    numbers |= {"connections", "connections_per_peer", "requests_per_tenant", "streams", "streams_per_tenant"}
    numbers |= {"connections_per_tenant"}
    numbers |= {
        f"{each}_{what}" for each in ("idempotency", "ghost", "cleanup") for what in ("capacity", "rotation")
    }
    texts = {"url", "tenant", "app", "dir", "token", "host", "auth_file", "key", "allow", "ports"}
    texts |= {"secret_key", "key_file", "app_version", "health_host"}
    for name in settings.names():
        last = name.rpartition(".")[2]
        text = samples.get(name, "7" if last in numbers else "true")
        in_file = text if text in ("7", "0.5", "true") and last not in texts else f'"{text}"'
        group, _, key = name.rpartition(".")
        write(tmp_path, f"[{group}]\n{key} = {in_file}" if group else f"{key} = {in_file}")

        by_file = settings.load(environ={}, directory=tmp_path)
        write(tmp_path, "")
        by_flag = settings.load({name: text}, environ={}, directory=tmp_path)
        by_variable = settings.load(environ={settings.variable_of(name): text}, directory=tmp_path)

        assert by_file == by_flag == by_variable != settings.Settings(), name


def test_pyproject_is_read_when_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    write(tmp_path, '[tool.penstock]\nurl = "sqlite:///a.db"\n[tool.other]\nx = 1', "pyproject.toml")

    assert settings.load(environ={}, directory=tmp_path).url == "sqlite:///a.db"
    write(tmp_path, 'url = "sqlite:///b.db"')
    assert settings.load(environ={}, directory=tmp_path).url == "sqlite:///b.db"


def test_the_file_can_be_named(tmp_path: Path) -> None:
    write(tmp_path, 'tenant = "acme"', "other.toml")
    environ = {"PENSTOCK_CONFIG": str(tmp_path / "other.toml")}

    assert settings.load(environ=environ, directory=Path("/")).tenant == "acme"
    assert settings.load(config=tmp_path / "other.toml", environ={}).tenant == "acme"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("urll = 'x'", "did you mean url?"),
        ("lease = 3", "did you mean worker.lease?"),
        ("[worker]\nconcurency = 3", "did you mean worker.concurrency?"),
        ("worker = 3", "wanted a table"),
        ("=", "cannot be read as TOML"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, text)

    with pytest.raises(ConfigError, match=r"penstock\.toml") as caught:
        settings.load(environ={}, directory=tmp_path)

    assert said in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        settings.load(config=tmp_path / "gone.toml", environ={})


def test_a_misspelt_variable_is_refused_and_a_strange_one_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean PENSTOCK_WORKER_LEASE"):
        settings.load(environ={"PENSTOCK_WROKER_LEASE": "1"}, directory=tmp_path)

    loaded = settings.load(environ={"PENSTOCK_SERVICE_HOST": "10.0.0.1"}, directory=tmp_path)
    assert loaded == settings.Settings()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("worker.lease", "soon", "a duration such as"),
        ("worker.lease", "-1", "a duration such as"),
        ("worker.lease", "99999999999999999999d", "a duration such as"),
        ("worker.lease", "1e300", "a duration such as"),
        ("worker.queues", "mail=many", "mail=50,reports=5"),
        ("worker.queues", ",", "mail=50,reports=5"),
        ("worker.queues", "mail=0", "one slot or more"),
        ("worker.queues", "mail=5,mail=6", "each queue once"),
        ("worker.queues", "mail,mail=6", "each queue once"),
        ("list.limit", "99999999999999999999", "a whole number from 1 to 1000000000"),
        ("worker.concurrency", "0", "a whole number from 1"),
        ("worker.claim_scan", "0", "a whole number from 1 to 10000"),
        ("worker.claim_scan", "10001", "a whole number from 1 to 10000"),
        ("worker.promote_limit", "0", "a whole number from 1 to 10000"),
        ("worker.promote_limit", "10001", "a whole number from 1 to 10000"),
        ("worker.recover_limit", "-1", "a whole number from 1 to 10000"),
        ("worker.recover_limit", "many", "a whole number from 1 to 10000"),
        ("worker.burst", "maybe", "true or false"),
        ("worker.log_level", "loud", "one of debug"),
    ],
)
def test_a_bad_value_names_the_setting_its_place_and_what_is_wanted(
    tmp_path: Path, name: str, text: str, wanted: str
) -> None:
    variable = settings.variable_of(name)

    with pytest.raises(OptionError) as by_variable:
        settings.load(environ={variable: text}, directory=tmp_path)
    with pytest.raises(OptionError) as by_flag:
        settings.load({name: text}, environ={}, directory=tmp_path)

    assert str(by_variable.value).startswith(f"{name} (from {variable}): found {text!r}, wanted")
    assert str(by_flag.value).startswith(f"{settings.flag_of(name)}: found {text!r}, wanted")
    assert wanted in str(by_flag.value)


@pytest.mark.parametrize("queues", ["{ mail = 0 }", '["mail", "mail"]', '"mail=0"', "{ mail = true }"])
def test_a_queue_without_slots_or_named_twice_is_refused_in_the_file_too(tmp_path: Path, queues: str) -> None:
    write(tmp_path, f"[worker]\nqueues = {queues}")

    with pytest.raises(OptionError, match="each queue once, with one slot or more"):
        settings.load(environ={}, directory=tmp_path)


def test_a_queue_without_a_number_has_the_general_one(tmp_path: Path) -> None:
    by_flag = settings.load({"worker.queues": "mail,web=5"}, environ={}, directory=tmp_path)

    assert by_flag.worker.queues == {"mail": 0, "web": 5}


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    write(tmp_path, 'url = "sqlite:///a.db"')
    environ = dict.fromkeys(["PENSTOCK_CONFIG", *map(settings.variable_of, settings.names())], "")

    assert settings.load(environ=environ, directory=tmp_path) == settings.Settings(url="sqlite:///a.db")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("10m", 600), ("1h30m", 5_400), ("7d", 604_800)],
)
def test_durations_are_numbers_of_seconds_or_have_units(text: str, seconds: float) -> None:
    assert settings.seconds("--delay", text) == seconds


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("worker.processes", "auto", 0),
        ("worker.processes", "4", 4),
        ("worker.max_memory", "512MiB", 512 * 2**20),
        ("worker.max_memory", "1.5 GiB", 3 * 2**29),
        ("worker.max_memory", "1000", 1000),
    ],
)
def test_processes_and_sizes_are_read_as_people_write_them(name: str, text: str, value: int) -> None:
    worker = settings.load({name: text}, environ={}, directory=Path("/")).worker

    assert getattr(worker, name.partition(".")[2]) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("worker.processes", "0"),
        ("worker.processes", "many"),
        ("worker.processes", "10001"),
        ("worker.max_memory", "much"),
        ("worker.max_memory", "0"),
        ("worker.max_memory", "5 MB"),
    ],
)
def test_processes_and_sizes_that_are_none_are_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=r"found.*wanted"):
        settings.load({name: text}, environ={}, directory=Path("/"))
