"""The page of a comparison in a real browser: every control clicked, and by keyboard alone.

One headless Chromium for all checks. Where none is installed they are skipped, and say how to
install it; ``.ci/run`` installs it.
"""

import base64
import csv
import json
import shutil
import time
from dataclasses import replace
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gnnbench.records import Card
from gnnbench.report.html import write_html
from gnnbench.report.kept_html import write_kept
from gnnbench.report.results.schema import dump_json, to_document
from tests.report.example_comparison import every_status
from tests.report.test_kept_page import make_store

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not CHROMIUM or not DRIVER,
    reason="no Chromium is installed: apt-get install -y chromium chromium-driver",
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-color-profile=srgb",
)  # fmt: skip
DECIDE = ["strategy", "epoch", "speed", "host-device", "peak device", "test accuracy"]
DECIDE += ["equal to reference"]


def make_example():
    """Every status; bytes between devices fall while epochs get longer, and have fewer digits, so
    that orders by number, by text and by time differ."""
    found = every_status()
    runs = [
        replace(
            run,
            metrics={
                name: replace(metric, value=metric.value / (1 + 39 * number))
                if name == "device_to_device_bytes"
                else metric
                for name, metric in run.metrics.items()
            },
        )
        for number, run in enumerate(found.runs)
    ]
    card = Card(("Algorithm 1 " * 20,), ("shares",), (), ("`gnnbench reproduce hyscale-table6`",))
    return replace(found, runs=tuple(runs), cards={"hyscale": card, "hongtu": card})


class Page:
    def __init__(self, driver, address):
        self.driver = driver
        self.address = address

    def open(self, fragment=""):
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}{fragment}")

    def run(self, script, *given):
        return self.driver.execute_script(script, *given)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def press(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    @property
    def fragment(self):
        return self.run("return location.hash")

    @property
    def labels(self):
        return self.run(
            "return [...document.querySelectorAll('.results')[0].tBodies[0].rows]"
            ".map((row) => row.cells[0].textContent)"
        )

    @property
    def heads(self):
        return self.run(
            "return [...document.querySelectorAll('.results')[0].tHead.rows[0].cells]"
            ".filter((cell) => cell.offsetWidth > 0)"
            ".map((cell) => cell.querySelector('button').firstChild.textContent.trim())"
        )

    @property
    def sorts(self):
        return self.run(
            "return Object.fromEntries([...document.querySelectorAll('.results')[0]"
            ".tHead.rows[0].cells].map((cell) => [cell.dataset.key, cell.ariaSort]))"
        )

    def resize(self, width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder / "got")})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(browser, folder):
    """The page, opened anew; whatever a test asks of it must raise nothing."""
    path = folder / "page.html"
    if not path.exists():
        write_html(make_example(), path)
    found = Page(browser, path.as_uri())
    found.resize(1280)
    found.open()
    yield found
    assert browser.get_log("browser") == []


def test_the_answer_and_the_columns_that_decide_come_first(page):
    assert page.heads == DECIDE
    tops = page.run(
        "return ['.answer', '.results', 'figure'].map((each) =>"
        "document.querySelector(each).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    assert page.fragment == ""


#: What ``aria-sort`` is after each press of a heading, and what the address then says.
ORDERS = {"ascending": "up", "descending": "down", "none": ""}


def test_every_column_sorts_up_down_and_back(page):
    """All clicks in one script: what is seen after each is handed back."""
    page.run("document.querySelector('[data-columns=all]').click()")
    before = page.labels
    assert before == ["hongtu", "hongtu·vanilla", "dgl", "pyg", "broken"]
    keys = list(page.sorts)
    assert len(keys) > 10
    for key in keys:
        seen = page.run(
            "const heads = [...document.querySelectorAll('.results')[0].tHead.rows[0].cells];"
            "return arguments[1].map(() => {"
            "heads.find((head) => head.dataset.key === arguments[0]).firstChild.click();"
            "return [Object.fromEntries(heads.map((head) => [head.dataset.key, head.ariaSort])),"
            "location.hash]; })",
            key,
            list(ORDERS),
        )
        for (order, word), (sorts, fragment) in zip(ORDERS.items(), seen, strict=True):
            assert sorts == {each: order if each == key else "none" for each in keys}
            assert (f"sort={key}.{word}" in fragment) is bool(word)
        assert page.labels == before


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE])
def test_a_column_sorts_by_keyboard_and_keeps_the_focus(page, key):
    button = page.find("th[data-key='epoch-modelled'] button")
    for order, word in ORDERS.items():
        button.send_keys(key)
        assert page.run("return document.activeElement === arguments[0]", button)
        assert page.sorts["epoch-modelled"] == order
        assert page.fragment == (word and f"#sort=epoch-modelled.{word}")
    link = page.find("tr[id='full-graph.hongtu'] a")
    link.send_keys(Keys.ENTER)
    assert page.run("return document.activeElement === arguments[0]", link)


