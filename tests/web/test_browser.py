"""The page in a real browser, before a server that says what the test wants."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from api_double import TOKEN, Double, a_device, a_job, an_attempt, ended, waiting
from playwright.sync_api import Error, Page, expect

from gpuwise.api.schema import answers
from gpuwise.api.schema.tables import Array, Table, TableRow

Open = Callable[..., Page]
HASHES = ["#/", "#/cluster", "#/queue", "#/ended", "#/events", "#/job/1"]


def row(page: Page, caption: str, job: str) -> str:
    """The words of a job's row in a table."""
    found = (
        page.get_by_role("table", name=caption).get_by_role("row").filter(has=page.locator(f"a[href='#/job/{job}']"))
    )
    expect(found).to_be_visible()
    return re.sub(r"\s+", " ", found.inner_text())


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_the_double_speaks_as_the_api_does(double: Double) -> None:
    double.put(a_job("1"), waiting("2"), waiting("5-0", array_index=0))
    for model, said in [
        (answers.Job, a_job("1")), (answers.QueuedJob, double.queued()[0]), (answers.Node, double.nodes()[0]),
        (answers.Device, a_device(0)), (answers.Attempt, an_attempt(1)), (answers.Status, double.status()),
        (Table, double.table("waiting", 10)), (Array, double.array("5")),
        (TableRow, double.table("waiting", 10)["rows"][0]),
    ]:  # fmt: skip
        model.model_validate(said)
        assert said.keys() == model.model_fields.keys(), model


