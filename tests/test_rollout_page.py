"What looks wrong in kept rollouts, and one file of them that runs nothing."
import json, math, re, subprocess, sys, pytest
from pathlib import Path
from rlhf_nb.book.command import main
from rlhf_nb.show.rollout_page import rollout_alarms, rollouts_page
from test_pages import BAD, check_page
HERE = Path(__file__).parent/"rollouts"

def rows(n=8, **more): # 2 steps, 2 groups of n/4 each... every number differs, nothing looks wrong
    return [dict(step=s, group=g, prompt=f"q{g}", response=f"{s} {k}", reward=s + k / 10, KL=k / 100, ended=1, ids=[5], logprobs=[-1.], policy_logprobs=[-1.]) | {
        name: f(s, g, k) for name, f in more.items()} for s in (1, 2) for g in (0, 1) for k in range(n)]

@pytest.mark.parametrize("more, words", [
    ({}, []),
    (dict(reward=lambda s, g, k: 1. + g + 2 * s), ["in 4 of 4 groups all answers earn the same"]),
    (dict(response=lambda s, g, k: f"{s} {g}"), ["in 4 of 4 groups all answers say the same"]),
    (dict(prompt=lambda s, g, k: f"q{k % 2}" if (s, g) == (2, 1) else f"q{g}"), ["in 1 of 4 groups are answers to several prompts"]),
    (dict(KL=lambda s, g, k: -.5 - k / 100), ["the KL is -0.535 ± 0.0041 nats"]),
    (dict(KL=lambda s, g, k: (-1)**k * .5 - .01), []),                      # below 0 by chance
    (dict(ended=lambda s, g, k: int(k == 0)), ["12% of the answers end by themselves"]),
    (dict(KL=lambda s, g, k: s + k / 100, reward=lambda s, g, k: k % 2 + .01 * k), []),          # too few to know
    ], ids=["well", "one reward", "one text", "groups mixed", "KL below 0", "noise", "no end", "few rows"])
def test_each_fault_is_named_and_health_is_not(more, words):
    found = rollout_alarms(rows(**more))
    assert len(found) == len(words) and all(w in f for w, f in zip(words, found)), found

def test_a_reward_that_stays_while_the_kl_grows_is_named():
    flat = rows(200, KL=lambda s, g, k: s + k / 1000, reward=lambda s, g, k: k % 7 - s / 100)
    found, = rollout_alarms(flat)
    assert found.startswith("the KL has grown by 1 nats, the reward by -0.01 ± 0.14: does a reward")
    assert rollout_alarms(rows(200, KL=lambda s, g, k: s + k / 1000, reward=lambda s, g, k: k % 7 + s)) == []

def test_a_sampler_of_another_temperature_is_named():
    two = [dict(prompt="a", response=str(x), ids=[3, 4], logprobs=[-1., -2.], policy_logprobs=[-1.2, x]) for x in (-2., None)]
    assert rollout_alarms(two)[0] == "sampler and policy differ by 0.13 nats per token: temperature, dropout, precision (chapter 12, symptom 12)"
    unseen = "no row has KL, reward, ended: not looked for (chapter 12, symptom 2, 3, 8)"
    assert rollout_alarms(two)[1:] == [unseen] == rollout_alarms([row | dict(policy_logprobs=[-1.01, -2.]) for row in two])

def test_what_was_not_looked_for_is_said():
    "Health that nobody could see is none; our runs keep the policy's log-probs where they differ from the sampler's."
    assert rollout_alarms([row | dict(ended=math.nan) for row in rows()]) == ["no row has ended: not looked for (chapter 12, symptom 8)"]
    plain = [{k: x for k, x in row.items() if k not in ("KL", "policy_logprobs")} for row in rows()]
    assert rollout_alarms(plain) == ["no row has KL, policy: not looked for (chapter 12, symptom 2, 12)"]
    assert rollout_alarms([row | dict(prompt_length=1) for row in plain]) == ["no row has KL: not looked for (chapter 12, symptom 2)"]
    assert "no row has KL, policy: not looked for" in rollouts_page(plain) and "<li>no alarm" in rollouts_page(rows())

def test_a_page_is_whole_escaped_and_no_larger_than_said():
    page = rollouts_page([row | {"prompt": BAD, "response": BAD, BAD: 1.} for row in rows()])
    assert "alert(" in check_page(page.replace("http-equiv", "")).text and "default-src 'none'" in page and page.count("<details><summary>row") == 32
    assert "rows in full" not in page and page.endswith("</html>")
    big = [dict(response="x" * 2000, reward=float(i)) for i in range(3000)]
    page = rollouts_page(big, max_mb=.5)
    assert len(page.encode()) < .5 * 2**20 + 200 and "of 3000 rows in full" in page and "rows 1 to 200 of 3000" in page
    assert page.index("row 2999, reward 2999<") < page.index("row 0, reward 0<") < page.index("row 2998, reward")                # the ends first

def test_the_command_writes_it(tmp_path, capfd):
    out = tmp_path/"page.html"
    assert main(["show", str(HERE/"verl"), "-o", str(out), "--sort", "step"]) == 0
    assert "output is read as response" in out.read_text("utf-8")
    assert main(["show", str(HERE/"verl"), "-o", str(out), "--columns", "reward=none"]) == 2
    assert "no column 'none'" in capfd.readouterr().err
    assert main(["show", str(tmp_path/"not there"), "-o", str(out)]) == 2

