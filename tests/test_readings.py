"""What docs/readings.md says of results is what was exported."""

import re
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import pytest

from oclgrid.search_spaces.paper import paper
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.spec import INFERENCE_FIELDS, CellSpec, MethodConfig
from tests.exported import READINGS, REPRODUCTION, exported, exported_cells, interval

pytestmark = pytest.mark.slow

AS_TOLD = {
    "": "as read",
    "colours kornia": "colours of kornia",
    "reduction image": "summed over an image",
    "labelled long": "long views labelled",
    "labelled short": "short views labelled",
    "view_draw batch": "drawn once a batch",
}

THROUGH_LONG = (
    SdafConfig(exemplar_views="long"),
    SdafConfig(exemplar_views="long", classifier="ncm-euclid"),
)


def test_every_reading_at_a_glance_is_what_was_exported() -> None:
    by_id = exported_cells()
    gains: dict[str, list[str]] = {}
    protocols = (
        ("readings-tenth",),
        ("memorised-tenth",),
        ("memorised-more",),
        ("classifiers-validation", "balance-full", "labelled-full"),
    )
    for column, sweeps in enumerate(protocols):
        ends: dict[str, dict[int, float]] = {}
        for cell in (c for name in sweeps for c in read_sweep(name).cells):
            is_one_change = len(cell.changed) < 2 or cell.changed.keys() <= set(INFERENCE_FIELDS)
            if cell.method.name == "sdaf" and is_one_change:
                by_order = ends.setdefault(reading(cell), {})
                by_order[cell.class_order] = 100 * by_id[cell.cell_id]["E"]
        plain = ends.pop("")
        for told, by_order in ends.items():
            told_gain = gain([end - plain[order] for order, end in by_order.items()])
            gains.setdefault(told, [""] * len(protocols))[column] = told_gain
    for told, row in gains.items():
        cells = r" +\| +".join(map(re.escape, [told, *row]))
        assert re.search(rf"\| {cells} +\|", READINGS), [told, *row]


def rows_by_method(sweep: str) -> dict[MethodConfig, list[dict[str, Any]]]:
    """Return what was exported of a sweep, by method, one row for each class order."""
    by_id, rows = exported_cells(), dict[MethodConfig, list[dict[str, Any]]]()
    for cell in read_sweep(sweep).cells:
        rows.setdefault(cell.method, []).append(by_id[cell.cell_id])
    return rows


def reading(cell: CellSpec) -> str:
    """Return what a cell has other than the defaults."""
    return ", ".join(f"{k} {v}" for k, v in cell.changed.items())


def gain(differences: list[float]) -> str:
    """Return the mean of paired differences, with its 95 % interval where there are three."""
    if len(differences) != 3:
        return f"{mean(differences):+.1f} (n = {len(differences)})"
    middle, *ends = (f"{round(x, 1) + 0.0:+.1f}" for x in interval(differences))  # no -0.0
    return f"{middle} ({' to '.join(ends)})"


def test_the_hunt_for_the_gap_quotes_what_was_exported() -> None:
    told = " ".join(READINGS.split())
    by_id = exported_cells()

    def lost(cell_id: str) -> str:
        *_, before, last = by_id[cell_id]["stage_accuracies"]
        return f"{100 * (before - last):.1f}"

    for cell in read_sweep("cifar10-full").cells:
        if cell.method.name not in ("er", "dvc") and cell.cell_id in by_id:
            named = f"{cell.method.name}, order {cell.class_order}"
            assert re.search(rf"\| {named} +\| +{lost(cell.cell_id)} \|", READINGS)
    plain = read_sweep("readings-tenth").cells[:3]
    nought, one, two = (lost(cell.cell_id) for cell in plain)
    assert f"{nought} points in the last stage of order 0, {one} in that of order 1" in told
    assert f"{two} in that of order 2" in told
    without, *normed_ways = (by_id[cell.cell_id] for cell in read_sweep("heads-full").cells[:5])
    whole = normed_ways[0]
    ends = [f"{100 * row[name]:.1f}" for name in ("E", "A") for row in (whole, without)]
    assert "E is {} with it and {} % without, A {} and {} %".format(*ends) in told
    *early, last = [f"{100 * a:.1f}" for a in whole["stage_accuracies"]]
    assert f"stage by stage {', '.join(early)} and {last} %" in told
    named = "{:.1f} with Mahalanobis, {:.1f} of unit length, {:.1f} with Euclid, {:.1f} with both"
    assert named.format(*(100 * row["E"] for row in normed_ways)) in told