@pytest.mark.parametrize(
    ("column", "up", "down"),
    [
        ("epoch-modelled", ["hongtu", "hongtu·vanilla"], ["hongtu·vanilla", "hongtu"]),
        ("device-device-modelled", ["hongtu·vanilla", "hongtu"], ["hongtu", "hongtu·vanilla"]),
    ],
)
def test_numbers_are_sorted_as_numbers_and_failures_stay_below(page, column, up, down):
    for word, labels in (("up", up), ("down", down)):
        page.open(f"#sort={column}.{word}")
        assert page.labels == [*labels, "dgl", "pyg", "broken"]
    page.open("#sort=strategy.up")
    assert page.labels == sorted(page.labels)


def test_columns_are_chosen_and_kept_in_the_address(page):
    page.find("summary").send_keys(Keys.ENTER)
    page.find("[data-column=energy-modelled], [data-column=loss]").send_keys(Keys.SPACE)
    assert page.heads == [*DECIDE, "loss"]
    page.find("[data-column='epoch-modelled']").click()
    assert page.heads == ["strategy", *DECIDE[2:], "loss"]
    kept = page.fragment
    page.open(kept)
    assert page.heads == ["strategy", *DECIDE[2:], "loss"]
    assert not page.find("[data-column='epoch-modelled']").is_selected()
    # A run that failed has one cell, as wide as all others together.
    spans = page.run(
        "return [...document.querySelectorAll('.results .reason')].map((cell) => cell.colSpan)"
    )
    assert spans == [len(DECIDE) - 1] * 3
    page.find("summary").click()
    page.find("[data-columns=all]").click()
    assert set(page.heads) > {*DECIDE, "loss", "edges/s", "reused", "trained on"}
    page.find("[data-columns=deciding]").click()
    assert page.heads == DECIDE
    assert page.fragment == ""


def test_an_address_leads_to_a_row_with_its_order_and_columns(page):
    name = quote("mini-batch.hyscale")
    page.open(f"#row={name}&sort=epoch-modelled.down&columns=epoch-modelled,loss")
    assert page.heads == ["strategy", "epoch", "loss"]
    assert page.labels[:2] == ["hongtu·vanilla", "hongtu"]
    assert page.run("return [...document.querySelectorAll('.chosen')].map((row) => row.id)") == [
        "mini-batch.hyscale"
    ]
    assert page.run("return document.activeElement.textContent") == "hyscale"
    top = page.run("return document.querySelector('.chosen').getBoundingClientRect().top")
    assert 0 <= top <= 900
    # Another row is chosen by its link; the address says so and keeps the rest.
    page.find("tr[id='full-graph.hongtu·vanilla'] a").send_keys(Keys.ENTER)
    assert page.fragment == (
        f"#row={quote('full-graph.hongtu·vanilla')}&sort=epoch-modelled.down"
        "&columns=epoch-modelled,loss"
    )
    page.run("location.hash = '#row=full-graph.dgl'")
    assert wait(lambda: page.find(".chosen").get_attribute("id") == "full-graph.dgl")


@pytest.mark.parametrize(
    "fragment", ["#sort=nothing.up", "#row=%E0%A4%A", "#columns=x", "#&&==", "#row=data", "#a"]
)
def test_an_address_that_means_nothing_does_no_harm(page, fragment):
    page.open(fragment)
    assert page.labels[0] == "hongtu"
    assert page.run("return document.documentElement.className") == "alive"
    assert page.run("return document.querySelectorAll('.chosen').length") == 0


def wait(happened, seconds=120.0):
    """Whether it happens; the time protects from waiting for ever, on a busy machine too."""
    end = time.monotonic() + seconds
    while not (done := happened()) and time.monotonic() < end:
        time.sleep(0.02)
    return done


def download(page, folder, button):
    got = folder / "got"
    before = set(got.glob("*"))
    button.send_keys(Keys.ENTER)

    def arrived():
        new = set(got.glob("*")) - before
        # While it is written it has another name.
        whole = not any(p.name.startswith(".") or p.suffix == ".crdownload" for p in new)
        return list(new) if whole else []

    files = wait(arrived)
    assert len(files) == 1
    return files[0]


def test_runs_are_downloaded_as_the_result_file_and_as_csv(page, folder):
    document = to_document(make_example())
    got = download(page, folder, page.find("[data-save=json]"))
    assert got.read_text(encoding="utf-8") == dump_json(document)
    got = download(page, folder, page.find("[data-save=csv]"))
    with got.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["label"] for row in rows] == [run.label for run in document.runs]
    assert float(rows[0]["epoch_time"]) == document.runs[0].metrics["epoch_time"].value
    assert "1,161,044,380 bytes" in rows[2]["reason"]


