"A run that obeys its buttons, curves that keep what matters, sliders that run it again."
import math, re, threading, time, pytest, torch
from types import SimpleNamespace
from rlhf_nb.show import dashboard as module
from rlhf_nb.show.dashboard import (GPU_MEMORY, Dashboard, Stopped, Sweep, curves_of, dashboard_callback,
    dashboard_page, panel, run_in_background, run_setting, show_dashboard, show_sweep, sweep_page)
from rlhf_nb.tokens import make_seqs
from test_pages import check_page, plain

def toy_roll(): return SimpleNamespace(seqs=make_seqs([[5], [5]], [[1, 2], [3]], 0))
WORDS = SimpleNamespace(decode=lambda ids, **_: f"<{ids}>")
def until(ready, seconds=600):    # a busy machine may be slow
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "waited too long"
        time.sleep(.005)

def toy_run(dashboard, save=lambda: "here", fail_at=None, n=10**9):
    callback = dashboard_callback(dashboard, WORDS, save)
    def train():
        for i in range(n):
            if i == fail_at: raise KeyError("<b>lost</b>")
            callback(dict(iteration=i, x=float(i)), toy_roll())
            time.sleep(.002)
    return run_in_background(train, dashboard)

class Counted(threading.Event):
    waits = 0
    def wait(self, timeout=None):
        self.waits += 1
        return super().wait(timeout)

def test_a_dashboard_pauses_saves_goes_on_and_stops_wherever_it_is_shown():
    dashboard, saved = Dashboard(["x"], interval=0., pressed=Counted()), []
    first = show_dashboard(dashboard)
    pause, stop, save = first.children[1].children
    def keep():
        saved.append(len(dashboard.rows))
        return "<folder>"
    thread = toy_run(dashboard, keep)
    with pytest.raises(ValueError, match="is running: give it a new Dashboard"): toy_run(dashboard)
    until(lambda: len(dashboard.rows) >= 3)
    save.click()                                             # while it runs
    until(lambda: saved and "&lt;folder&gt;" in dashboard.page.value)
    assert thread.is_alive() and dashboard.state == "running"
    pause.click()
    until(lambda: dashboard.state == "paused" and dashboard.pressed.waits)
    held = len(dashboard.rows)
    save.click()                                             # while it waits
    until(lambda: len(saved) == 2 and dashboard.pressed.waits == 2)
    assert saved[1] == held == len(dashboard.rows) and dashboard.pressed.waits == 2     # it sleeps, it does not ask and ask
    again = show_dashboard(dashboard)                        # after a reload: the same page and buttons
    assert again is not first and again.children[0] is dashboard.page and "paused" in dashboard.page.value
    assert again.children[1].children[0].description == pause.description == "Go on"
    again.children[1].children[0].click()                    # one press, one turn
    until(lambda: len(dashboard.rows) >= held + 5 and dashboard.state == "running")
    assert pause.description == "Pause" and len(saved) == 2
    pause.click(); stop.click()                              # stop works while it waits
    thread.join(600)
    assert not thread.is_alive() and dashboard.state == "stopped"
    assert "&lt;[1, 2]&gt;" in dashboard.page.value and "stopped" in first.children[0].value
    with pytest.raises(ValueError, match="is stopped"): toy_run(dashboard)
    other = Dashboard(["x"])
    toy_run(other, n=3).join(600)
    assert other.state == "finished" and "finished, 3 iterations" in other.page.value

def test_nothing_trains_before_start_is_pressed():
    dashboard, ran = Dashboard(["x"]), []
    start, pause, stop, save = show_dashboard(dashboard, lambda: ran.append(1)).children[1].children
    assert start.description == "Start" and pause.description == "Pause" and not ran and dashboard.state == "not begun"
    start.click()
    until(lambda: dashboard.state == "finished")
    start.click()                                                           # again: one run, not two
    assert ran == [1]

def test_what_is_pressed_before_the_run_begins_holds():
    dashboard = Dashboard(["x"])
    pause, stop, _ = show_dashboard(dashboard).children[1].children
    pause.click()
    thread = toy_run(dashboard)
    until(lambda: dashboard.state == "paused")
    assert len(dashboard.rows) == 1
    for button in (stop, pause): button.click()
    thread.join(600)
    assert dashboard.state == "stopped"