def test_classes_by_their_ids_are_told_of_as_exported() -> None:
    by_id, told = exported_cells(), " ".join(READINGS.split())
    assert exported("natural-full") in READINGS
    row = by_id[read_sweep("natural-full").cells[0].cell_id]
    drawn = [by_id[cell.cell_id] for cell in read_sweep("cifar10-full").cells[:3]]
    *early, last = [f"{100 * a:.1f}" for a in row["stage_accuracies"]]
    assert f"after each stage it has {', '.join(early)} and {last} %" in told
    leads = [100 * (row["E"] - other["E"]) for other in drawn]
    assert f"E is {last}" in told
    assert f"and {min(leads):.0f} to {max(leads):.0f} above those of the drawn orders" in told
    worst = [other["F"] for other in drawn]
    assert f"and A is {100 * row['A']:.1f}, where" in told
    assert f"F is {row['F']:.3f}, where" in told
    assert f"the drawn orders {min(worst):.3f} to {max(worst):.3f}." in told
    seen, by_euclid = (
        by_id[c.cell_id] for c in read_sweep("natural-full").cells if c.method in THROUGH_LONG
    )
    ends = [f"{100 * r['A']:.1f}" for r in (seen, row)] + [f"{r['F']:.3f}" for r in (seen, row)]
    assert "A is {} instead of {} and F {} instead of {}, E one point".format(*ends) in told
    assert round(100 * (seen["E"] - row["E"])) == 1
    assert f"by Euclid E is {100 * by_euclid['E']:.1f} and F {by_euclid['F']:.3f}." in told


def test_readings_with_as_many_draws_are_told_of_as_exported() -> None:
    by_id = exported_cells()
    kinds = ("test_by_exemplars", "test_by_peers", "test_by_stream", "exemplars_by_exemplars")
    for sweep in ("memorised-tenth", "memorised-more"):
        assert exported(sweep) in READINGS
        rows: dict[str, list[dict[str, Any]]] = {}
        for cell in read_sweep(sweep).cells:
            rows.setdefault(reading(cell), []).append(by_id[cell.cell_id])
        for told_as in rows.keys() & AS_TOLD.keys():  # the others only classify otherwise
            numbers = [
                f"{100 * mean(row[f'centres/{kind}_{distance}'] for row in rows[told_as]):.1f}"
                for kind in kinds
                for distance in ("euclid", "mahalanobis")
            ]
            told = [str(rows[told_as][0]["memory"]), AS_TOLD[told_as], *numbers]
            assert re.search(r"\| +" + r" +\| +".join(map(re.escape, told)) + r" \|", READINGS)


