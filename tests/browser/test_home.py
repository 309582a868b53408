"""Both ways: one model, two lanes, one clock."""

from playwright.sync_api import expect

from tests.browser.conftest import Visit


def test_a_first_visit_finds_both_lanes_recorded_and_moving(visit: Visit):
    tab = visit("/")
    tab.until("m.clock.playing && m.clock.t > 0")
    tab.until("m.state.step && m.state.answer")
    words = tab.widget.inner_text()
    assert "weights moved" in words and "weights frozen" in words
    assert "recorded" in words


def test_one_clock_moves_both(visit: Visit):
    """At the same moment each lane is where it really was, and the shorter one holds its end."""
    tab = visit("/")
    tab.until("m.state.step && m.state.answer")
    counts = []
    for share in (0, 0.1, 0.2, 0.3, 1):
        tab.seek(share)
        t, trips = tab.ask("[m.clock.t, m.lanes.answer.trips.map((trip) => trip.end)]")
        assert tab.ask("m.state.answer.n") == sum(end <= t for end in trips)
        counts.append(tab.ask("m.state.answer.n"))
    assert counts == sorted(counts)
    assert counts[0] == 0 and counts[-1] == len(trips)
    assert tab.ask("m.clock.end") >= trips[-1]


def test_both_begin_with_the_same_weights_and_one_changes_them(visit: Visit):
    tab = visit("/")
    tab.until("m.state.step && m.state.answer")
    step, answer = (
        tab.ask("Object.fromEntries(m.traces[arg].texts ?? [])", lane)
        for lane in ("step", "answer")
    )
    assert step["weights_sha256_before"] == answer["weights_sha256_before"]
    assert step["weights_sha256_after"] != step["weights_sha256_before"]
    assert answer["weights_sha256_after"] == answer["weights_sha256_before"]


def test_both_run_here_and_say_so(visit: Visit):
    tab = visit("/")
    tab.page.get_by_text("sums", exact=True).first.click()
    tab.until("m.header.pair !== undefined && m.state.answer")
    tab.page.get_by_role("button", name="Run both here").click()
    tab.until("m.traces.answer.ended && m.traces.step.recorded.length && !m.following")
    expect(tab.page.get_by_text("measured on this machine").first).to_be_visible(timeout=60_000)


def test_scrubbing_asks_the_server_nothing(visit: Visit):
    tab = visit("/").settled()
    tab.hold()
    tab.traffic.requests.clear()
    sent = tab.traffic.n_frames_sent
    for share in (0.2, 0.7, 0.4):
        tab.seek(share)
    assert tab.traffic.requests == []
    assert tab.traffic.n_frames_sent == sent


def test_keys_step_through_both(visit: Visit):
    tab = visit("/")
    tab.until("m.state.step && m.state.answer")
    tab.hold()
    tab.key("Home")
    tab.until("m.clock.t === 0")
    tab.key("ArrowRight")
    tab.until("m.clock.t > 0")
    tab.key("End")
    tab.until("m.clock.t === m.clock.end")


def test_doors_lead_to_the_step_and_to_the_answer(visit: Visit):
    tab = visit("/").settled()
    tab.page.get_by_role("link", name="Open the answer").or_(
        tab.page.get_by_role("button", name="Open the answer")
    ).first.click()
    tab.page.wait_for_url("**/inference**")
