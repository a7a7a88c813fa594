"""The page before a real service with 10,000 jobs: it stays small, its counts are totals, the server does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, Request, expect
from serving import owners_link, serve, users_link

from gpuwise.api.app import create_app
from gpuwise.core.job.request import JobRequest
from gpuwise.service.live.up import LocalDeployment, Settings

JOBS, TASKS, DEVICES = 10_000, 100, 2
VIEWS = ("#/", "#/cluster", "#/queue", "#/ended", "#/events", "#/job/1", "#/job/5000", "#/array/9900")
MAX_ELEMENTS = 3000
MAX_ANSWER_BYTES = 100_000
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """ada has 9,899 jobs and an array, bob one job in another queue."""
    deployment = LocalDeployment(Settings(state=tmp_path_factory.mktemp("state"), policy="fifo", devices=DEVICES))
    submit = deployment.controller.submit
    single = [_request(f"bert-{number}") for number in range(JOBS - TASKS - 1)]
    submit([*single, _request("sweep", array=tuple(range(TASKS)))], "ada").result(120)
    submit([_request("resnet", queue="night")], "bob").result(30)
    yield deployment
    left = [record.uid for record in deployment.controller.live_records()]
    deployment.controller.cancel(left, "the test's end").result(120)
    deployment.close()


@pytest.fixture(scope="module")
def address(deployment: LocalDeployment) -> Iterator[str]:
    yield from serve(create_app(deployment.service))


@pytest.fixture
def page(address: str, deployment: LocalDeployment, open_page: Open) -> Page:
    page = open_page(owners_link(address, deployment))
    expect(page.get_by_role("heading", name="Waiting (9,998)")).to_be_visible()
    return page


def _request(name: str, **more: object) -> JobRequest:
    return JobRequest(command=("sleep", "600"), name=name, duration_s=600.0, **more)  # type: ignore[arg-type]


def _elements(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def _rows(page: Page) -> list[str]:
    return page.get_by_role("table", name="Waiting").locator("tbody th b").all_inner_texts()


def _column(page: Page, name: str) -> None:
    page.get_by_role("table", name="Waiting").get_by_role("button", name=name, exact=True).click()


def test_10000_jobs_are_few_elements_and_counts_are_totals(page: Page, address: str) -> None:
    for view in VIEWS:
        page.goto(f"{address}/{view}")
        expect(page.locator("dl").first).to_contain_text("running2waiting9,998")
        expect(page.get_by_text("Loading …")).to_have_count(0)
        assert _elements(page) < MAX_ELEMENTS, view
    page.goto(f"{address}/#/queue")
    expect(page.get_by_role("heading", name="Running (2)")).to_be_visible()
    expect(page.get_by_text(f"rows 1 to 25 of {JOBS - DEVICES - TASKS + 1:,}")).to_be_visible()


def test_elements_stay_few_while_rows_are_turned_sorted_searched_and_opened(page: Page, address: str) -> None:
    page.goto(f"{address}/#/queue")
    page.get_by_role("button", name="Last").click()
    expect(page.get_by_text(f"rows 9,876 to {JOBS - DEVICES - TASKS + 1:,}")).to_be_visible()
    assert _elements(page) < MAX_ELEMENTS
    _column(page, "Job")
    expect(page.get_by_text("rows 1 to 25")).to_be_visible()
    page.mouse.wheel(0, 100_000)
    page.get_by_label("Search").fill("sweep")
    page.get_by_role("button", name="Tasks of array 9900").click()
    expect(page.get_by_text("rows 1 to 25 of 101")).to_be_visible()
    assert _elements(page) < MAX_ELEMENTS


def test_another_users_jobs_have_no_details_and_cause_no_errors(
    address: str, deployment: LocalDeployment, open_page: Open
) -> None:
    page = open_page(users_link(address, deployment, "eve"))
    expect(page.get_by_role("heading", name="Waiting (9,998)")).to_be_visible()
    expect(page.get_by_role("table", name="Waiting").locator("tbody tr").first).to_contain_text("shown to its user")
    page.goto(f"{address}/#/job/1")
    expect(page.locator("main")).to_contain_text("are for its user and administrators")
    for heading in ("Log", "Attempts"):
        expect(page.get_by_role("heading", name=heading)).to_have_count(0)
    expect(page.locator("[data-action]")).to_have_count(0)
    page.goto(f"{address}/#/array/9900")
    expect(page.get_by_role("heading", name="Array 9900")).to_be_visible()
    expect(page.get_by_role("heading", name="Waiting (100)")).to_be_visible()
    expect(page.locator("[data-action]")).to_have_count(0)
    assert _elements(page) < MAX_ELEMENTS


def test_what_the_browser_receives_does_not_grow_with_the_queue(page: Page) -> None:
    sizes: dict[str, int] = {}

    def note(request: Request) -> None:
        if "/v1/" in request.url and "/events" not in request.url:
            sizes[request.url] = request.sizes()["responseBodySize"]

    page.on("requestfinished", note)
    with page.expect_request_finished(lambda request: "/tables/waiting" in request.url):
        pass
    page.get_by_role("button", name="Next").first.click()
    expect(page.get_by_text("rows 11 to 20 of")).to_be_visible()
    assert sizes
    assert max(sizes.values()) < MAX_ANSWER_BYTES, sizes


def test_search_finds_jobs_on_every_page(page: Page) -> None:
    search = page.get_by_label("Search")
    for text, found in [("bert-9898", ["9899"]), ("user:bob", ["9901"]), ("NIGHT", ["9901"]), ("id:9899", ["9899"])]:
        search.fill(text)
        expect(page.get_by_role("heading", name="Waiting (1 of 9,998)")).to_be_visible()
        expect(page.get_by_role("table", name="Waiting").locator("tbody th b")).to_have_text(found)
    expect(page.get_by_text("No job here matches the search.")).to_be_visible()
    search.fill("status:running")
    expect(page.get_by_role("heading", name="Waiting (0 of 9,998)")).to_be_visible()
    expect(page.get_by_role("heading", name="Running (2)")).to_be_visible()
    search.fill("")
    expect(page.get_by_role("heading", name="Waiting (9,998)")).to_be_visible()


def test_columns_sort_all_jobs_up_down_and_not(page: Page) -> None:
    table = page.get_by_role("table", name="Waiting")
    heading = table.locator("th", has=page.get_by_role("button", name="User", exact=True))
    first = table.locator("tbody tr").first
    expect(heading).to_have_attribute("aria-sort", "none")
    _column(page, "User")
    expect(heading).to_have_attribute("aria-sort", "ascending")
    expect(first).to_contain_text("ada")
    _column(page, "User")
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(first).to_contain_text("bob")
    expect(first).to_contain_text("resnet")
    _column(page, "User")
    expect(heading).to_have_attribute("aria-sort", "none")
    expect(first.locator("b")).to_have_text("3")


def test_an_array_is_one_row_that_opens_by_keyboard(page: Page) -> None:
    page.get_by_label("Search").fill("sweep")
    expect(page.get_by_role("heading", name="Waiting (100 of 9,998)")).to_be_visible()
    array = page.get_by_role("button", name="Tasks of array 9900")
    expect(array).to_have_attribute("aria-expanded", "false")
    assert _rows(page) == ["9900"]
    expect(page.get_by_role("table", name="Waiting").locator("tbody tr")).to_contain_text("100 pending")
    array.press("Enter")
    expect(array).to_have_attribute("aria-expanded", "true")
    expect(array).to_be_focused()
    expect(page.get_by_text("rows 1 to 10 of 101")).to_be_visible()
    assert _rows(page) == ["9900", *(f"9900-{index}" for index in range(9))]
    page.get_by_role("button", name="Last").press("Enter")
    expect(page.get_by_text("rows 101 to 101 of 101")).to_be_visible()
    assert _rows(page) == ["9900-99"]


def test_an_array_counts_all_its_tasks_wherever_they_are(page: Page, deployment: LocalDeployment) -> None:
    deployment.controller.cancel([f"9900-{index}" for index in (0, 1, 2)], "ada").result(30)
    page.get_by_label("Search").fill("sweep")
    waiting, ended = (page.get_by_role("table", name=name).locator("tbody tr") for name in ("Waiting", "ended"))
    for rows in (waiting, ended):
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("97 pending3 cancelled")
    expect(page.get_by_role("heading", name="Ended (3)")).to_be_visible()


def test_an_array_has_a_page_and_its_tasks_are_acted_on_together(
    address: str, deployment: LocalDeployment, open_page: Open
) -> None:
    request = _request("finetune", array=tuple(range(30)))
    uid = deployment.controller.submit([request], "ada").result(30)[0].uid.partition("-")[0]
    deployment.controller.cancel([f"{uid}-{index}" for index in (0, 1, 2)], "ada").result(30)
    page = open_page(owners_link(address, deployment))
    page.get_by_label("Search").fill("finetune")
    page.get_by_role("link", name=f"{uid} finetune").first.click()
    expect(page.get_by_role("heading", name=f"Array {uid} finetune")).to_be_visible()
    expect(page).to_have_title(f"array {uid} · gpuwise")
    page.get_by_label("Search").fill("status:pending")
    expect(page.get_by_role("heading", name="Waiting (27)")).to_be_visible()
    expect(page.get_by_role("heading", name="Ended (0)")).to_be_visible()
    page.get_by_label("Search").fill("")
    expect(page.get_by_role("heading", name="Ended (3)")).to_be_visible()

    page.get_by_role("button", name="Suspend all").click()
    expect(page.get_by_role("button", name="Suspend all")).to_have_count(0)
    expect(page.get_by_role("table", name="Waiting").locator("tbody tr").first).to_contain_text("on hold")
    page.get_by_role("button", name="Resume all").click()
    expect(page.get_by_role("button", name="Suspend all")).to_be_visible()
    page.get_by_role("button", name="Cancel all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"all tasks of array {uid}")
    dialog.get_by_role("button", name="Cancel all").click()
    expect(page.get_by_role("heading", name="Ended (30)")).to_be_visible()
    expect(page.locator("[data-action]")).to_have_count(0)
    expect(page.locator("dl .states")).to_have_text("30 cancelled")
    assert not [record for record in deployment.controller.live_records() if record.uid.startswith(f"{uid}-")]
    assert _elements(page) < MAX_ELEMENTS