def test_labels_on_the_long_views_are_told_of_as_exported() -> None:
    by_id, told = exported_cells(), " ".join(READINGS.split())
    assert exported("labelled-full") in READINGS
    long = SdafConfig(labelled="long")
    for sweep in ("memorised-more", "labelled-full"):
        rows = rows_by_method(sweep)
        for row, base in zip(rows[long], rows[SdafConfig()], strict=True):
            gain_of_e = 100 * (row["E"] - base["E"])
            assert f"E rises by {gain_of_e:.1f} points to {100 * row['E']:.1f}" in told
            assert f"F falls from {base['F']:.3f} to {row['F']:.3f}" in told
            assert f"beta rises from {base['beta']:.3f} to {row['beta']:.3f}" in told
            known = "centres/exemplars_by_exemplars_euclid"
            assert f"{100 * row[known]:.1f} instead of {100 * base[known]:.1f} %" in told
    whole = {c.cell_id: by_id[c.cell_id] for c in read_sweep("labelled-full").cells}
    by_exemplars = "centres/test_by_exemplars_{}".format
    behind, behind_by_default = (
        [
            100 * (row[by_exemplars("euclid")] - row[by_exemplars("mahalanobis")])
            for row in whole.values()
            if row["method.labelled"] == kind and row[by_exemplars("euclid")]
        ]
        for kind in ("long", "both")
    )
    assert "{:.1f} and {:.1f} points behind".format(*behind) in told
    assert all(f"it is {points:.1f} by default" in told for points in behind_by_default)
    more = rows_by_method("memorised-more")
    (short,), (base,) = more[SdafConfig(labelled="short")], more[SdafConfig()]
    fall = 100 * (base["E"] - short["E"])
    ends = f"E falls by {fall:.1f} points to {100 * short['E']:.1f}, F is {short['F']:.3f}"
    assert f"{ends}, and exemplars are known ({100 * short[known]:.1f} %)" in told
    tenth = [
        [by_id[c.cell_id]["E"] for c in read_sweep("readings-tenth").cells if c.method == method]
        for method in (long, SdafConfig())
    ]
    middle, low, high = interval([100 * (a - b) for a, b in zip(*tenth, strict=True)])
    assert f"{middle:+.1f} with a 95 % interval of {low:+.1f} to {high:+.1f})" in told
    in_short = " ".join(REPRODUCTION.split())
    (one, two), (first, second) = rows[long], rows[SdafConfig()]
    gains = (f"{100 * (b['E'] - a['E']):.1f}" for a, b in ((first, one), (second, two)))
    assert "E rises by {} and {} points, F falls".format(*gains) in in_short
    for a, b in ((first, one), (second, two)):
        assert f"from {a['F']:.3f} to {b['F']:.3f}" in in_short


def test_exemplars_seen_through_h_are_told_of_as_exported() -> None:
    by_id, told = exported_cells(), " ".join(READINGS.split())
    rows = {cell.method: by_id[cell.cell_id] for cell in read_sweep("memorised-more").cells}
    plain = [rows[replace(method, exemplar_views="plain")] for method in THROUGH_LONG]
    seen = [rows[method] for method in THROUGH_LONG]
    gains = [100 * (b["E"] - a["E"]) for a, b in zip(plain, seen, strict=True)]
    ends = [
        f"from {100 * a['E']:.1f} to {100 * b['E']:.1f}" for a, b in zip(plain, seen, strict=True)
    ]
    lost = [f"from {a['F']:.3f} to {b['F']:.3f}" for a, b in zip(plain, seen, strict=True)]
    assert f"E rises by {gains[0]:.1f} points, {ends[0]}, and by Euclid by {gains[1]:.1f}" in told
    assert f"{ends[1]}; F falls {lost[0]} and {lost[1]}." in told
    small = read_sweep("memorised-tenth").cells
    before, now = (
        [by_id[cell.cell_id] for cell in small if cell.method == method]
        for method in (SdafConfig(), THROUGH_LONG[0])
    )
    gain, low, high = interval([100 * (b["E"] - a["E"]) for a, b in zip(before, now, strict=True)])
    assert f"({gain:+.1f}, 95 % interval {low:+.1f} to {high:+.1f} over paired" in told
    for name, scale, digits in (("E", 100, 1), ("A", 100, 1), ("F", 1, 3)):
        sides = ([scale * row[name] for row in rows] for rows in (now, before))
        assert (
            " instead of ".join(f"{mean(n):.{digits}f} ± {stdev(n):.{digits}f}" for n in sides)
            in told
        )


