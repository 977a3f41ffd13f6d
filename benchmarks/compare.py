"""Compare two results of `make bench`: `python -m benchmarks.compare OLD NEW`."""

import json
import sys
from pathlib import Path
from typing import Any

SLACK = 0.1
"""What may change without a word, on top of the spread of both."""


def main(arguments: list[str]) -> int:
    """Print each entry of both files, worst first; return 1 if one has become worse."""
    if len(arguments) != 2:
        print("usage: python -m benchmarks.compare OLD.json NEW.json", file=sys.stderr)
        return 2
    try:
        old, new = (json.loads(Path(a).read_text(encoding="utf-8")) for a in arguments)
        lines = compared(old, new)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"benchmarks: not two results of `make bench`: {error}", file=sys.stderr)
        return 2
    for name in sorted(set(old["machine"]) | set(new["machine"])):
        before, after = (x["machine"].get(name, "unknown") for x in (old, new))
        if before != after:
            print(f"{name}: {before}, now {after}")
    width = max((len(name) for name, *_ in lines), default=0)
    for name, before, after, word in lines:
        print(f"{name:{width}}  {before:7.2f} -> {after:7.2f}  {after / before:5.2f}x  {word}")
    return int(any(word == "WORSE" for *_, word in lines))


def compared(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, float, float, str]]:
    """Return name, both ratios and a verdict for each entry that both have, worst first."""
    before = {e["name"]: e for e in old["entries"]}
    found = []
    for e in new["entries"]:
        if (was := before.get(e["name"])) is None:
            continue
        change = e["ratio"] / was["ratio"] - 1
        gain = change if e["is_gain"] else -change
        noise = SLACK + (e["spread"] + was["spread"]) / was["ratio"]
        word = "WORSE" if gain < -noise else "better" if gain > noise else "same"
        found.append((gain, (e["name"], was["ratio"], e["ratio"], word)))
    return [line for _, line in sorted(found)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