def test_every_figure_is_downloaded_as_it_is_seen(page, folder):
    figures = page.driver.find_elements(By.CSS_SELECTOR, "figure[data-name]")
    assert len(figures) == 15
    names = {figure.get_attribute("data-name") for figure in figures}
    assert len(names) == 15
    for figure in figures[:3]:
        button = figure.find_element(By.CSS_SELECTOR, "[data-save=svg]")
        drawing = ElementTree.parse(download(page, folder, button)).getroot()
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        shapes = [each.attrib.get("style", "") for each in drawing.iter() if "class" in each.attrib]
        assert shapes
        assert all("fill:" in style for style in shapes)
        assert not any("var(" in style for style in shapes)
    # The critical path and its legend: the page, and two stages.
    button = figures[1].find_element(By.CSS_SELECTOR, "[data-save=png]")
    width, colours = see(page, download(page, folder, button))
    assert width == 2 * 900
    assert {(255, 255, 255), (0xA0, 0x10, 0x10)} <= colours


def see(page, path):
    """The width of a PNG file in pixels, and its colours, as the browser decodes them."""
    width, dots = page.driver.execute_async_script(
        "const done = arguments[1], picture = new Image();"
        "picture.src = `data:image/png;base64,${arguments[0]}`;"
        "picture.decode().then(() => {"
        "const canvas = new OffscreenCanvas(picture.width, picture.height);"
        "const context = canvas.getContext('2d');"
        "context.drawImage(picture, 0, 0);"
        "const dots = context.getImageData(0, 0, picture.width, picture.height).data;"
        "const seen = new Set();"
        "for (let i = 0; i < dots.length; i += 4) seen.add(dots.slice(i, i + 3).join());"
        "done([picture.width, [...seen]]); });",
        base64.b64encode(path.read_bytes()).decode(),
    )
    return width, {tuple(map(int, dot.split(","))) for dot in dots}


#: The texts of charts and the cells of results that a reader cannot see whole, and how far the page
#: itself is too wide.
CUT = """
const wide = document.documentElement.clientWidth;
const shown = [...document.querySelectorAll(".chart text, .results td, .results th, h1, h2, p")];
const cut = shown.filter((each) => each.checkVisibility()).filter((each) => {
  const { left, right, width } = each.getBoundingClientRect();
  return width > 0 && (left < 0 || right > wide);
});
const over = document.documentElement.scrollWidth - wide;
return [over, cut.map((each) => each.textContent), cut.length < shown.length];
"""


@pytest.mark.parametrize(("width", "media"), [(390, ""), (1280, ""), (720, "print")])
def test_nothing_is_cut_on_a_phone_on_a_desk_or_on_paper(page, width, media):
    """Neither the deciding columns nor any label, nor what all columns make of a phone's cards."""
    page.resize(width)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media})
    page.open("#columns=" + ",".join(page.sorts) if width == 390 else "")
    found = page.run(CUT)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert found == [0, [], True]


def test_a_filter_leaves_its_lines_and_points(browser, folder):
    """The address keeps it; an answer that is not about one strategy stays."""
    path = folder / "kept.html"
    write_kept(folder, make_store(), (), path)
    page = Page(browser, path.as_uri())
    for width in (1280, 390):
        page.resize(width)
        page.open()
        assert page.run(CUT) == [0, [], True]
    count = (
        "return ['.results tbody tr', 'circle'].map((each) =>"
        "[...document.querySelectorAll(each)].filter((one) => one.checkVisibility()).length)"
    )
    assert page.run(count) == [6, 10]
    page.find("[data-filter=strategy]").send_keys("pyg")
    assert page.run(count) == [3, 4]
    assert page.run("return document.querySelector('[role=status]').textContent") == "3 of 6 rows."
    assert page.fragment == "#strategy=pyg"
    page.open("#strategy=pyg&dataset=cora&hidden=9")
    assert page.run(count) == [2, 4]
    assert browser.get_log("browser") == []


def test_all_controls_are_reached_by_tab(page):
    page.find("summary").send_keys(Keys.ENTER)
    wanted = page.run(
        "return [...document.querySelectorAll('button, input, summary, .results a')]"
        ".filter((each) => each.checkVisibility()).length"
    )
    page.run("document.activeElement.blur(); document.body.focus()")
    page.run(
        "window.seen = new Set();"
        "addEventListener('focusin', (event) => {"
        "if (event.target.matches('button, input, summary, .results a'))"
        "seen.add(event.target); })"
    )
    for _ in range(6):
        page.press(*[Keys.TAB] * 20)
    assert page.run("return seen.size") == wanted


def test_nothing_is_asked_of_a_network(page):
    """Of all that the browser did since it began; what the page is told to fetch is refused."""
    messages = [
        json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")
    ]
    asked = {
        message["params"]["request"]["url"].split(":")[0]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert "file" in asked
    assert asked <= {"file", "about", "data", "blob", "chrome", "chrome-untrusted"}
    refused = page.driver.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));"
        "new Image().src = 'http://127.0.0.1:9/a.png';"
    )
    assert refused == "img-src"
    page.driver.get_log("browser")