def test_exemplars_seen_through_h_on_the_whole_stream_are_told_of_as_exported() -> None:
    told, in_short = " ".join(READINGS.split()), " ".join(REPRODUCTION.split())
    rows = rows_by_method("classifiers-validation")

    def gains(method: SdafConfig) -> tuple[float, float, float]:
        pairs = zip(rows[method], rows[replace(method, exemplar_views="plain")], strict=True)
        return interval([100 * (seen["E"] - plain["E"]) for seen, plain in pairs])

    def spread(method: SdafConfig, name: str, scale: int, digits: int) -> str:
        numbers = [scale * row[name] for row in rows[method]]
        return f"{mean(numbers):.{digits}f} ± {stdev(numbers):.{digits}f}"

    middle, low, high = gains(THROUGH_LONG[0])
    limits = f"95 % interval of {low:+.1f} to {high:+.1f} over paired orders"
    assert f"{middle:+.1f} points with a {limits}" in in_short
    assert f"E rises by {middle:.1f} points by Mahalanobis (95 % interval {low:+.1f} to" in told
    assert f"and by {gains(THROUGH_LONG[1])[0]:.1f} by Euclid" in told
    assert f"it is {gains(SdafConfig(exemplar_views='short'))[0]:.1f} points" in told
    for method in THROUGH_LONG:
        plain = replace(method, exemplar_views="plain")
        for name, scale, digits in (("E", 100, 1), ("F", 1, 3)):
            ends = [spread(m, name, scale, digits) for m in (plain, method)]
            assert " to ".join(ends) in told
            assert method is not THROUGH_LONG[0] or " instead of ".join(ends[::-1]) in in_short


def test_other_centres_than_those_of_exemplars_are_quoted_as_exported() -> None:
    by_id = exported_cells()
    orders = [by_id[cell.cell_id] for cell in read_sweep("classifiers-validation").cells[:3]]
    for kind, rows in (
        ("test_by_exemplars", orders),
        ("test_by_stream", orders),
        ("test_by_peers", orders[2:]),
        ("exemplars_by_exemplars", orders),
    ):
        numbers = [
            ", ".join(f"{100 * row[f'centres/{kind}_{distance}']:.1f}" for row in rows)
            for distance in ("euclid", "mahalanobis")
        ]
        told = (re.escape(" and ".join(n.rsplit(", ", 1))) for n in numbers)
        assert re.search(r"\| +" + r" \| +".join(told) + r" \|", READINGS)
    exemplars, stream, peers = (
        100 * orders[2][f"centres/test_by_{kind}_mahalanobis"]
        for kind in ("exemplars", "stream", "peers")
    )
    told_gain = f"Of the {stream - exemplars:.1f} points that Mahalanobis gains in class order 2, "
    assert told_gain + f"{peers - exemplars:.1f} remain" in READINGS
    assert exported("classifiers-validation") in READINGS


def test_the_trend_over_draws_is_quoted_as_exported() -> None:
    by_id = exported_cells()
    ours, larger = read_sweep("classifiers-full").cells[0], read_sweep("table1-cifar10").cells[-3]
    assert (larger.method.name, larger.memory_size, larger.class_order) == ("sdaf", 1000, 0)
    held_out, many = (read_sweep(n).cells[0] for n in ("classifiers-validation", "cifar100-full"))
    for analysed, tested in ((held_out, ours), (larger, larger), (many, many)):
        row = by_id[analysed.cell_id]
        exemplars, stream = (
            [100 * row[f"centres/test_by_{kind}_{d}"] for d in ("euclid", "mahalanobis")]
            for kind in ("exemplars", "stream")
        )
        printed = paper().number(
            "E", dataset=tested.dataset, memory=tested.memory_size, method="sdaf"
        )
        assert printed is not None
        numbers = [
            f"{100 * row['centres/exemplars_by_exemplars_euclid']:.1f}",
            *(
                f"{with_stream - with_few:.1f}"
                for with_stream, with_few in zip(stream, exemplars, strict=True)
            ),
            f"{exemplars[1] - exemplars[0]:+.1f}",
            f"{100 * (by_id[tested.cell_id]['E'] - printed.mean):+.1f}",
        ]
        assert re.search(r"\| +" + r" \| +".join(map(re.escape, numbers)) + r" \|", READINGS)