def test_the_queue_says_how_jobs_do_and_why_they_wait(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1", name="resnet", loss=0.1234567, step=40.0), waiting("2", name="bert", gpu_frac=0.5))
    double.why["2"] = "needs 50% of one GPU; no GPU has that much left that it may share"
    page = open_page(address)
    running = row(page, "Running jobs", "1")
    for words in (
        "1 resnet",
        "running",
        "box:0",
        "40 % · step 40 of 100",
        "0.1235",
        "1,235 samples/s",
        "1m",
    ):
        assert words in running
    assert re.search(r"in 5m\d\ds", running)
    queued = row(page, "Waiting jobs", "2")
    for words in ("2 bert", "pending", "50 % of 1 device", "5m00s", double.why["2"]):
        assert words in queued
    bar = page.get_by_role("progressbar", name="progress of job 1")
    assert float(bar.get_attribute("value") or "nan") == pytest.approx(0.4)


def test_ended_jobs_have_their_numbers_last_ended_first(open_page: Open, address: str, double: Double) -> None:
    now = time.time()
    done = ended("2", ended_at=now - 20, submitted_at=now - 120, started_at=now - 110, gpu_s=50.0, preemptions=2)
    double.put(ended("1", status="failed", ended_at=now - 5, why_ended="exit code 3", loss=None), done)
    page = open_page(f"{address}/#/ended")
    text = row(page, "Jobs that have ended", "2")
    for words in ("succeeded", "0.5", "10s", "1m40s", "50s", "2 ×"):
        assert words in text
    assert "exit code 3" in row(page, "Jobs that have ended", "1")
    assert page.locator("tbody a.job b").all_inner_texts() == ["1", "2"]


def test_devices_show_who_is_on_them_and_what_is_free(open_page: Open, address: str, double: Double) -> None:
    double.devices = [a_device(0, ("1", "resnet", 0.5), (None, "", 0.25)), a_device(1, lost=True, free_frac=0.0)]
    page = open_page(f"{address}/#/cluster")
    first, second = page.get_by_role("article").first, page.get_by_role("article").last
    expect(first).to_contain_text("1 resnet50 %a job of bob25 %free25 %75 % busy · 1 GiB of 8 GiB used")
    expect(second).to_contain_text("lost")
    assert [part.get_attribute("width") for part in first.locator("rect").all()] == ["50%", "25%"]


@pytest.mark.parametrize("stand_in", [True, False])
def test_cpu_stand_ins_are_never_taken_for_gpus(open_page: Open, address: str, double: Double, stand_in: bool) -> None:
    double.stand_in = stand_in
    page = open_page(address)
    expect(page.get_by_role("heading", name="box")).to_contain_text("cpu-core" if stand_in else "A100")
    expect(page.get_by_text("CPU stand-ins, not GPUs")).to_have_count(int(stand_in))


def test_a_job_shows_all_that_is_known_of_it(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("7-2", command=["python", "train.py", "--lr", "0.1"], after=["3"], array_index=2, attempts=2))
    double.attempts["7-2"] = [
        an_attempt(1, outcome="suspended", exit_code=75, ended_at=time.time() - 30, cpu_s=12.5),
        an_attempt(2, placement="box:1", peak_memory_bytes=2.0**20),
    ]
    double.why["7-2"] = "does not wait: it is running"
    page = open_page(f"{address}/#/job/7-2")
    expect(page.get_by_role("heading", name="Job 7-2")).to_be_visible()
    main = page.locator("main")
    for words in (
        "python train.py --lr 0.1",
        "declared by its user",
        "does not wait",
        "array7, index 2",
        "suspended75",
        "1 MiB",
    ):
        expect(main).to_contain_text(words)
    assert page.get_by_role("link", name="3", exact=True).get_attribute("href") == "#/job/3"
    assert page.title() == "job 7-2 · gpuwise"


def test_a_job_that_is_not_there(open_page: Open, address: str, complaints: list[str]) -> None:
    page = open_page(f"{address}/#/job/99")
    expect(page.locator("main")).to_contain_text("there is no job '99'")
    assert complaints
    assert all("404" in text for text in complaints)
    complaints.clear()


def test_long_lists_are_few_elements(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1", attempts=900, after=[str(number) for number in range(2, 1000)]))
    double.attempts["1"] = [an_attempt(number, detail="preempted", exit_code=75) for number in range(1, 901)]
    double.logs["1"] = b"loss: 0.5\n" * 100_000
    double.devices = [a_device(index, *[("1", "resnet", 0.01)] * 100) for index in range(16)]
    double.events = [
        {"seq": seq, "at": time.time(), "kind": "JobStarted", "job": "1", "text": f"event {seq}"}
        for seq in range(1, 3001)
    ]
    page = open_page(address)
    for view, words in [
        ("#/job/1", "Attempts (900)The last 50."), ("#/job/1", "and 978 others"), ("#/job/1", "loss: 0.5"),
        ("#/job/1", "event 3000"), ("#/cluster", "94 others94 %"), ("#/events", "event 3000"), ("#/", "event 3000"),
    ]:  # fmt: skip
        page.goto(f"{address}/{view}")
        expect(page.locator("main")).to_contain_text(words)
        assert page.evaluate("document.querySelectorAll('*').length") < 3000, view


def test_a_device_time_does_not_count_what_is_not_known_yet(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1", gpu_s=60.0), ended("2", gpu_s=60.0))
    page = open_page(f"{address}/#/job/1")
    expect(page.locator("dl", has_text="device time")).to_contain_text("1m00snot counting its present devices")
    page.goto(f"{address}/#/job/2")
    expect(page.locator("dl", has_text="device time")).to_contain_text("device time1m00ssuspended")


def test_an_empty_service_says_how_to_submit_a_job(open_page: Open, address: str, double: Double) -> None:
    page = open_page(address)
    expect(page.locator("main")).to_contain_text(
        "No job runs. Submit one: gpuwise submit --duration 10m -- python train.py"
    )
    double.put(waiting("1"))
    double.happens("1", "was submitted")
    expect(page.get_by_role("heading", name="Waiting (1)")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("Submit one")


# -- what changes -----------------------------------------------------------------------------------------------------


def test_news_arrive_without_reloading(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    page = open_page(address)
    assert "step 40 of" in row(page, "Running jobs", "1")
    link = page.locator("a[href='#/job/1']").last.element_handle()
    double.put(a_job("1", step=41.0), waiting("2"))
    double.happens("2", "was submitted")
    assert "pending" in row(page, "Waiting jobs", "2")
    expect(page.locator(".feed li").first).to_contain_text("job 2 was submitted")
    assert "step 41 of" in row(page, "Running jobs", "1")
    assert link.evaluate("element => element.isConnected"), "what did not change was made anew"


def test_progress_is_seen_though_it_is_no_event(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    page = open_page(address)
    expect(page.get_by_text("step 40 of 100")).to_be_visible()
    double.put(a_job("1", step=50.0))
    expect(page.get_by_text("step 50 of 100")).to_be_visible()


def test_many_events_do_not_mean_many_requests(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    page = open_page(address)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    double.asked.clear()
    begun = time.monotonic()
    for number in range(25):
        double.happens("1", f"event {number}")
        page.wait_for_timeout(100)
    expect(page.get_by_text("event 24")).to_be_visible()
    assert 1 <= double.asked.count("GET /v1/tables/waiting") <= 1 + time.monotonic() - begun


def test_after_a_break_it_goes_on_after_the_last_event(open_page: Open, address: str, double: Double) -> None:
    double.happens("1", "begins")
    page = open_page(f"{address}/#/events")
    expect(page.get_by_text("begins")).to_be_visible()
    double.hang_up()
    double.happens("1", "goes on")
    expect(page.get_by_text("goes on")).to_be_visible()
    assert double.streams == [None, "1"]
    assert page.locator(".feed li").count() == 2


def test_a_lost_connection_is_told_and_made_again(
    open_page: Open, address: str, double: Double, complaints: list[str]
) -> None:
    double.put(a_job("1"))
    page = open_page(address)
    expect(page.get_by_text("step 40 of 100")).to_be_visible()
    page.context.set_offline(True)
    double.hang_up()
    expect(page.get_by_role("status")).to_contain_text("connection to the server is lost")
    expect(page.get_by_role("status")).to_contain_text("old")
    page.context.set_offline(False)
    expect(page.get_by_role("status")).to_be_hidden()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    complaints.clear()


def test_trouble_of_the_server_is_told(open_page: Open, address: str, double: Double) -> None:
    double.trouble = "the disk is full"
    expect(open_page(address).get_by_role("status")).to_have_text("the disk is full")


# -- logging in -------------------------------------------------------------------------------------------------------


def test_without_a_token_there_is_a_form(open_page: Open, address: str, double: Double, complaints: list[str]) -> None:
    double.known = False
    double.put(a_job("1", name="secret"))
    page = open_page(address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This token is not valid.")
    assert double.asked == ["GET /v1/status", "POST /v1/session"], "a stranger asks no more than needed"
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("secret")
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert "secret" not in page.content()
    assert all("401" in text for text in complaints)
    complaints.clear()


def test_a_session_that_ends_asks_for_the_token(
    open_page: Open, address: str, double: Double, complaints: list[str]
) -> None:
    page = open_page(address)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.evaluate("localStorage.setItem('gpuwise.session', 'expired')")
    double.known = False
    double.happens("1", "something")
    expect(page.get_by_role("status")).to_contain_text("session has ended")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("localStorage.length") == 0, "a session that was refused is kept"
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    complaints.clear()


# -- one job ----------------------------------------------------------------------------------------------------------


def test_the_log_grows(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    double.logs["1"] = b"epoch 1\n"
    page = open_page(f"{address}/#/job/1")
    log = page.get_by_label("log of job 1")
    expect(log).to_have_text("epoch 1\n")
    euro = "epoch 2: 3 €\n".encode()
    double.logs["1"] += euro[:-3]  # in the middle of a character
    page.wait_for_timeout(100)
    double.logs["1"] += euro[-3:]
    expect(log).to_have_text("epoch 1\nepoch 2: 3 €\n")
    double.hang_up()
    double.logs["1"] += b"epoch 3\n"
    expect(log).to_have_text("epoch 1\nepoch 2: 3 €\nepoch 3\n")


def test_of_a_long_log_the_end_is_shown(open_page: Open, address: str, double: Double) -> None:
    double.put(ended("1"))
    double.logs["1"] = b"beginning\n" + b"x" * 99 * 10_000 + b"\nend\n"
    page = open_page(f"{address}/#/job/1")
    log = page.get_by_label("log of job 1")
    expect(log).to_contain_text("end")
    expect(log).to_contain_text("gpuwise logs 1")
    assert "beginning" not in log.inner_text()


def test_buttons_do_what_they_say(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    page = open_page(f"{address}/#/job/1")
    page.get_by_role("button", name="Suspend").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert "POST /v1/jobs/1/cancel" not in double.asked
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.locator("main")).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    assert [each for each in double.asked if each.startswith("POST")] == [
        f"POST /v1/jobs/1/{action}" for action in ("suspend", "resume", "cancel")
    ]


def test_a_refusal_is_told(open_page: Open, address: str, double: Double, complaints: list[str]) -> None:
    double.put(a_job("1"))
    page = open_page(f"{address}/#/job/1")
    page.get_by_role("button", name="Suspend").wait_for()
    double.refusal = (409, "job 1 has ended already")
    page.get_by_role("button", name="Suspend").click()
    expect(page.get_by_role("alert")).to_have_text("Job 1: job 1 has ended already")
    complaints.clear()


def test_who_may_only_look_has_no_buttons(open_page: Open, address: str, double: Double) -> None:
    double.role = "viewer"
    double.put(a_job("1"))
    page = open_page(f"{address}/#/job/1")
    expect(page.get_by_role("heading", name="Job 1")).to_be_visible()
    expect(page.locator("[data-action]")).to_have_count(0)


# -- hostile words, small windows, keyboards --------------------------------------------------------------------------

HOSTILE = (
    "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>\"'`</td></table>{{7*7}}"
    "<style>*{display:none}</style><a href='javascript:window.hacked=1'>x</a>"
)


def test_hostile_words_stay_words(open_page: Open, address: str, double: Double) -> None:
    words = dict.fromkeys(("name", "user", "queue", "workdir", "placement", "why_ended"), HOSTILE)
    double.put(a_job("1", command=[HOSTILE], **words), waiting("2", **words), ended("3", status="failed", **words))
    double.why.update({"1": HOSTILE, "2": HOSTILE})
    double.attempts["1"] = [an_attempt(1, placement=HOSTILE, outcome=HOSTILE, detail=HOSTILE)]
    double.logs["1"] = HOSTILE.encode()
    double.devices = [a_device(0, ("1", HOSTILE, 1.0), name=HOSTILE)]
    double.trouble = HOSTILE
    double.happens("1", HOSTILE)
    page = open_page(address)
    for view in HASHES:
        page.goto(f"{address}/{view}")
        expect(page.locator("main")).to_contain_text(HOSTILE)
        expect(page.get_by_role("status")).to_have_text(HOSTILE)
        assert page.locator("main img, main script, main style, a[href^='javascript']").count() == 0, view
    assert page.evaluate("window.hacked") is None


def test_even_a_mistake_could_not_make_markup_of_words(open_page: Open, address: str, complaints: list[str]) -> None:
    page = open_page(address)
    for mistake in ("document.body.innerHTML = '<b>x</b>'", "document.write('<b>x</b>')"):
        with pytest.raises(Error, match="TrustedHTML"):
            page.evaluate(f"() => {{ {mistake} }}")
    complaints.clear()


@pytest.mark.parametrize("width", [400, 940, 1000, 1400])
def test_nothing_is_wider_than_the_window(open_page: Open, address: str, double: Double, width: int) -> None:
    long = "a" * 128
    double.put(
        a_job("1", name=long, placement=long, command=[long] * 3), waiting("2", name=long), ended("3", name=long)
    )
    double.why["2"] = "needs 1 GPU; the jobs that have them rank higher under this policy " + long
    double.attempts["1"] = [an_attempt(1, detail=long)]
    double.devices = [a_device(0, ("1", long, 1.0)), a_device(1)]
    double.happens("1", long)
    page = open_page(address, width=width)
    for view in HASHES:
        page.goto(f"{address}/{view}")
        expect(page.locator("main")).to_contain_text(long)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_everything_is_reached_by_keyboard(open_page: Open, address: str, double: Double) -> None:
    double.put(a_job("1"))
    page = open_page(address)
    page.locator("a[href='#/job/1']").last.wait_for()
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.locator(":focus").get_attribute("href"))
        if seen[-1] == "#/job/1":
            break
    assert seen[0] == "#main"
    assert [each for each in seen if each and each.startswith("#/")][-6:] == [*HASHES[:5], "#/job/1"]
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("button", name="Suspend").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Suspend")).to_be_focused()


def test_focus_stays_where_it_is_when_lists_change(open_page: Open, address: str, double: Double) -> None:
    double.put(waiting("1"), waiting("2"), waiting("3"))
    page = open_page(f"{address}/#/queue")
    link = page.locator("a[href='#/job/2']")
    link.focus()
    double.jobs = {uid: double.jobs[uid] for uid in ("2", "3")} | {"4": waiting("4")}
    double.happens("1", "was cancelled")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("a[href='#/job/4']").wait_for()
    expect(link).to_be_focused()


def test_it_is_dark_for_those_who_want_it(open_page: Open, address: str) -> None:
    colours = {
        open_page(address, dark=dark).evaluate("getComputedStyle(document.body).backgroundColor")
        for dark in (True, False)
    }
    assert colours == {"rgb(20, 23, 27)", "rgb(255, 255, 255)"}
