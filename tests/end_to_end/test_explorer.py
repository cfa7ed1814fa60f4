"""The explorer in a real browser: what a person does, by mouse and by keyboard."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from explorer import AGEWISE, CHROMIUM, FLAGS, explorer, meters

import agewise as aw

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)
SHOTS = Path(os.environ.get("AGEWISE_SCREENSHOTS", Path(__file__).parents[2] / "out" / "explorer"))
BUDGET = 60_000  # milliseconds: a busy machine may take long, a hanging page takes for ever


@pytest.fixture(scope="module")
def address():
    with explorer() as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    reason = "no playwright here: pip install playwright"
    play_with = pytest.importorskip("playwright.sync_api", reason=reason).sync_playwright
    with play_with() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Watched:
    """A page, and everything that should not happen on it."""

    def __init__(self, browser, width=1280, height=900, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        self.context.set_default_timeout(BUDGET)
        self.requests, self.errors = [], []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.context.on("console", lambda said: self.errors.append(f"{said.type}: {said.text}"))
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self.page = self.context.new_page()

    def open(self, url):
        self.page.goto(url)
        self.settled()

    def settled(self):
        self.page.wait_for_function(
            "() => document.getElementById('results').getAttribute('aria-busy') === 'false' && "
            "/^(Up to date|Refused)/.test(document.getElementById('status').textContent)"
        )

    def number(self, name):
        return float(self.page.get_attribute(f"#{name}", "data-value"))

    def changed(self, act):
        """Do something, and wait until the page has answered it."""
        self.page.evaluate("document.getElementById('status').textContent = 'waiting'")
        act()
        self.settled()

    def close(self):
        self.context.close()
        outside = [url for url in self.requests if not self._inside(url)]
        assert outside == [], "requests left this machine"
        assert self.errors == [], self.errors

    @staticmethod
    def _inside(url):
        return url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


@pytest.fixture
def watched(browser, address):
    one = Watched(browser)
    one.open(address)
    yield one
    one.close()


def command_json(words, cwd=None):
    done = subprocess.run(
        [AGEWISE, *words], capture_output=True, text=True, check=True, cwd=cwd, encoding="utf-8"
    )
    return json.loads(done.stdout)


def shown_command(watched, picture):
    place = f"#{picture}-recipe"
    if watched.page.get_attribute(place, "open") is None:
        watched.page.click(f"{place} summary")
    return shlex.split(watched.page.inner_text(f"{place} .command"))


def test_it_starts_with_numbers_pictures_and_the_odds_in_words(watched):
    plan = aw.plan(aw.scenarios.common_level())
    assert watched.number("gap") == plan.gap
    assert watched.number("classical_fresh") == plan.classical_fresh
    assert watched.number("nothing_collected") == plan.nothing_collected
    assert "by at most a factor 1.11" in watched.page.inner_text("#odds")
    for key in ("loss", "timeline", "ages", "spent"):
        alt = watched.page.locator(f"#{key} svg.chart desc").text_content()
        assert len(alt) > 60
        assert watched.page.locator(f"#{key} svg.chart").get_attribute("role") == "img"
    assert "ε assumes records that evolve independently" in watched.page.inner_text("#rests")


SLIDERS = {
    "epsilon": ("gap", "ArrowRight"),
    "records": ("gap", "ArrowRight"),
    "loading": ("nothing_collected", "ArrowRight"),
    "memory": ("gap", "ArrowLeft"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLIDERS)
def test_each_slider_moves_its_numbers_to_those_of_the_command(watched, name, tmp_path):
    number, key = SLIDERS[name]
    before = watched.number(number)
    slider = watched.page.locator(f"#{name}-slider")

    def act():
        slider.focus()
        for _ in range(5):
            slider.press(key)

    watched.changed(act)
    after = watched.number(number)
    assert after != before
    words = shown_command(watched, "timeline")
    if "explored.toml" in words:
        with watched.page.expect_download() as saving:
            watched.page.click("#save-scenario")
        saving.value.save_as(tmp_path / "explored.toml")
    told = command_json([*words[1:], "--json"], cwd=tmp_path)
    assert told[number] == after
    assert told["gap"] == watched.number("gap")


@pytest.mark.slow
def test_age_rounds_and_period_move_too(watched):
    page = watched.page
    watched.changed(lambda: page.check("#schedule-age"))
    fresh = watched.number("gap")
    watched.changed(lambda: page.locator("#age-slider").press("ArrowRight"))
    assert watched.number("gap") != fresh
    told = command_json([*shown_command(watched, "timeline")[1:], "--json"])
    assert told["ages"] == [1, 1, 1]
    assert told["gap"] == watched.number("gap")
    watched.changed(lambda: page.check("#schedule-planned"))
    page.locator("#rounds-slider").press("PageUp")
    page.wait_for_selector("text=the laws that clients state are left out")
    often = watched.number("gap")
    page.locator("#every-slider").press("End")
    page.wait_for_function("(old) => document.getElementById('gap').dataset.value < old", arg=often)
    page.check("#forever")
    page.select_option("#promise", "every_moment")
    page.wait_for_function("() => /at any time/.test(document.getElementById('odds').textContent)")
    assert page.is_disabled("#rounds")


@pytest.mark.slow
def test_refused_values_show_the_message_and_no_numbers(watched):
    page = watched.page
    for name, value, words in (
        ("epsilon", "0", "epsilon is 0; allowed: a finite number above 0"),
        ("epsilon", "<b>", "epsilon is '<b>'"),
        ("memory", "2", "level.correlation is 2.0"),
    ):
        own = page.input_value(f"#{name}")
        watched.changed(lambda name=name, value=value: page.fill(f"#{name}", value))
        assert words in page.inner_text("#view [role=alert]")
        assert page.locator("#gap").count() == 0
        assert page.locator("svg.chart").count() == 0
        watched.changed(lambda name=name, own=own: page.fill(f"#{name}", own))
        assert page.locator("#gap").count() == 1
    page.click("#more summary")
    watched.changed(lambda: page.select_option("#estimator", "propagated"))
    assert "Moving records forward shrinks" in page.inner_text("#view [role=alert]")
    page.click("#more summary")
    page.click("a.go")
    assert page.evaluate("document.activeElement.id") == "estimator"
    assert page.is_visible("#estimator")


@pytest.mark.slow
def test_scenario_plan_report_and_statement_can_be_taken_along(watched, browser, tmp_path):
    page = watched.page
    watched.changed(lambda: page.fill("#epsilon", "0.3"))
    for key, name in (("scenario", "explored.toml"), ("plan", "plan.json")):
        with page.expect_download() as saving:
            page.click(f"#save-{key}")
        assert saving.value.suggested_filename == name
        saving.value.save_as(tmp_path / name)
    assert aw.load_scenario(tmp_path / "explored.toml").epsilon == 0.3
    plan = aw.Plan.from_json((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan.gap == watched.number("gap")
    page.click("#carry-out")
    page.wait_for_selector("#stated")
    assert "Privacy statement of run" in page.inner_text("#stated")
    with page.expect_download() as saving:
        page.click("#save-report")
    saving.value.save_as(tmp_path / "report.html")
    other = Watched(browser)
    other.page.goto((tmp_path / "report.html").as_uri())
    text = other.page.inner_text("main")
    digest = re.search(r"Statement ([0-9a-f]{64})", page.inner_text("#stated"))[1]
    assert digest in text  # the very run that the page told of
    assert f"{plan.gap:.6g}" in text
    assert other.page.locator("svg[role=img] > desc").count() == 4
    SHOTS.mkdir(parents=True, exist_ok=True)
    other.page.emulate_media(media="print")
    other.page.set_viewport_size({"width": 720, "height": 1000})
    other.page.screenshot(path=SHOTS / "report-print.png", full_page=True)
    other.context.close()
    assert other.errors == []
    assert all(url.startswith("file:") for url in other.requests)


def test_own_readings_to_fit_plan_and_statement(watched, tmp_path):
    page, path = watched.page, meters(tmp_path / "meters.csv")
    page.click("#own summary")
    page.set_input_files("#file", path)
    page.select_option("#adversary", "population")
    page.fill("#upload-unit", "Wh")
    page.click("#upload button")
    page.wait_for_selector("#fit")
    watched.settled()
    assert "Nothing speaks against" in page.inner_text("#fit")
    words = shown_command(watched, "fit")
    assert words[:3] == ["agewise", "fit", "meters.csv"]
    fitted = command_json([*words[1:], "--json"], cwd=tmp_path)
    planned = command_json(["plan", "meters.toml", "--json"], cwd=tmp_path)
    page.click("#fit-details > summary")
    last = fitted["clients"][0]["limits"][0]
    assert f"{last:.3f}" in page.inner_text("#fit")
    assert watched.number("gap") == planned["gap"]
    assert watched.number("classical_fresh") == planned["classical_fresh"]
    assert "what the fit grants them" in page.inner_text("#odds")
    with page.expect_download() as saving:
        page.click("#save-scenario")
    saving.value.save_as(tmp_path / "explored.toml")
    assert aw.load_scenario(tmp_path / "explored.toml") == aw.load_scenario(
        tmp_path / "meters.toml"
    )
    page.click("#carry-out")
    page.wait_for_selector("#stated")
    assert "confidence 0.95" in page.inner_text("#stated")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "readings.png", full_page=True)


WRONG = {
    "nothing.csv": (b"", "size of nothing.csv is 0 bytes"),
    "picture.png": (b"\x89PNG....", "a .csv or .parquet file"),
    "broken.parquet": (b"PAR1 and no more", "broken.parquet"),
    "words.csv": (b"these,are\nonly,words\n", "timestamp column of words.csv"),
    "bytes.csv": (bytes(range(256)) * 40, "readings of bytes.csv"),
    "<img src=x onerror=alert(1)>.csv": (b"a,b\n1\n2,3,4\n", "img src=x"),
    "short.csv": (b"meter,time,kwh\na,2024-01-01 00:00,1\na,2024-01-01 01:00,2\n", "short.csv"),
}


@pytest.mark.slow
def test_wrong_files_get_one_message_and_nothing_else_happens(watched):
    page, before = watched.page, watched.number("gap")
    page.click("#own summary")
    page.click("#upload button")
    assert page.inner_text("#upload-status") == "Choose a file first."
    for name, (content, words) in WRONG.items():
        page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": content})
        page.click("#upload button")
        page.wait_for_function(
            "() => document.querySelector('#upload-status.refused') && "
            "!document.querySelector('#upload button').disabled"
        )
        told = page.inner_text("#upload-status")
        if name != "short.csv":
            assert words in told, told
        assert "/tmp" not in told
        assert "Traceback" not in told
    assert page.locator("#upload-status img").count() == 0
    assert watched.number("gap") == before


@pytest.mark.slow
def test_a_huge_file_is_refused_before_it_is_sent(watched):
    page = watched.page
    page.click("#own summary")
    page.evaluate("document.getElementById('upload').dataset.most = '10'")
    content = {"name": "large.csv", "mimeType": "text/csv", "buffer": b"x" * 2000}
    page.set_input_files("#file", content)
    page.click("#upload button")
    said = page.inner_text("#upload-status")
    assert "large.csv has 2,000 bytes; allowed: at most 512 MB here" in said
    assert not [url for url in watched.requests if "/readings" in url]


@pytest.mark.slow
def test_two_tabs_do_not_disturb_each_other(watched, address):
    second = watched.context.new_page()
    second.goto(f"{address}?source=london")
    second.wait_for_function(
        "() => document.getElementById('status').textContent.startsWith('Up to date')"
    )
    london = float(second.get_attribute("#gap", "data-value"))
    watched.changed(lambda: watched.page.fill("#epsilon", "0.5"))
    assert watched.number("gap") == aw.plan(aw.scenarios.common_level().replace(epsilon=0.5)).gap
    assert float(second.get_attribute("#gap", "data-value")) == london
    second.reload()
    second.wait_for_selector("#gap")
    assert float(second.get_attribute("#gap", "data-value")) == london
    assert second.input_value("#epsilon") == "0.1"
    watched.page.reload()
    watched.settled()
    assert watched.page.input_value("#epsilon") == "0.5"


def test_everything_can_be_done_by_keyboard_alone(watched):
    page = watched.page
    reached = []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "document.activeElement.id || document.activeElement.closest('[id]')?.id"
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", name
        reached.append(name)
        if name == "carry-out":
            break
    for name in ("source", "epsilon-slider", "epsilon", "schedule-planned", "loading-slider"):
        assert name in reached
    for name in ("memory-slider", "rounds-slider", "forever", "every-slider", "promise", "more"):
        assert name in reached
    assert {"own", "loss-numbers", "loss-recipe", "save-scenario", "save-report"} <= {*reached}
    page.keyboard.press("Enter")
    page.wait_for_selector("#stated")
    page.focus("#source")
    last = page.evaluate("[...document.getElementById('source').options].at(-1).value")
    with page.expect_navigation():
        page.keyboard.press("End")
    watched.settled()
    assert page.input_value("#source") == last != "common_level"
    label = page.evaluate("document.querySelector('#epsilon-slider').getAttribute('aria-label')")
    assert "Privacy target" in label


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "width"), [("wide", 1280), ("narrow", 390)])
def test_it_can_be_read_wide_and_narrow_light_and_dark(browser, address, shape, width, scheme):
    one = Watched(browser, width, 900, scheme)
    one.open(address)
    SHOTS.mkdir(parents=True, exist_ok=True)
    one.page.screenshot(path=SHOTS / f"{shape}-{scheme}.png", full_page=True)
    letters = one.page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].map(
             (svg) => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"""
    )
    assert min(letters) >= 10, "letters too small to read"
    clipped = one.page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].flatMap((svg) => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter((text) => {
               const box = text.getBoundingClientRect();
               return box.left < frame.left - 1 || box.right > frame.right + 1;
             }).map((text) => text.textContent);
           })"""
    )
    assert clipped == []
    faint = one.page.evaluate(CONTRAST)
    assert faint == []
    one.page.dispatch_event("#carry-out", "click")  # not where it was: a picture may have moved it
    one.page.wait_for_selector("#stated")
    one.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    over = one.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert over <= 0, "the page is wider than its window"
    one.page.screenshot(path=SHOTS / f"{shape}-{scheme}-all.png", full_page=True)
    one.close()


@pytest.mark.slow
def test_a_statement_outlives_an_update_of_the_same_choices(watched):
    """A window that becomes narrow has its pictures drawn anew while the statement is written."""
    page, held = watched.page, []
    page.route("**/view?*", lambda route: held.append(route))  # noqa: PLW0108  (marked by Playwright)
    with page.expect_request("**/view?*"):
        page.set_viewport_size({"width": 390, "height": 900})
    page.dispatch_event("#carry-out", "click")
    page.wait_for_selector("#stated")
    (update,) = held
    update.continue_()
    page.unroute("**/view?*")
    watched.settled()
    assert page.locator("#stated").count() == 1
    assert page.is_disabled("#carry-out")
    assert page.get_attribute("#save-report", "href").count("&statement=1") == 1
    watched.changed(lambda: page.fill("#epsilon", "0.2"))  # other choices have another one
    assert page.locator("#stated").count() == 0
    assert page.is_enabled("#carry-out")


CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map(
    (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
  ).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const words = 'p, small, label, h1, h2, li, summary, strong, svg.chart text';
  for (const one of document.querySelectorAll(words)) {
    const style = getComputedStyle(one);
    const ink = light(rgb(one.tagName === 'text' ? style.fill : style.color));
    const paper = light(behind(one));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    const text = one.textContent.trim().slice(0, 30);
    if (text && ratio < 4.5) poor.push(`${text} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