def test_the_readings_quote_what_was_exported_and_told_while_training() -> None:
    told = " ".join(READINGS.split())
    lines = exported("readings-tenth").splitlines()
    assert "\n".join(lines) in READINGS
    by_id = exported_cells()

    def range_of(sweep: str, name: str, since: int = 25, **settings: object) -> tuple[float, float]:
        cells = [
            by_id[cell.cell_id]
            for cell in read_sweep(sweep).cells
            if cell.cell_id in by_id and cell.method == replace(SdafConfig(), **settings)
        ]
        cells = [c for c in cells if c[name]]  # one that took over its training told nothing
        assert len(cells) > 1
        points = [(b, v) for c in cells for b, v in zip(c["live_batches"], c[name], strict=True)]
        values = [value for batch, value in points if batch >= since]
        return min(values), max(values)

    for settings, joined in (({}, " and "), ({"head_norm": True}, " to ")):
        for name in ("live/self_supervised_loss", "live/projection_spread"):
            low, high = range_of("readings-tenth", name, **settings)
            assert f"{low:.2f}{joined}{high:.2f}" in told
    usual = ("entries", SdafConfig().temperature)
    tenth = min(
        min(by_id[cell.cell_id]["live/gamma"] or [1])
        for cell in read_sweep("readings-tenth").cells
        if isinstance(m := cell.method, SdafConfig) and (m.weight_mean, m.temperature) == usual
    )
    whole = range_of("classifiers-validation", "live/gamma")[0]
    norms = range_of("readings-tenth", "live/gamma", weight_mean="norms")[0]
    assert f"is never told below {tenth:.3f} on a tenth, nor below {whole:.3f} on the whole" in told
    assert f"it stays above {norms:.3f}" in told
    low, high = range_of("readings-tenth", "live/gamma", since=4 * 90, temperature=0.003125)
    assert f"between {low:.2f} and {high:.2f} in the last stage" in told


def test_the_two_readings_on_the_whole_stream_are_quoted_as_exported() -> None:
    told, by_id = " ".join(READINGS.split()), exported_cells()
    assert exported("balance-full") in READINGS
    assert exported("cutoffs-full") in READINGS
    plain, summed, *_, by_softmax = (by_id[c.cell_id] for c in read_sweep("balance-full").cells)
    fall = f"{100 * (plain['E'] - summed['E']):.0f} points"
    assert told.count(fall) == 2
    assert fall in REPRODUCTION
    assert (
        f"E is {100 * summed['E']:.1f} where averaged weights have {100 * plain['E']:.1f}" in told
    )
    live = zip(summed["live_batches"], summed["live/gamma"], strict=True)
    last = [gamma for batch, gamma in live if batch >= 4 * 900]
    assert f"In the last stage gamma lies between {min(last):.2f} and {max(last):.2f}" in told
    (usual,) = (
        by_id[c.cell_id]
        for c in read_sweep("classifiers-validation").cells
        if c.class_order == 0 and c.method == SdafConfig(classifier="softmax")
    )
    ends = f"E {100 * by_softmax['E']:.1f} instead of {100 * usual['E']:.1f}"
    assert f"F is {by_softmax['F']:.3f} instead of {usual['F']:.3f} and {ends}" in told
    by_others = [
        "{:.1f} (Euclid) and {:.1f} (Mahalanobis)".format(
            *(100 * row[f"centres/test_by_stream_{d}"] for d in ("euclid", "mahalanobis"))
        )
        for row in (summed, plain)
    ]
    assert f"it ends at {by_others[0]}" in told
    assert "averaged weights have {} and {}.".format(*re.findall(r"[\d.]+", by_others[1])) in told
    ends_by_cut = [by_id[c.cell_id]["E"] for c in read_sweep("cutoffs-full").cells]
    as_they_are, unit = ends_by_cut[:4], ends_by_cut[4:9]
    assert as_they_are == sorted(as_they_are)
    assert unit == sorted(unit)
    gains = [100 * (row[-1] - row[0]) for row in (as_they_are, unit)]
    assert "by {:.1f} points with features as they are and {:.1f} with".format(*gains) in told
    averages = [by_id[c.cell_id]["A"] for c in read_sweep("cutoffs-full").cells]
    assert f"(A falls by {100 * (averages[0] - averages[3]):.1f} with features as" in told
    assert as_they_are[-1] < ends_by_cut[9]
    assert unit[-1] < ends_by_cut[10]
