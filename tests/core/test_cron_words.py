"""Schedules in plain words."""

import pytest

from penstock.core.cron.spec import Cron, Every
from penstock.core.cron.words import describe

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("30 3 * * *", "every day at 03:30 (Europe/Berlin)"),
        ("@daily", "every day at 00:00 (Europe/Berlin)"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00 (Europe/Berlin)"),
        ("0 9 * * 1-5", "at 09:00 on weekdays (Europe/Berlin)"),
        ("0 9 * * sat,sun", "at 09:00 on weekends (Europe/Berlin)"),
        ("0 9 * * 0,mon,4", "at 09:00 on Mondays, Thursdays and Sundays (Europe/Berlin)"),
        ("0 9 * dec 7", "at 09:00 on Sundays in December (Europe/Berlin)"),
        ("0 0 1 * *", "at 00:00 on day 1 of every month (Europe/Berlin)"),
        ("0 0 1,15 jan,jul *", "at 00:00 on days 1 and 15 of January and July (Europe/Berlin)"),
        ("0 0 L * *", "at 00:00 on the last day of every month (Europe/Berlin)"),
        ("59 23 31 12 *", "at 23:59 on 31 December (Europe/Berlin)"),
        ("0 12 * 6-8 *", "at 12:00 every day in June, July and August (Europe/Berlin)"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:45 on weekdays (Europe/Berlin)"),
        ("* 5 * * *", "every minute from 05:00 to 05:59 (Europe/Berlin)"),
        ("@hourly", "every hour (Europe/Berlin)"),
        ("5,35 * * * *", "every hour at :05 and :35 (Europe/Berlin)"),
        ("5 */2 * * *", "every 2 hours at :05 (Europe/Berlin)"),
    ],
)
def test_common_expressions_read_as_one_would_say_them(expression: str, words: str) -> None:
    assert describe(Cron.of(expression, BERLIN)) == words


@pytest.mark.parametrize(
    "expression",
    [
        "*/7 * * * *",
        "5 */5 * * *",
        "30 2 1 * 1",
        "0 12 * * 5L",
        "*/15 2,5 * * *",
        "0-59 * * * *",
        "0 0 1-9 * *",
    ],
)
def test_others_stay_as_they_are(expression: str) -> None:
    assert describe(Cron.of(expression, BERLIN)) == f"{expression} (Europe/Berlin)"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "every second"),
        (1.5, "every 1.5 seconds"),
        (60, "every minute"),
        (90, "every 90 seconds"),
        (900, "every 15 minutes"),
        (7200, "every 2 hours"),
        (86_400, "every 24 hours"),
        (172_800, "every 2 days"),
    ],
)
def test_intervals_read_in_their_largest_unit(seconds: float, words: str) -> None:
    assert describe(Every.of(seconds)) == words
