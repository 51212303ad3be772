"""What stands after the question mark of a store's url, read alike for every store."""

from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.errors import OptionError
from penstock.core.store_url import StoreUrl, shown_option
from penstock.settings import seconds


def options_of(
    url: StoreUrl, *, whole: Mapping[str, tuple[int, int]], times: Collection[str], texts: Collection[str]
) -> dict[str, Any]:
    """The options by name: whole numbers within their bounds, times in seconds, and texts as they are."""
    known = sorted({*whole, *times, *texts})
    options: dict[str, Any] = {}
    for name, text in url.options:
        if name in whole:
            least, most = whole[name]
            if not (text.isascii() and text.isdecimal()) or not least <= int(text[:10]) <= most:
                raise OptionError(name, text, f"a whole number from {least} to {most}")
            options[name] = int(text)
        elif name in times:
            options[name] = seconds(name, text)
            if not options[name]:
                raise OptionError(name, text, "more than nothing")
        elif name in texts:
            options[name] = text
        else:
            # Its value is not repeated: it may be a password or a token.
            raise ValueError(
                f"no option is called {shown_option(name, url.query)}; there are {', '.join(known)}"
            )
    return options
