"""`make audit`: hold every locked version against the known advisories, and never call unchecked ones good.

Exit codes: 0 all were checked and none has an advisory, 1 some have one, 3 no advisory data could be had for
some or all of them. pip-audit itself ends with 0 and "no known vulnerabilities" when it has checked nothing.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FOUND: Final = 1
NO_DATA: Final = 3
SERVICES: Final = ("pypi", "osv")
"""Where pip-audit asks, the first that answers."""
SECONDS: Final = 15
_LIMIT: Final = 900


def verdict(answers: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what is said, from the answers of pip-audit by lock; None is no answer."""
    lines: list[str] = []
    checked, missing = set[str](), set[str]()
    for lock, answer in answers.items():
        if answer is None:
            missing.add(lock)
            continue
        for each in answer["dependencies"]:
            if "version" not in each:
                missing.add(each["name"])
                continue
            checked.add(f"{each['name']} {each['version']}")
            for found in each["vulns"]:
                fixed = ", ".join(found.get("fix_versions", ())) or "no version yet"
                lines.append(f"{lock}: {each['name']} {each['version']}: {found['id']}, mended in {fixed}")
    code = FOUND if lines else 0
    if not checked:
        return NO_DATA, ["audit: NOT CHECKED: no advisory data could be had, for any locked version"]
    if missing:
        names = ", ".join(sorted(missing))
        lines.append(f"audit: NOT ALL CHECKED: no advisory data could be had for {names}")
        code = code or NO_DATA
    lines.append(f"audit: {len(checked)} locked versions checked, {len(lines) - bool(missing)} advisories")
    return code, lines


def ask(program: Path, lock: Path, service: str) -> Any:
    """What pip-audit says of a lock; None when it could not say anything."""
    options = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    more = ("--timeout", str(SECONDS), "--vulnerability-service", service, "-r", str(lock))
    try:
        ended = subprocess.run(
            [str(program), *options, *more], capture_output=True, text=True, timeout=_LIMIT, check=False
        )
        return json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None


def has_data(answer: Any) -> bool:
    """True when anything at all was checked."""
    return answer is not None and any("version" in each for each in answer["dependencies"])


def main(arguments: Sequence[str]) -> int:
    """Audit the locks in a folder with a pip-audit."""
    program, folder = Path(arguments[0]), Path(arguments[1])
    locks = sorted(folder.glob("*.txt"))
    smallest = min(locks, key=lambda each: each.stat().st_size)
    service = next((each for each in SERVICES if has_data(ask(program, smallest, each))), None)
    answers = {each.name: None if service is None else ask(program, each, service) for each in locks}
    code, lines = verdict(answers)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