def test_a_save_that_fails_stops_nothing():
    dashboard = Dashboard(["x"], interval=0.)
    def full(): raise OSError("<disk> full")
    thread = toy_run(dashboard, full)
    show_dashboard(dashboard).children[1].children[2].click()
    until(lambda: "Not saved: OSError" in dashboard.note)
    n = len(dashboard.rows)
    until(lambda: len(dashboard.rows) >= n + 3)
    dashboard.stop = True
    thread.join(600)
    assert "&lt;disk&gt; full" in dashboard.page.value

def test_errors_of_a_run_are_shown_and_not_swallowed(monkeypatch):
    dashboard, other, seen = Dashboard(["x"]), Dashboard(["x"]), []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    toy_run(dashboard, fail_at=2).join(600)
    assert seen == [KeyError] and dashboard.state == "failed" and "&lt;b&gt;lost" in dashboard.page.value
    def stopped(): raise Stopped("enough")
    run_in_background(stopped, other).join(600)
    assert len(seen) == 1 and other.state == "stopped"

def test_rows_are_not_changed_and_only_running_counts_as_time(monkeypatch):
    now, rows = [0.], [dict(iteration=i, x=1.) for i in range(3)]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    class Pause(threading.Event):
        def wait(self, timeout=None): now[0], dashboard.paused = now[0] + 100, False
    dashboard = Dashboard(["x"], pressed=Pause(), iteration_began=0., interval=60.)
    drawn, callback = [], dashboard_callback(dashboard, WORDS, str)
    dashboard.page.observe(lambda change: drawn.append(1), "value")
    for i, row in enumerate(rows):
        now[0] += 2                                           # three tokens in two seconds
        dashboard.paused = i == 1
        callback(row, toy_roll())
    assert rows == [dict(iteration=i, x=1.) for i in range(3)]
    assert [row["tokens per second"] for row in dashboard.rows] == [1.5] * 3
    assert 1 <= len(drawn) <= 4                               # the first row, the pause, the end of it
    for i in range(50): callback(dict(iteration=i, x=1.), toy_roll())
    assert len(dashboard.rows) == 53 and len(drawn) <= 4, "drawn more often than every 60 s"

def test_memory_of_a_gpu_and_of_none(monkeypatch):
    def row():
        dashboard = Dashboard(["x", GPU_MEMORY])
        dashboard_callback(dashboard, WORDS, str)(dict(x=1.), toy_roll())
        return dashboard.rows[0], dashboard_page(dashboard).count("<svg")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found, panels = row()
    assert set(found) == {"x", "tokens per second"} and panels == 1          # no GPU, no such number and no panel
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    found, panels = row()
    assert found[GPU_MEMORY] == 3. and panels == 2

def test_panel_keeps_its_size_and_shows_what_broke():
    one = panel("a", {"": ([0], [math.nan])})
    many = panel("a", {"": (range(5000), [math.inf if i % 7 == 0 else float(i) for i in range(5000)])})
    gone = panel("a", {"": ([0, 1, 2], [1., 2., None])})
    for svg in (one, many, gone, panel("a", {}), panel("a", {"": ([], [])})):
        assert 'width="270" viewBox="0 0 270 130"' in svg and "nan" not in svg and "inf" not in svg
        check_page(svg)
    assert many.count(",") < 700 and "4999" in many          # thinned, the last one kept
    assert one.count(">✕<") == 1 and many.count(">✕<") == 20               # the newest of them
    assert "not finite" in one and "✕ 715" in many and "not finite" not in many
    assert "no data yet" in panel("a", {"": ([0, 1], [None, None])}) and "✕" not in gone

def test_panel_draws_where_the_numbers_are():
    svg = panel("a", {"old": ([1, 2], [0., 4.]), "new": ([1, 2, 3], [4., 2., 0.])})
    lines = re.findall(r'points="([^"]*)"', svg)
    assert lines == ["50.0,108.0 152.0,24.0", "50.0,24.0 152.0,66.0 254.0,108.0"]
    dashed, thick = re.findall(r"<polyline[^>]*>", svg)
    assert "dasharray" in dashed and "dasharray" not in thick and 'stroke-width="2"' in thick
    assert "①" in svg and "②" not in svg and ">a  0</text>" in svg         # the newest ends at 0
    assert re.findall(r'x="2.0" y="([\d.]+)"[^>]*>(\d)<', svg) == [("28.0", "4"), ("108.0", "0")]
    assert ">9</text>" in panel("a", {"": ([0, 9], [1., math.inf])})      # as far as it went
    flat = panel("a", {"": ([1, 2], [3., 3.])})
    assert re.findall(r'points="([^"]*)"', flat) == ["50.0,108.0 254.0,108.0"]

