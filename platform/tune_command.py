"""`oclgrid tune`: search, say what was found on validation, confirm it on test where asked."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import DONE, INTERRUPTED, SOME_FAILED, surroundings_of

if TYPE_CHECKING:
    from oclgrid.platform.search_run import SearchOutcome
    from oclgrid.platform.session import Surroundings
    from oclgrid.search_spaces.search import Search


def tune(options: Any) -> int:
    """Search, print the best point beside the paper's, and confirm it where asked."""
    from oclgrid.search_spaces.search import read_search

    search = read_search(options.search, method=options.method)
    if options.trials is not None:
        search = replace(search, budget=replace(search.budget, trials=options.trials))
    return _tune(search, surroundings_of(options), options)


def _tune(search: "Search", place: "Surroundings", options: Any) -> int:
    from oclgrid.platform.search_display import SearchDisplay
    from oclgrid.platform.search_run import run_search
    from oclgrid.platform.study import study_address
    from oclgrid.search_spaces.search import on_data

    address = study_address(place.location, options.study_storage)
    display = SearchDisplay()
    outcome = run_search(search, place, display, address=address)
    search = on_data(search, place.data)  # which is decoded by now
    print(standing(search, outcome), end="")
    for number, reason in outcome.failed.items():
        print(f"oclgrid: trial {number} failed: {reason}", file=sys.stderr)
    asked = options.search + (f" --method {options.method}" if options.method else "")
    again = f"oclgrid tune {asked}"
    if outcome.interrupted or outcome.is_stopped:
        print(
            f"oclgrid: stopped with {outcome.interrupted} trials under way; nothing is lost, "
            f"go on with `{again}`",
            file=sys.stderr,
        )
        return INTERRUPTED
    if outcome.failed:
        print(
            f"oclgrid: {len(outcome.failed)} trials failed; after a remedy, `{again}` "
            f"tries them again",
            file=sys.stderr,
        )
        return SOME_FAILED
    if options.confirm:
        return _confirm(search, outcome, place)
    display.say(
        f"see all of it with `oclgrid report {asked}`; test the best with `{again} --confirm`"
    )
    return DONE


def standing(search: "Search", outcome: "SearchOutcome") -> str:
    """Return the best point beside the paper's, in words and numbers."""
    from oclgrid.platform.trials import beside_paper, brief, counted, judged_on

    lines = [f"study {search.study}: {counted(outcome.rows)}"]
    if outcome.best:
        lines.append(f"{judged_on(search)}:")
        named = beside_paper(search, outcome.rows)
        names = [p for p in search.space.ranges if any(p in row.point for _, row in named)]
        table = [["point", "trial", *names, *(f"{o}" for o in search.objectives)]]
        for label, row in named:
            point = [brief(row.point[p]) if p in row.point else "-" for p in names]
            table.append([label, str(row.number), *point, *(f"{v:.4f}" for v in row.values)])
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines += [
            "| " + " | ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) + " |"
            for line in table
        ]
        lines.insert(-len(table) + 1, "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    return "\n".join(lines) + "\n"


def _confirm(search: "Search", outcome: "SearchOutcome", place: "Surroundings") -> int:
    from oclgrid.platform.confirm import confirmation, told
    from oclgrid.platform.display import Display
    from oclgrid.platform.plan import make_plan
    from oclgrid.platform.run import run_sweep

    if not outcome.best:
        print("oclgrid: no trial has finished; nothing to confirm", file=sys.stderr)
        return SOME_FAILED
    best = outcome.best[0]
    if best.point == search.space.reference:
        print("the paper's point is the best; there is nothing to confirm")
        return DONE
    chosen = confirmation(search, best)
    result = run_sweep(chosen.sweep, place, Display(), labels=chosen.labels)
    found = make_plan(chosen.sweep, place.location).found
    print(told(chosen, found, best.number), end="")
    for title, reason in result.failed.items():
        print(f"oclgrid: {title} failed: {reason}", file=sys.stderr)
    if result.interrupted:
        print("oclgrid: interrupted; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    return SOME_FAILED if result.failed else DONE
