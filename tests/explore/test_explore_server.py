"""What the explorer answers, and what it refuses, without a browser."""

import http.client
import importlib
import json
import re
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from urllib.parse import urlencode, urlsplit

import pytest
from explorer import explorer, meters

import agewise as aw
import in_process
from agewise.explore import server


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    scenario = tmp_path_factory.mktemp("scenario") / "odd.toml"
    clients = [
        aw.Client("<script>alert(1)</script>", aw.birth_death(0.3, 0.3, (0, 1)), samples=50),
        aw.Client("a & b | c", aw.birth_death(0.2, 0.3, (0, 1)), samples=20),
    ]
    problem = aw.Problem(clients, 5, 0.5, name="<i>odd</i>", unit="<u>")
    scenario.write_text(aw.dump_scenario(problem), encoding="utf-8")
    with explorer(str(scenario)) as url:
        yield url


def ask(address, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_names_from_files_are_letters_and_nothing_else(address):
    parts = ["/", "/view", "/after", "/statement", "/report.html?statement=1"]
    parts += [f"/picture/{key}?narrow=1" for key in ("loss", "timeline", "ages", "spent")]
    for path in parts:
        answer, text = ask(address, path)
        assert answer.status == 200, path
        assert "<script>alert" not in text, path
        assert "<i>odd" not in text, path
        assert "<u>" not in text, path
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in ask(address, "/picture/timeline")[1]


def test_pictures_are_well_formed_with_title_and_description(address):
    for key in ("loss", "timeline", "ages", "spent"):
        _, text = ask(address, f"/picture/{key}")
        drawn = ET.fromstring(re.search(r'<svg class="chart".*?</svg>', text, re.DOTALL)[0])
        space = "{http://www.w3.org/2000/svg}"
        assert drawn.get("role") == "img"
        ids = {one.get("id") for one in drawn.iter() if one.get("id")}
        assert set(drawn.get("aria-labelledby").split()) <= ids
        assert drawn.find(f"{space}title").text
        assert len(drawn.find(f"{space}desc").text) > 40


def test_a_browser_is_held_to_this_machine(address):
    answer, text = ask(address, "/")
    policy = answer.getheader("content-security-policy")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert answer.getheader("referrer-policy") == "no-referrer"


def test_other_names_for_this_machine_get_nothing(address):
    answer, text = ask(address, "/view", Host="evil.example")
    assert answer.status == 400
    assert "gap" not in text


def test_it_listens_on_the_loopback_address_only(address):
    port = urlsplit(address).port
    listening = server.listen(0)
    assert listening.getsockname()[0] == "127.0.0.1"
    listening.close()
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port)}
    for one in addresses - {"127.0.0.1", "::1", "127.0.1.1"}:
        with pytest.raises(OSError, match=r".*"):
            socket.create_connection((one, port), timeout=5)


def test_readings_from_another_page_are_not_taken(address):
    answer, _ = ask(address, "/readings?name=a.csv", "POST", b"a,b\n")
    assert answer.status == 403


def test_a_strange_address_still_brings_up_the_page(address):
    for query in ("source=nowhere", "epsilon=much", "rounds=-3&epsilon=%00"):
        answer, text = ask(address, f"/?{query}")
        assert answer.status == 200
        assert 'id="choices"' in text
    answer, text = ask(address, "/view?epsilon=much")
    assert answer.getheader("x-agewise-refused") == "1"
    assert "epsilon is &#x27;much&#x27;" in text
    assert ask(address, "/scenario.toml?epsilon=0")[0].status == 422
    assert ask(address, "/picture/other")[0].status == 404
    assert json.loads(ask(address, "/readings/none")[1])["stage"] == "failed"