def test_a_long_run_costs_no_more_and_loses_no_spike():
    dashboard = Dashboard(["x"])
    for i in range(6000):
        dashboard.rows.append(dict(iteration=i, x=9. if i == 321 else math.nan if i % 1000 == 7 else i % 3))
        if i % 50 == 0: curves_of(dashboard)                         # read a few rows at a time
    xs, ys = curves_of(dashboard)["x"]
    assert len(xs) < 600 and xs == sorted(xs) and ys[xs.index(321)] == 9. and xs[-1] == 5999
    assert "✕ 6" in dashboard_page(dashboard) and dashboard.n_read == 6000
    once = Dashboard(["x"], rows=dashboard.rows)
    assert curves_of(once) == curves_of(dashboard)

def a_sweep(run=None, results=None): return Sweep(run, ["x"], results or {})

def test_pages_are_of_one_height_and_have_their_numbers_in_text():
    empty, full = Dashboard(["x", "y"]), Dashboard(["x", "y"], rows=[dict(x=float(i), y=1.) for i in range(9)],
                                                   samples=["a " * 900, "b"], note="c " * 900)
    for page in map(dashboard_page, (empty, full)):
        assert page.count("<svg") == 2 and page.count("white-space:nowrap") == 3
    few, many = (a_sweep(results={f"s{i}": [dict(x=1.)] for i in range(n)}) for n in (0, 9))
    assert sweep_page(few).count("<tr>") == sweep_page(many).count("<tr>") == 5
    assert "① s5" in sweep_page(many) and "▬ s8" in sweep_page(many)     # the newest four
    dashboard = Dashboard(["x"], rows=[dict(x=1.25), dict(y=2.), dict(x=None)])
    assert "3 iterations" in plain(dashboard_page(dashboard))

# ---- sliders that run it again
def test_settings_overlay_and_come_back():
    calls = []
    def run(settings, callback):
        calls.append(settings)
        for i in range(3): callback(dict(x=settings["beta"] * i), None)
    made = a_sweep(run)
    for beta in (1., 2., 1.): run_setting(made, dict(beta=beta))
    assert len(calls) == 2 and list(made.results) == ["beta 2", "beta 1"]      # seen: only the order changes
    page = sweep_page(made)
    assert page.count("<polyline") == 2 and "▬ beta 1" in page and "① beta 2" in page
    assert "<td>2</td>" in plain(page) and "<td>4</td>" in plain(page)

def test_a_setting_that_failed_is_no_result():
    fails = [False, True]
    def run(settings, callback):
        callback(dict(x=None), None)
        if fails.pop(): raise OSError("full")
        callback(dict(x=2.), None)
    made, shown = a_sweep(run), []
    with pytest.raises(OSError): run_setting(made, dict(beta=1.), lambda: shown.append(sweep_page(made)))
    assert not made.results and "beta 1" not in shown[-1] and "<td>–</td>" in plain(shown[0])
    run_setting(made, dict(beta=1.))
    assert made.results == {"beta 1": [dict(x=None), dict(x=2.)]}

def test_a_slider_runs_the_newest_wish():
    seen, hold = [], threading.Event()
    def run(settings, callback):
        seen.append(settings["beta"])
        hold.wait(600)
        callback(dict(x=settings["beta"]), None)
    made = a_sweep(run)
    box, page = show_sweep(made, {"beta": (.1, 0., 1., .1), "cliprange": (.2, 0., 1., .1)}).children
    number, slider = box.children[0].children
    assert number.description == "beta" and not slider.continuous_update
    slider.value = .2
    until(lambda: seen)
    for x in (.3, .4, .5): slider.value = x                  # faster than the runs are done
    hold.set()
    until(lambda: len(made.results) == 2 and all(made.results.values()))
    assert seen == [.2, .5] and list(made.results) == ["beta 0.2, cliprange 0.2", "beta 0.5, cliprange 0.2"]
    until(lambda: "▬ beta 0.5" in page.value)

def test_the_rest_of_a_kl_is_drawn_at_0_and_a_start_is_seen_before_the_first_row():
    def drawn(name): return panel(name, {"": ([0, 1], [0., -2e-7])})
    assert "0</text>" in drawn("objective/kl") and "2e-07" not in drawn("objective/kl") and "2e-07" in drawn("reward")
    dashboard, go = Dashboard(["x"]), threading.Event()
    show_dashboard(dashboard)
    thread = run_in_background(go.wait, dashboard)
    assert "running, 0 iterations" in dashboard.page.value
    go.set()
    thread.join()
