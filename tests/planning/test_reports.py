"""What people see of problems, plans, schedules and certificates."""

import numpy as np
import pytest

import agewise as aw

CHAIN = aw.birth_death(0.1, 0.2, [20, 50, 100, 200])
ODD = "<script>alert('x')</script> & co"


def planned(count, name="n"):
    clients = [aw.Client(f"{name} {i}", CHAIN, samples=50 + i % 7) for i in range(count)]
    problem = aw.Problem(clients, 10, 0.1, name=name, unit="Wh", origin=f"from {name}")
    return aw.evaluate(problem, [1 + i % 10 for i in range(count)])


@pytest.mark.parametrize("count", [1, 3, 10_000])
def test_a_repr_is_one_short_line(count):
    made = planned(count, "a long name " * 16)
    u, b = np.ones((count, 4)), np.zeros((count, 4))
    found = aw.solve_schedule(u, b)
    checked = aw.check_schedule(found, u, b)
    shown = [repr(one) for one in (made, made.problem, found, checked)]
    compared = aw.compare(planned(2).problem, epsilon=[0.1])
    shown += [repr(compared), repr(compared[0])]
    for text in shown:
        assert len(text) < 200
        assert len(text.splitlines()) == 1
    for text in shown[:3]:
        assert ("1 client," if count == 1 else f"{count:,} clients,") in text


def test_reprs_of_the_parts_are_one_short_line():
    many = np.arange(500.0)
    long = aw.MarkovChain(np.full((500, 500), 1 / 500), many)
    fitted = aw.load_scenario("london_fitted")
    parts = [
        CHAIN,
        long,
        CHAIN.joint(1, 4),
        aw.scenarios.day_profile().clients[0].process,
        fitted.clients[0].process,
        aw.Level(list(many), 0.5),
        aw.Client("n" * 200, long, many / many.sum(), 10**9, 0.5, 1e-9, members=10**8),
        *fitted.clients,
    ]
    for part in parts:
        assert len(repr(part)) < 200
        assert len(repr(part).splitlines()) == 1
    assert repr(CHAIN) == "MarkovChain(4 states: 20, 50, 100, 200)"
    assert repr(aw.Client("a", CHAIN)) == f"Client('a', {CHAIN!r}, 100 records)"
    assert aw.Client("a", CHAIN) == aw.Client("a", CHAIN) != aw.Client("a", CHAIN, samples=7)


def test_a_repr_stays_one_line_whatever_the_name():
    made = planned(1)
    problem = made.problem.replace(name="two\nlines")
    assert len(repr(problem).splitlines()) == 1
    assert len(repr(aw.evaluate(problem, [1])).splitlines()) == 1


def test_a_plan_reads_as_a_table_with_its_facts():
    made = aw.plan(aw.scenarios.london())
    lines = str(made).splitlines()
    assert lines[0] == "london: aggregate in slot 10, ε = 0.1"
    heading = "client collect in slot age Δ classical ε aged ε noise scale (Wh)"
    assert " ".join(lines[1].split()) == heading
    assert " ".join(lines[2].split()) == "client 1 10 0 1.0000 0.1 0.1 18"
    assert "all 1000 schedules tried" in str(made)
    assert "127.07 Wh²" in str(made)


@pytest.mark.parametrize("count", [20, 21, 10_000])
def test_long_plans_are_cut_and_say_so(count):
    made = planned(count)
    for text in (str(made), made._repr_html_(), str(made.problem), made.problem._repr_html_()):
        assert ("1 more client" in text or f"{count - 20:,} more clients" in text) == (count > 20)
        assert "n 19" in text
        assert "n 20" not in text


def test_names_are_only_names_in_html():
    made = planned(2, ODD)
    compared = aw.compare(made.problem, epsilon=[0.1])
    for one in (made, made.problem, compared):
        text = one._repr_html_()
        assert "<script" not in text
        assert "&lt;script&gt;" in text


def test_schedules_and_certificates_tell_what_is_proven():
    u, b = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 3.0], [1.0, -2.0]])
    found = aw.solve_schedule(u, b)
    assert "columns       0, 0" in str(found)
    assert ">0, 0</td>" in found._repr_html_()
    unproven = aw.Schedule(found.columns, 2.0, None, 0)
    assert "nothing proven" in repr(unproven)
    assert "nothing proven" in str(unproven)
    assert "holds" in repr(aw.check_schedule(found, u, b))
    lie = aw.check_schedule(aw.Schedule(found.columns, 2.0, 3.0, 0), u, b)
    assert "does not hold" in repr(lie)
    assert "the bound is 2.0, not 3.0" in str(lie)
    assert "the bound is 2.0" in lie._repr_html_()


def test_a_plan_draws_itself(tmp_path):
    made = aw.plan(aw.scenarios.london())
    figure = made.plot()
    assert len(figure.axes[0].patches) == 3
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        made.plot(tmp_path / f"plan.{kind}")
        assert (tmp_path / f"plan.{kind}").read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("name", "words"), [("plan", "ends in .png"), ("no/such/plan.png", "can be written")]
)
def test_a_plan_is_not_drawn_where_nothing_can_be_written(tmp_path, name, words):
    with pytest.raises(aw.InvalidInput, match=words):
        planned(2).plot(tmp_path / name)
