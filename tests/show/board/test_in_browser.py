"""A study running live in a real browser: Debian's chromium, headless, driven by selenium."""

import contextlib
import itertools
import re
import shutil
import time

import pytest
from board_server import board_of, served
from test_board_state import ARMS, all_but_one, finish_the_last, running, study_of_two

from oelm.show.board.words import _OWN
from oelm.show.fonts import has_chinese, packaged_files
from stored_runs import accuracy_claim, small_classification, small_study, store_study

webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip
PATIENCE = 90.0  # seconds, on a busy machine
RATE = "training.learning_rate"
CLASSIFYING = ["fine_tuned", "frozen_pretrained"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    found.get("about:blank")
    time.sleep(0.5)
    found.get_log("performance")  # of the page that Debian's chromium begins with
    yield found
    found.quit()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A study of which one run is missing, and beside it one about accuracy."""
    study, folder = study_of_two(), tmp_path_factory.mktemp("runs") / "small"
    store_study(study, folder, all_but_one)
    of_accuracy = small_classification(arms=CLASSIFYING, seeds=[0, 1], hypotheses=[accuracy_claim()])
    store_study(of_accuracy, folder.parent / "sentences", lambda arm, seed, *_: 0.1 + seed / 100)
    board = board_of(study, folder, root=folder.parent)
    board.declared = lambda place: of_accuracy if place.name == "sentences" else study
    with served(board) as server:
        yield server, study, folder


def until(browser, script, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = browser.execute_script(f"return {script}")
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}: {browser.execute_script('return document.body.innerText')[:800]}")


@contextlib.contextmanager
def screen(browser, width):
    """A window of another size; a narrow one is that of a phone."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def first_runs(folder):
    """As addresses have them: one of each arm."""
    return [f"small/{next(folder.glob(f'{arm}-s0*')).name}" for arm in ARMS]


CARD = "document.querySelector('[data-card=not_worse]')"
CHART = "document.querySelector('.chart')"
BUTTONS = "[...document.querySelectorAll('.modebar-btn')].map((each) => each.dataset.title ?? '')"
DRAWN = f"({CHART}?.querySelectorAll('.scatterlayer .trace').length ?? 0)"  # curves


# An answer of this kind stays on its way until it is released.
HOLD = """
const ask = window.fetch;
const isReleased = new Promise((resolve) => { window.release = resolve; });
window.fetch = async (path, how) => {
  const answer = await ask(path, how);
  if (!path.startsWith(arguments[0])) return answer;
  window.isAnswered = true;
  await isReleased;
  return answer;
};
"""
CHOOSE = """
const select = document.querySelector(`select[name=${arguments[0]}]`);
select.value = arguments[1];
select.dispatchEvent(new Event('change'));
"""


def test_what_is_recorded_while_curves_are_on_their_way_is_drawn(browser, world):
    server, study, folder = world
    directory, rest = running(study, folder)
    try:
        browser.get(f"{server.address}?study=small")
        until(browser, f"{CARD} && {DRAWN}", "the page")
        browser.execute_script(HOLD, "data/curves")
        browser.execute_script(CHOOSE, "y", "train_loss")
        until(browser, "window.isAnswered", "the answer of the server")
        for record in rest:
            directory.append_metrics(record)
        row = "document.querySelector('tr:has(.state-running)')"
        until(browser, f"{row}?.innerText.includes('40/40')", "the last step in the table")
        browser.execute_script("window.release()")
        numbers = f"[...{CHART}.parentElement.querySelectorAll('details tr')]"
        last = "[...row.children].map((each) => each.textContent).join().match(/,40,.*4[/]4$/)"
        until(browser, f"{numbers}.filter((row) => {last}).length === 2", "all seeds of both arms at the last step")
    finally:
        shutil.rmtree(directory.path)


@pytest.mark.parametrize(("width", "columns"), [(1280, ["changed", "error"]), (390, ["run", "state", "val_loss"])])
def test_what_matters_most_is_seen_without_scrolling_and_nothing_is_wider_than_the_screen(
    browser, world, width, columns
):
    server, study, folder = world
    directory, _ = running(study, folder)
    runs = first_runs(folder)
    try:
        with screen(browser, width):
            browser.get(f"{server.address}?study=small")
            until(browser, f"{CARD} && document.querySelector('.state-running')", "a running run")
            for column in columns:
                right = f"document.querySelector('td.column-{column}').getBoundingClientRect().right"
                assert 0 < browser.execute_script(f"return {right}") <= width
            for query in ("", "?study=small", f"?run={runs[0]}", f"?compare={runs[0]}&compare={runs[1]}"):
                browser.get(f"{server.address}{query}")
                until(browser, "document.querySelector('main').getAttribute('aria-busy') === 'false'", "the page")
                assert browser.execute_script("return document.documentElement.scrollWidth") <= width
                if not query:
                    verdicts = "document.querySelector('[data-study=small]')?.innerText.includes('not_worse: ')"
                    until(browser, verdicts, "the overview")
                    right = "document.querySelector('td:has(progress)').getBoundingClientRect().right"
                    assert browser.execute_script(f"return {right}") <= width
                if width < 600 and query in (
                    "",
                    f"?compare={runs[0]}&compare={runs[1]}",
                ):  # a short name stands in one line on a phone
                    until(browser, "document.querySelector('td a')", "names")
                    lines = "[...document.querySelectorAll('td a')].map((each) => each.getClientRects().length)"
                    assert set(browser.execute_script(f"return {lines}")) == {1}
    finally:
        shutil.rmtree(directory.path)


def test_seeds_are_drawn_apart_when_accuracy_is_what_a_study_is_about(browser, world):
    server, _, _ = world
    browser.get(f"{server.address}?study=sentences&seeds=1")
    value = "document.querySelector('select[name=y]')?.value"
    apart = f"{CHART}.data.map((each) => new Set((each.text ?? []).filter(Boolean)).size).join()"
    until(browser, f"{value} === 'accuracy' && {DRAWN} && {apart} === '2,2'", "the accuracy of all seeds")
    browser.execute_script(CHOOSE, "y", "val_loss")
    until(browser, f"{CHART}._fullLayout.yaxis.title.text.includes('loss') && {apart} === '2,2'", "their loss")
    assert "y=val_loss" in browser.current_url  # and not what the study is about again


def test_a_running_study_and_its_verdict_are_watched(browser, world):
    server, study, folder = world
    browser.get(f"{server.address}?study=small")
    until(browser, f"{CARD} && {CARD}.dataset.outcome === 'undecided'", "a card")
    assert "Not complete" in browser.execute_script(f"return {CARD}.innerText")
    until(browser, DRAWN, "curves")
    # A run appears and goes on: the curves move.
    directory, rest = running(study, folder)
    until(browser, "[...document.querySelectorAll('.state-running')].length", "a running run")
    before = browser.execute_script(f"return {CHART}.dataset.points")
    for record in rest[:6]:
        directory.append_metrics(record | {"step": record["step"] + 1})
    until(browser, f"{CHART}.dataset.points !== '{before}'", "new points")
    # It fails: that is shown with its reason.
    directory.write_status("failed", error="a shortage of memory")
    until(browser, "document.body.innerText.includes('a shortage of memory')", "the error line")
    # It is made again and finishes: the verdict is there.
    shutil.rmtree(directory.path)
    finish_the_last(study, folder)
    until(browser, f"{CARD}.dataset.outcome === 'supported'", "the verdict")
    assert "Not complete" not in browser.execute_script(f"return {CARD}.innerText")
    assert browser.execute_script(f"return {CARD}.querySelectorAll('svg .seed').length") == 4


def test_a_hidden_arm_stays_hidden_after_a_reload(browser, world):
    server, _, _ = world
    browser.get(f"{server.address}?study=small")
    until(browser, DRAWN, "curves")
    traces = browser.execute_script(f"return {DRAWN}")
    button = f"document.querySelector('[data-arm={ARMS[1]}]')"
    browser.execute_script(f"{button}.click()")
    until(browser, f"{DRAWN} < {traces}", "fewer curves")
    assert f"hide={ARMS[1]}" in browser.current_url
    browser.refresh()
    until(browser, f"{button} && {button}.getAttribute('aria-pressed') === 'false'", "the hidden arm")
    until(browser, f"{DRAWN} < {traces}", "fewer curves")


def test_the_address_restores_the_view(browser, world):
    server, _, _ = world
    query = (
        "study=small&y=train_loss&x=tokens&logx=1&logy=1&smooth=5&seeds=1&sort=val_loss&down=1&filter=frozen&theme=dark"
    )
    browser.get(f"{server.address}?{query}")
    until(browser, DRAWN, "the seeds of both arms apart")
    apart = browser.execute_script(f"return {CHART}.data.map((each) => new Set(each.text.filter(Boolean)).size)")
    assert apart == [4, 4]
    chosen = browser.execute_script(
        "return ['y', 'x', 'smooth'].map((name) => document.querySelector(`select[name=${name}]`).value)"
    )
    assert chosen == ["train_loss", "tokens", "5"]
    assert browser.execute_script(
        "return ['logx', 'logy', 'seeds'].every((name) => document.querySelector(`input[name=${name}]`).checked)"
    )
    assert browser.execute_script(f"return {CHART}._fullLayout.xaxis.type + {CHART}._fullLayout.yaxis.type") == "loglog"
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert browser.execute_script("return document.querySelector('th[aria-sort]').dataset.key") == "val_loss"
    runs = browser.execute_script("return [...document.querySelectorAll('td.tight a')].map((each) => each.innerText)")
    assert runs
    assert all("frozen" in row for row in runs)


# What can be used or is a picture, and has neither text nor a label.
NAMELESS = """
const has = (each) => each.innerText?.trim() || each.getAttribute('aria-label') || each.closest('label');
return [...document.querySelectorAll('button, a[href], select, input, [role=img], [role=region]')]
  .filter((each) => each.offsetParent !== null && !each.closest('.js-plotly-plot') && !has(each))
  .map((each) => each.outerHTML);
"""
# The fonts of text, of a log and of a command.
FAMILIES = """
const made = ['p', 'pre', 'code'].map((tag) => document.body.appendChild(document.createElement(tag)));
const found = made.map((each) => getComputedStyle(each).fontFamily);
for (const each of made) each.remove();
return found;
"""
# Characters that are drawn as what no font has: a noncharacter.
MISSING_GLYPHS = """
const canvas = document.createElement('canvas');
canvas.width = canvas.height = 40;
const drawing = canvas.getContext('2d', { willReadFrequently: true });
const family = arguments[1];
const drawn = (character) => {
  drawing.clearRect(0, 0, 40, 40);
  drawing.font = `28px ${arguments[1]}`;
  drawing.fillText(character, 4, 30);
  return drawing.getImageData(0, 0, 40, 40).data.join();
};
const nothing = new Set([drawn(String.fromCodePoint(0x10FFFE)), drawn(String.fromCodePoint(0x2FE0)), drawn(' ')]);
return [...arguments[0]].filter((character) => character.trim() && nothing.has(drawn(character)));
"""


def test_a_run_and_a_comparison_are_shown_each_chart_with_its_numbers_and_without_an_upload(browser, world):
    server, _, folder = world
    runs = first_runs(folder)
    shown = {
        "study=small": f"{DRAWN} && {CARD}",
        f"run={runs[0]}": DRAWN,
        f"compare={runs[0]}&compare={runs[1]}": f"{DRAWN} === 2",
    }
    texts = []
    for query, is_drawn in shown.items():
        browser.get(f"{server.address}?{query}")
        until(browser, is_drawn, "curves")
        rows = f"{CHART}.parentElement.querySelectorAll('details td.number').length"
        assert browser.execute_script(f"return {rows}") > 0
        titles = browser.execute_script(f"return {BUTTONS}")
        assert "Zoom" in titles
        assert [each for each in titles if re.search("share|cloud|edit|upload|studio|logo|plotly", each, re.I)] == []
        texts.append(browser.execute_script("return document.body.textContent"))
    assert "model.d_model" in texts[1]
    assert "A Processor" in texts[1]
    assert "model.parts.query.moves" in texts[2]
    browser.get(f"{server.address}?study=nothing-like-it")
    until(browser, "document.querySelector('[role=alert]')", "that there is no such study")


def test_the_keyboard_reaches_an_arm_and_everything_has_a_name(browser, world):
    from selenium.webdriver.common.keys import Keys

    server, _, _ = world
    browser.get(f"{server.address}?study=small")
    until(browser, f"{CARD} && {DRAWN}", "all that is made anew when it is known")
    browser.execute_script("document.querySelector('select[name=smooth]').focus()")
    for _ in range(3):
        browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("data-arm")
    before = browser.switch_to.active_element.get_attribute("aria-pressed")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("aria-pressed") != before
    nameless = browser.execute_script(NAMELESS)
    assert nameless == []


def test_planned_runs_that_are_one_run_are_a_line_each(browser, world):
    """A tuning run may serve several sizes."""
    server, _, _ = world
    browser.get(f"{server.address}?study=small")
    rows = "document.querySelectorAll('tbody tr:has(td.column-choose)').length"
    until(browser, f"{CARD} && {rows} === 8", "the table")
    browser.execute_script("""
const ask = window.fetch;
window.fetch = async (path, how) => {
  const answer = await ask(path, how);
  if (!path.startsWith('data/study')) return answer;
  const found = await answer.json();
  if (found.standing) found.standing.rows.push({ ...found.standing.rows[0], run: 'the same at another size' });
  return { status: 200, ok: true, json: async () => found };
};
document.getElementById('language').click();
""")
    until(browser, f"document.documentElement.lang === 'zh-Hans' && {CARD} && {rows} === 9", "a line more")


FOCUSED = "document.activeElement"


def test_the_focus_stays_where_it_was(browser, world):
    server, _, folder = world
    browser.get(server.address)
    link = "document.querySelector('[data-study=small] a')"
    until(browser, link, "the overview")
    browser.execute_script(f"{link}.focus(); window.before = {link}")
    extra = folder / "extra"
    shutil.copytree(next(folder.glob("trained-s0*")), extra)
    try:
        until(browser, f"{link} !== window.before", "a line made anew")
        assert browser.execute_script(f"return {FOCUSED} === {link}")
    finally:
        shutil.rmtree(extra)
    browser.execute_script("document.getElementById('language').focus(); document.getElementById('language').click()")
    until(browser, "document.documentElement.lang === 'zh-Hans'", "Chinese")
    assert browser.execute_script(f"return {FOCUSED}.id") == "language"
    browser.execute_script(
        "const select = document.querySelector('[name=theme]'); select.focus(); select.value = 'dark';"
        "select.dispatchEvent(new Event('change'))"
    )
    until(browser, "document.documentElement.dataset.theme === 'dark'", "the dark page")
    assert browser.execute_script(f"return {FOCUSED}.name") == "theme"


def test_labels_of_axes_and_ends_of_intervals_hide_nothing(browser, world):
    server, _, _ = world
    browser.get(f"{server.address}?study=small")
    until(browser, DRAWN, "curves")
    axis = browser.execute_script(f"return {CHART}.getBoundingClientRect().left + {CHART}._fullLayout.xaxis._offset")
    ends = browser.execute_script(
        f"return [...{CHART}.querySelectorAll('.ytick text')].map((each) => each.getBoundingClientRect().right)"
    )
    assert ends
    assert max(ends) < axis
    until(browser, f"{CARD}?.querySelector('svg .end')", "the ends of the interval")
    boxes = browser.execute_script(
        f"return [...{CARD}.querySelectorAll('svg text')].map((each) => each.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) >= 3
    for one, other in itertools.combinations(boxes, 2):
        is_beside = one["right"] <= other["left"] or other["right"] <= one["left"]
        assert is_beside or one["bottom"] <= other["top"] + 2 or other["bottom"] <= one["top"] + 2


def test_runs_that_are_compared_have_the_colours_of_their_arms_and_differ(browser, world):
    server, _, folder = world
    runs = [f"small/{next(folder.glob(f'{arm}-s{seed}*')).name}" for arm in reversed(ARMS) for seed in (0, 1)]
    browser.get(f"{server.address}?study=small")
    until(browser, CARD, "the study")
    lines = "[...document.querySelectorAll('svg.sample line')].map((each) => each.getAttribute('stroke'))"
    of_arms = dict(zip(ARMS, until(browser, lines, "the legend"), strict=True))
    browser.get(f"{server.address}?{'&'.join(f'compare={run}' for run in runs)}")
    until(browser, f"{DRAWN} === 4", "all curves")
    drawn = browser.execute_script(f"return {CHART}.data.map((each) => [each.line.color, each.line.dash])")
    assert [colour for colour, _ in drawn] == [of_arms[arm] for arm in reversed(ARMS) for _ in (0, 1)]
    assert len({tuple(each) for each in drawn}) == 4
    assert (
        browser.execute_script("return [...document.querySelectorAll('main a')].map((each) => each.text)")[0] == "small"
    )


def test_markup_in_names_is_text(browser, world):
    server, _, folder = world
    hostile = folder / "<img src=x onerror=window.hurt=1>"
    shutil.copytree(next(folder.glob("trained-s0*")), hostile)
    try:
        browser.get(f"{server.address}?study=small")
        until(browser, "document.body.innerText.includes('<img src=x onerror=window.hurt=1>')", "the name as text")
        browser.get(f"{server.address}?run=small/%3Cimg%20src%3Dx%20onerror%3Dwindow.hurt%3D1%3E")
        until(browser, DRAWN, "the curve")
        assert not browser.execute_script("return window.hurt || document.querySelector('img')")
    finally:
        shutil.rmtree(hostile)


HEADING = "document.querySelector('h1')?.innerText"


def test_a_view_that_was_left_before_it_came_does_not_come(browser, world):
    server, _, _ = world
    browser.get(server.address)
    until(browser, "document.querySelector('[data-study=small] a')", "the overview")
    browser.execute_script(HOLD, "data/study")
    browser.execute_script("document.querySelector('[data-study=small] a').click()")
    until(browser, "window.isAnswered", "the answer of the server")
    browser.execute_script("document.querySelector('.brand').click()")
    until(browser, "document.querySelector('main').getAttribute('aria-busy') === 'false'", "the overview")
    browser.execute_script("window.release()")
    time.sleep(1)
    assert browser.execute_script(f"return {HEADING}") == "Overview"
    assert browser.execute_script("return document.querySelector('.state').className") == "state live"


def test_the_language_switches_no_glyph_is_missing_and_the_way_back_leads_to_that_of_then(browser, world):
    server, _, _ = world
    browser.get(server.address)
    until(browser, "document.querySelector('[data-study=small] a')", "the overview")
    browser.execute_script("document.querySelector('[data-study=small] a').click()")
    until(browser, CARD, "the study")
    browser.execute_script("document.getElementById('language').click()")
    until(browser, f"document.documentElement.lang === 'zh-Hans' && {CARD}?.innerText.includes('成立')", "Chinese")
    assert "lang=zh" in browser.current_url
    text = browser.execute_script("return document.body.innerText")
    assert _OWN["hypotheses"][1] in text
    if any(file.is_file() for file in packaged_files()):
        until(browser, "document.fonts.check('16px \"Enclosed Chinese\"', '中')", "the font")
        words = text + "".join(zh for _, zh in _OWN.values())
        characters = "".join(sorted({each for each in words if has_chinese(each)}))
        families = browser.execute_script(FAMILIES)
        assert len(families) == 3
        for family in families:
            assert browser.execute_script(MISSING_GLYPHS, characters, family) == []
    browser.back()
    until(browser, f"document.documentElement.lang === 'en' && {HEADING} === 'Overview'", "the overview in English")
    browser.forward()
    until(browser, f"document.documentElement.lang === 'zh-Hans' && {CARD}", "the study in Chinese")


def test_a_study_that_is_deleted_is_said_not_to_be_there_until_it_is_again(browser, world, tmp_path):
    server, _, folder = world
    browser.get(f"{server.address}?study=sentences")
    until(browser, DRAWN, "the study")
    shutil.move(folder.parent / "sentences", tmp_path / "sentences")
    try:
        until(browser, "document.querySelector('[role=alert]')", "that it is gone")
        assert browser.execute_script("return document.querySelector('.state').innerText") == ""
    finally:
        shutil.move(tmp_path / "sentences", folder.parent / "sentences")
    until(browser, DRAWN, "the study")


def test_chosen_runs_are_part_of_the_address_and_no_more_than_can_be_compared(browser, world):
    server, _, _ = world
    browser.get(f"{server.address}?study=small")
    until(browser, f"{CARD} && document.querySelectorAll('td.column-choose input').length === 8", "the table")
    browser.execute_script(
        "[...document.querySelectorAll('td.column-choose input')].slice(2, 4).map((box) => box.click())"
    )
    browser.refresh()
    link = "[...document.querySelectorAll('main a')].find((each) => each.innerText.startsWith('Compare'))"
    assert until(browser, f"{link}?.innerText", "the link") == "Compare 2 chosen runs"
    until(browser, f"{CARD} && document.querySelectorAll('td.column-choose input:checked').length === 2", "the marks")
    others = "&".join(f"choose=other{number}" for number in range(20))
    browser.get(f"{server.address}?study=small&{others}")
    until(browser, f"{CARD} && document.querySelectorAll('td.column-choose input').length === 8", "the table")
    browser.execute_script("document.querySelector('td.column-choose input').click()")
    assert not browser.execute_script("return document.querySelector('td.column-choose input').checked")
    assert "At most 20 runs" in browser.execute_script("return document.body.innerText")


def test_runs_of_several_studies_and_single_runs_are_chosen_and_compared(browser, world):
    server, _, folder = world
    alone = folder.parent / "alone"
    shutil.copytree(next(folder.glob("trained-s0*")), alone)
    boxes = "document.querySelectorAll('td.column-choose input')"
    try:
        browser.get(server.address)
        until(browser, f"{boxes}.length === 1", "the single run")
        browser.execute_script(f"{boxes}[0].click(); document.querySelector('[data-study=sentences] a').click()")
        until(browser, f"{DRAWN} && {boxes}.length === 4", "the study")
        browser.execute_script(f"{boxes}[0].click()")
        link = "[...document.querySelectorAll('main a')].find((each) => each.innerText === 'Compare 2 chosen runs')"
        until(browser, link, "the link")
        browser.execute_script(f"{link}.click()")
        until(browser, f"{HEADING} === 'Compare' && {DRAWN} === 2", "both curves")
        browser.back()
        none = "[...document.querySelectorAll('button')].find((each) => each.innerText === 'Choose none')"
        until(browser, f"{none} && {boxes}.length === 4", "the study")
        browser.execute_script(f"{none}.click()")
        assert browser.execute_script(f"return [...{boxes}].filter((each) => each.checked).length") == 0
        assert "choose=" not in browser.current_url
    finally:
        shutil.rmtree(alone)


def test_more_pages_than_a_browser_has_connections_are_shown(browser, world):
    server, _, _ = world
    first = browser.current_window_handle
    try:
        for _ in range(8):
            browser.switch_to.new_window("tab")
            browser.get(f"{server.address}?study=small")
            until(browser, f"{CARD} && {DRAWN}", "the study")
    finally:
        for handle in browser.window_handles:
            if handle != first:
                browser.switch_to.window(handle)
                browser.close()
        browser.switch_to.window(first)


def test_nothing_came_from_another_host_and_nothing_was_wrong(browser, world):
    """What all the pages before asked for and complained about."""
    server, _, _ = world
    asked = "".join(entry["message"] for entry in browser.get_log("performance"))
    urls = set(re.findall(r'"url":"((?:https?|wss?|ftp):[^"]+)"', asked))
    assert urls
    assert {url for url in urls if not url.startswith(server.address)} == set()
    wrong = [entry["message"] for entry in browser.get_log("browser") if "404 (Not Found)" not in entry["message"]]
    assert wrong == []


# After the log was read: here other servers answer, and one goes away.
def test_the_page_of_a_run_follows_it_from_its_first_record_to_its_end(browser, tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    directory, rest = running(study, folder, records=0)
    options = "[...document.querySelectorAll('select[name=y] option')].map((each) => each.value).join()"
    config = "[...document.querySelectorAll('details')].find((each) => each.innerText.startsWith('Config'))"
    directory.append_metrics(next(record for record in rest if "val_loss" not in record))
    with served(board_of(study, folder)) as server:
        browser.get(f"{server.address}?run=small/{directory.path.name}")
        until(browser, f"{options} === 'val_loss,train_loss'", "the choice of what is drawn")
        browser.execute_script(CHOOSE, "y", "train_loss")
        until(browser, DRAWN, "training loss")
        browser.execute_script(CHOOSE, "y", "val_loss")
        directory.append_metrics(next(record for record in rest if "val_loss" in record))
        until(browser, f"{DRAWN} && {CHART}.dataset.points === '1'", "validation loss")
        browser.execute_script(f"{config}.open = true")
        directory.log_file.write_text("its last words\n")
        directory.write_status("failed", error="the wrong sort of snow")
        until(browser, "document.querySelector('main .warning')?.innerText === 'the wrong sort of snow'", "the error")
        assert browser.execute_script("return document.querySelector('pre').innerText").strip() == "its last words"
        assert browser.execute_script(f"return {config}.open")
        shutil.rmtree(directory.path)
        until(browser, "document.querySelector('[role=alert]')", "that it is gone")


def test_tuning_losses_are_there_as_text(browser, tmp_path):
    tuning = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3]}, "seeds": [1000]}
    study = small_study(arms=ARMS, seeds=[0], tuning=tuning)
    losses = {0.0005: 2.5, 0.001: 2.25, 0.002: 2.75}
    store_study(study, tmp_path / "small", lambda arm, seed, stage, point: losses[dict(point)[RATE]] if point else 3.0)
    with served(board_of(study, tmp_path / "small")) as server:
        browser.get(f"{server.address}?study=small")
        rows = "[...document.querySelectorAll('[aria-labelledby=section-tuning] details tbody tr')]"
        texts = f"{rows}.map((row) => [...row.children].slice(2).map((cell) => cell.textContent).join())"
        expected = ["0.0005,2.5000,", "0.001,2.2500,chosen", "0.002,2.7500,"] * 2
        until(browser, f"{texts}.length === 6 && {texts}.join(';') === '{';'.join(expected)}'", "the numbers")