def test_the_command_does_not_write_over_what_it_reads(tmp_path, capfd):
    (tmp_path/"x.jsonl").write_text(dump := '{"response": "a"}\n')
    assert main(["show", str(tmp_path/"x.jsonl"), "-o", str(tmp_path/"x.jsonl")]) == 2 and (tmp_path/"x.jsonl").read_text() == dump
    assert "which is read: name another output" in capfd.readouterr().err

def test_the_command_replaces_its_own_page_and_nothing_else(tmp_path, capfd):
    out, show = tmp_path/"page.html", lambda name="openrlhf.jsonl": main(["show", str(HERE/name), "-o", str(out)])
    for mine in ("<p>by hand", "", "é".encode("latin1"), b"\n<!-- rlhf-nb show 0 -->\n"):
        out.write_bytes(mine := mine if isinstance(mine, bytes) else mine.encode())
        assert show() == 2 and out.read_bytes() == mine
        assert f"{out} is there, and rlhf-nb show did not write it as it is: name another file" in capfd.readouterr().err
    out.unlink()
    assert show() == show("verl") == 0 and "It is 5." in (page := out.read_text("utf-8"))              # its own
    out.write_text(changed := page.replace("It is 5.", "It is 6."), "utf-8")
    assert show() == 2 and out.read_text("utf-8") == changed
    out.unlink()
    out.symlink_to(tmp_path/"nowhere")
    assert show() == 2 and out.is_symlink()

def test_rows_of_equal_tokens_have_buttons_of_their_own_and_long_texts_stand_below_the_table():
    row = dict(prompt="p", response="r", step=-3, reward=1., tokens=["r"], logprobs=[-1.], note="u" * 41, label="x" * 40)
    page = rollouts_page([row, row])
    ids = re.findall(r'id="(l[0-9a-f]{8}-0)"', page)
    assert len(ids) == 2 == len({*ids}) and f"<td>{'u' * 40}…</td>" in page and page.count(f"note</b><br>{'u' * 41}") == 2 and f"{'x' * 40}…" not in page

def test_rows_of_twenty_thousand_tokens_have_a_place_on_the_page(tmp_path):
    rows = [dict(step=0, prompt="p", response="w " * 20_000, reward=i, ids=[5] * 20_000, logprobs=[-.5] * 20_000) for i in range(2)]
    (tmp_path/"huge.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    page = rollouts_page(tmp_path/"huge.jsonl")
    assert page.count("tokens 0 to 999 of 20000") == 2 and "rows in full" not in page and len(page) < 2**21

def test_the_kl_of_a_large_file_is_read_from_its_tokens(tmp_path, monkeypatch):
    from rlhf_nb.data import rollouts
    monkeypatch.setattr(rollouts, "_LARGE", 0)
    def alarms(first, mask=()): # log-probs of 99 tokens, 1 nat more or less than the reference's
        (tmp_path/"x.jsonl").write_text("".join(json.dumps(dict(row, ids=[3] * 99, ref_logprobs=[-2.] * 99, **{x: [first - k / 999] * 99 for x in ("logprobs", "policy_logprobs")})
                                                | ({"mask": list(mask)} if mask else {})) + "\n" for k, row in enumerate(
            {name: x for name, x in row.items() if name != "KL"} for row in rows())))
        return rollout_alarms(tmp_path/"x.jsonl")
    assert alarms(-1.) == [] and alarms(-3.)[0].startswith("the KL is -101 ")
    assert alarms(-3., [1] + [0] * 98)[0].startswith("the KL is -1.02 ")

@pytest.mark.slow
def test_in_a_browser_a_token_says_its_loss_by_click_and_key_and_axe_finds_nothing(browser, axe, tmp_path):
    "On a phone by night, opened from a disk: what others wrote runs nothing."
    said = [dict(role="assistant", content="", tool_calls=[dict(name="look")]), dict(role="tool", content="<script>alert(1)</script>")]
    (tmp_path/"page.html").write_text(rollouts_page([row | dict(response=said, ids=[5] * 6, tokens=[f" w{i}" for i in range(6)], loss_mask=[1, 1, 1, 0, 0, 1],
        logprobs=[-.5] * 6, policy_logprobs=[-.4 - i / 10 for i in range(6)], ref_logprobs=[-.6] * 6) for row in rows(2)]), "utf-8")
    page, ran = browser.new_page(viewport=dict(width=390, height=844), color_scheme="dark", bypass_csp=True), []
    page.on("dialog", lambda d: ran.append(d.message) or d.dismiss())
    page.goto((tmp_path/"page.html").as_uri())
    row = page.locator("main > details").first
    row.locator("summary").first.press("Enter")
    term = row.get_by_role("region", name="loss of the token")
    assert term.count() == 0 and "assistant: → " in row.inner_text() and "tool: <script>" in row.inner_text()
    row.locator(".t").nth(1).click()
    first = term.inner_text()
    page.keyboard.press("ArrowRight")
    assert "GSPO" in first and term.inner_text() != first
    page.keyboard.press("ArrowRight")
    assert term.inner_text() == "This token is not learned from."           # the tool said it
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and axe(page) == [] and not ran
    page.close()