def fitted(address, path, **wanted):
    query = urlencode({"name": path.name, **wanted})
    _, text = ask(
        address, f"/readings?{query}", "POST", path.read_bytes(), **{"x-agewise": "explore"}
    )
    key = json.loads(text)["key"]
    until = time.monotonic() + 300
    while time.monotonic() < until:
        state = json.loads(ask(address, f"/readings/{key}")[1])
        if state["stage"] in ("done", "failed"):
            return state
        time.sleep(0.1)
    raise TimeoutError


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"states": "many"}, "number of states is 'many'"),
        ({"states": "999"}, "number of states is 999"),
        ({"target": "-1"}, "privacy target is -1.0"),
        ({"target": "x"}, "privacy target is 'x'"),
        ({"at": "25:00"}, "aggregate at is '25:00'"),
        ({"adversary": "nobody"}, "adversary is 'nobody'"),
        ({"entity": "none"}, "entity column is 'none'"),
    ],
)
def test_wrong_wishes_for_a_fit_are_refused_by_name(address, tmp_path, wanted, words):
    path = meters(tmp_path / "few.csv", entities=2, days=20)
    state = fitted(address, path, **wanted)
    assert state["stage"] == "failed"
    assert words in state["failure"]
    assert str(tmp_path) not in state["failure"]


def test_a_file_that_is_too_large_is_refused(monkeypatch, tmp_path):
    import asyncio

    from starlette.requests import Request

    from agewise.explore.model import Model
    from agewise.explore.uploads import Uploads

    monkeypatch.setattr(server, "MOST_BYTES", 10)
    uploads = Uploads(Model("london"))
    blocks = [b"12345678", b"12345678", b""]

    async def receive():
        body = blocks.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(blocks)}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/readings",
        "query_string": b"name=../../large.csv",
        "headers": [(b"x-agewise", b"explore")],
    }
    answer = asyncio.run(server.Explorer(Model("london"), uploads).receive(Request(scope, receive)))
    told = json.loads(answer.body)["failure"]
    assert told.startswith("size of large.csv is 16 bytes; allowed: 1 or more, at most 512 MB")
    uploads.close()


def run(*words):
    return in_process.command("explore", *words)


def one_message(done, words):
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("Error:") == 1
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_refused(address):
    port = urlsplit(address).port
    one_message(run("--port", str(port), "--no-browser"), f"--port is {port} (in use)")


def test_ports_that_are_none_are_refused():
    one_message(run("--port", "70000", "--no-browser"), "--port is 70000; allowed: 0 to 65535")
    one_message(run("--port", "-1", "--no-browser"), "--port is -1")


def test_the_usual_port_gives_way_to_another(monkeypatch):
    taken = server.listen(0)
    monkeypatch.setattr(server, "USUAL_PORT", taken.getsockname()[1])
    other = server.listen(None)
    assert other.getsockname()[1] != taken.getsockname()[1]
    taken.close()
    other.close()


def test_a_scenario_that_is_none_is_refused():
    one_message(run("nowhere.toml", "--no-browser"), "agewise init")


def test_without_the_extra_the_command_to_install_it_is_said():
    code = (
        "import sys; sys.modules['starlette'] = None; sys.argv = ['agewise', 'explore'];"
        "from agewise_command import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    one_message(done, "agewise explore is without starlette")
    assert "pip install 'agewise[explore]'" in done.stderr


def test_where_there_is_no_browser_the_address_is_said(monkeypatch, capsys):
    exploring = importlib.import_module("agewise.cli.exploring")
    monkeypatch.setattr(exploring.webbrowser, "open", lambda url: False)
    exploring._open("http://127.0.0.1:1/")
    assert "No browser was found here: open http://127.0.0.1:1/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("source=nosuch", "nosuch"),
        ("epsilon=zzz", "zzz"),
        ("mixing=foo", "foo"),
        ("epsilon=", "epsilon"),
    ],
)
def test_an_address_that_cannot_be_shown_says_so(address, query, word):
    """A bookmark of readings that are gone, or a word too many: something else is shown."""
    _, text = ask(address, f"/?{query}")
    notice = re.search(r'<div class="warning" role="alert">.*?</div>', text, re.DOTALL)
    assert word in notice[0]
    assert "Shown instead" in notice[0]
    assert 'class="warning" role="alert"' not in ask(address, "/")[1]


def test_an_empty_field_is_no_number(address):
    answer, text = ask(address, "/view?epsilon=")
    assert answer.getheader("x-agewise-refused") == "1"
    assert "epsilon" in text