def test_a_page_that_was_hidden_is_told_what_it_missed(browser, tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    directory, rest = running(study, folder)
    first = browser.current_window_handle
    with served(board_of(study, folder)) as server:
        browser.get(f"{server.address}?study=small")
        until(browser, f"{CARD} && {DRAWN}", "the page")
        browser.execute_script(f"{CHART}.dataset.kept = '1'")
        browser.execute_script("document.addEventListener('visibilitychange', () => { window.wasHidden = true; })")
        browser.switch_to.new_window("tab")
        for record in rest:
            directory.append_metrics(record)
        time.sleep(3)
        browser.close()
        browser.switch_to.window(first)
        assert browser.execute_script("return window.wasHidden")
        until(browser, "document.querySelector('tr:has(.state-running)')?.innerText.includes('40/40')", "the last step")
        assert browser.execute_script(f"return {CHART}.dataset.kept") == "1"  # nothing was made anew


def test_a_page_follows_a_server_that_was_started_again(browser, tmp_path):
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, all_but_one)
    with served(board_of(study, folder)) as first:
        browser.get(f"{first.address}?study=small")
        until(browser, f"{CARD} && {DRAWN}", "the page")
        directory, rest = running(study, folder)
        for record in rest[:4]:  # so that its versions are beyond those that the next server begins with
            directory.append_metrics(record)
            time.sleep(0.4)
        until(browser, "document.querySelector('.state-running')", "a running run")
    until(browser, "document.querySelector('.state.lost')", "that the server is gone")
    with served(board_of(study, folder), port=first.port):
        until(browser, "document.querySelector('.state.live')", "the server that is there again")
        until(browser, DRAWN, "curves")
        for record in rest[4:]:
            directory.append_metrics(record)
        until(browser, "document.querySelector('tr:has(.state-running)')?.innerText.includes('40/40')", "the last step")
        directory.write_status("failed", error="the wrong sort of snow")
        until(browser, "document.body.innerText.includes('the wrong sort of snow')", "the error line")
