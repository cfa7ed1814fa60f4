"""Every client's data lie inside the axes that show them, however different the clients are."""

import numpy as np
import pytest

import agewise as aw
from agewise import figures
from agewise.calibration import slot_table
from agewise.paper.schemes import SchemeRow
from agewise.planning.compare import FRESH

NAME = "a client with a very long name, and a number at its end: "


def clients(samples, reach=200.0, count=1):
    chain = aw.birth_death(0.1, 0.2, [0, reach])
    return [aw.Client(f"{NAME}{samples} {i}", chain, samples=samples) for i in range(count)]


FEDERATIONS = {
    "sizes": [c for n in (3, 1000, 10**6) for c in clients(n)],
    "states": [c for n, reach in ((1, 1e-3), (2, 1e5)) for c in clients(n, reach)],
    "one": clients(5),
    "forty": clients(1000, count=39) + clients(3),
}


def problem(name, slots=12):
    return aw.Problem(FEDERATIONS[name], slots, 0.1, unit="Wh", name=name)


def contain_their_lines(axes):
    low, high = sorted(axes.get_ylim())
    left, right = axes.get_xlim()
    for line in axes.get_lines():
        if line.get_transform() == axes.transData:
            x, y = line.get_data()
            assert np.all((left <= x) & (x <= right))
            assert np.all((low <= y) & (y <= high))


@pytest.mark.parametrize("name", FEDERATIONS)
def test_ages_show_every_client_on_an_axis_of_its_own_size(name):
    one = problem(name)
    tables = [slot_table(c, one) for c in one.clients]
    curves = {"exact": [(t.delta[::-1], t.scale[::-1]) for t in tables]}
    figure = figures.ageing_figure([c.name for c in one.clients], curves, 0.1, "Wh")
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 2 * len(one.clients)
    tops = []
    for axes in shown:
        assert len(axes.get_lines()) == 1
        contain_their_lines(axes)
        tops.append(axes.get_lines()[0].get_ydata().max() / axes.get_ylim()[1])
    assert min(tops) > 0.5, "a client's curve lies flat on the axis"
    assert len({axes.get_title() for axes in shown} - {""}) == len(one.clients)


@pytest.mark.parametrize("name", FEDERATIONS)
@pytest.mark.parametrize("slots", [1, 12, 500])
def test_timelines_show_every_client(name, slots):
    made = aw.plan(problem(name, slots))
    axes = figures.timeline_figure(made).axes[0]
    left, right = axes.get_xlim()
    assert len(axes.patches) == len(made.assignments)
    for bar in axes.patches:
        assert left < bar.get_x() < bar.get_x() + bar.get_width() < right
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(made.assignments)


def test_timelines_of_runs_show_who_was_left_out():
    one = problem("sizes")
    gone = one.clients[1].name
    result = aw.run(
        aw.plan(one), rng=np.random.default_rng(1), on_missing="renormalise", drop=[gone]
    )
    figure = figures.run_figure(result)
    contain_their_lines(figure.axes[0])
    texts = [label.get_text() for label in figure.axes[0].child_axes[0].get_yticklabels()]
    assert texts.count("left out") == 1
    assert len(texts) == 3


def test_noise_is_called_scale_or_power():
    made = aw.plan(problem("sizes"))
    texts = figures.timeline_figure(made).axes[0].child_axes[0].get_yticklabels()
    assert all("noise scale" in text.get_text() for text in texts)


def test_schemes_that_need_no_noise_are_drawn_too():
    rows = [
        SchemeRow(s, "x", e, e, None, 1.0, 2.0, 0.0, 1.0, 3.0, 4.0)
        for s in (1, 2)
        for e in (0.1, 1.0)
    ]
    axes = figures.schemes_figure(rows, "mean_noise", "Noise power (Wh²)").axes[0]
    assert axes.get_yscale() == "linear"
    contain_their_lines(axes)


def drawn(axes):
    """The lines of an axes by their values."""
    return [line.get_ydata().tolist() for line in axes.get_lines()]


def test_losses_stand_beside_what_their_rivals_lose():
    """Nothing collected, and fresh data with classical noise and the server's knowledge used."""
    rows = [
        SchemeRow(s, "x", e, e, None, 50.0 + c, 2.0, 0.0, 1.0, 5.0, 4.0 * e, c or None)
        for c in (0, 1)
        for s in (1, 2)
        for e in (0.1, 1.0)
    ]
    panels = figures.schemes_figure(rows, "gap", "Loss gap (Wh²)").axes
    titles = [axes.get_title() for axes in panels]
    assert titles == ["any number of uploads per slot", "one upload per slot"]
    for c, axes in enumerate(panels):
        assert drawn(axes) == [[50.0 + c] * 2, [50.0 + c] * 2, [5.0, 5.0], [0.4, 4.0]]
    assert len(figures.schemes_figure(rows, "bound", "Bound").axes[0].get_lines()) == 2
    points = [
        {"client": c, "collect_at": t, "printed": 9.0, "as_stated": 8.0, "exact_delta": 7.0}
        | {"nothing_collected": 3.0, "classical_fresh": 2.0}
        for c in ("a", "b")
        for t in (1, 2)
    ]
    for panel in figures.figure_2_figure(points, {"matched": 0.1, "found": 0.2}).axes:
        assert drawn(panel)[-2:] == [[3.0, 3.0], [2.0, 2.0]]
    columns = {"ours": 1.0, "nothing collected": 3.0, FRESH: 2.0}
    losses = [{"epsilon": e, **columns} for e in (0.1, 1.0)]
    axes = figures.gains_figure(losses, "Wh").axes[0]
    assert drawn(axes) == [[1.0, 1.0], [3.0, 3.0], [2.0, 2.0]]
    assert {text.get_text() for text in axes.texts} == set(columns)


def test_the_map_of_what_to_do_names_its_regions():
    def row(varied, size, epsilon):
        gap = 100.0 if size < 3 else 50.0 if epsilon > 0.3 else 20.0
        return {
            "varied": varied,
            "size": size,
            "epsilon": epsilon,
            "gap": gap,
            "nothing_collected": 100.0,
            "classical_fresh": 100.0 if size < 3 else 50.0,
        }

    rows = [
        row(varied, float(size), epsilon)
        for varied in ("loading", "half_life")
        for size in range(1, 7)
        for epsilon in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    ]
    for axes in figures.worth_figure(rows, "Wh").axes:
        regions = {text.get_text() for text in axes.texts}
        assert {"collect nothing", "collect fresh", "let data age"} <= regions
