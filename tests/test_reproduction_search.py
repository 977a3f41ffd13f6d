"""What docs/reproduction.md says of the search is what its trials say."""

import csv
from collections import Counter

from tests.exported import REPRODUCTION, ROOT


def test_what_is_said_of_the_search_is_what_its_trials_say() -> None:
    folder = ROOT / "results" / "sdaf-lambda-tau-cifar10-tenth"
    rows = list(csv.DictReader((folder / "trials.csv").read_text(encoding="utf-8").splitlines()))
    states = Counter(row["state"] for row in rows)
    finished = [row for row in rows if row["state"] == "finished"]
    by_a = sorted(finished, key=lambda row: float(row["A"]))
    percent = [f"{100 * float(row['A']):.1f}" for row in (by_a[0], by_a[-1], finished[0])]
    best = [f"{float(by_a[-1][name]):.1f}" for name in ("lambda", "tau_w")]
    told = " ".join(REPRODUCTION.split())
    assert f"{len(rows)} trials by TPE" in told
    assert f"{states['finished']} finished, {states['pruned']} were pruned" in told
    assert f"stays between {percent[0]} and {percent[1]} %" in told
    assert f"(lambda 1.5, tau_w 0.5) has {percent[2]} %" in told
    assert f"lambda {best[0]} and tau_w {best[1]} ({percent[1]} %)" in told
    assert {row["trial"] for row in by_a[-3:]} == {
        row["trial"] for row in finished if float(row["lambda"]) > 8
    }
    assert {row["steps"] for row in rows if row["state"] == "pruned"} == {"3"}
