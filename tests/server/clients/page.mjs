// page.mjs URL CHROMIUM - the chat page in a headless browser: what it shows, keeps and says, on a desktop and on a phone.
// page_text.mjs has what concerns Markdown.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { open_browser, delta, end, ask, idle, reply, run } from "./page_open.mjs";

const [url, executablePath] = process.argv.slice(2);
const { browser, context, page, problems, elsewhere } = await open_browser(url, executablePath);
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const answers = page.locator(".turn.assistant .text"), questions = page.locator(".turn.user .text");
const stored = () => page.evaluate(async () => (await Promise.all((await store.chats()).map(c => store.turns(c.id)))).flat().length);
const press = name => page.getByRole("button", { name, exact: true }).last().click();
const says = (text, where = page) => where.locator(".say:visible", { hasText: text }).last().waitFor({ timeout: 20000 });

async function accessible() { // by axe-core's rules of WCAG 2.2, levels A and AA
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }))
    .violations.map(v => v.id + ": " + v.nodes.map(n => n.target + " " + n.failureSummary).join("; ")));
  assert.deepEqual(found, []);
}

const tests = {
  async "tells the model"() {
    await page.goto(url);
    await page.locator("#model[data-state=ready]", { hasText: "context" }).waitFor();
  },
  async "streams an answer with its figures, and reads it aloud"() {
    await ask(page, "Tell me a short story about a fox.");
    await idle(page);
    assert.ok((await answers.first().textContent()).length > 30);
    assert.match(await page.locator(".turn.assistant .figures").first().textContent(), /tokens\/s.*prompt \d+.*first after/);
    const spoken = await page.locator("#spoken").textContent();
    assert.ok(spoken.startsWith("Writing an answer.") && spoken.endsWith("The answer is complete."));
    assert.ok(spoken.includes((await answers.first().locator("p").last().textContent())));
  },
  async "stops at Escape, keeps what there is and says so"() {
    await page.evaluate(() => { settings.temperature = 1.9; settings.max_tokens = 900; });
    await page.route("**/v1/chat/completions", route => {
      const body = { ...JSON.parse(route.request().postData()), ignore_eos: true };
      route.continue({ postData: JSON.stringify(body) });
    });
    await ask(page, "Again");
    await page.locator("#stop").waitFor({ state: "visible" });
    await page.waitForFunction(() => [...document.querySelectorAll(".turn.assistant .text")].at(-1).textContent.length > 5);
    await page.keyboard.press("Escape");
    await idle(page);
    await says("Stopped.");
    assert.ok((await answers.last().textContent()).length > 5);
    await page.unroute("**/v1/chat/completions");
    await page.evaluate(() => { settings.temperature = 0.8; settings.max_tokens = 60; });
  },
  async "an answer once more and an edited question stand beside the first"() {
    const before = await stored();
    await press("Try again");
    await idle(page);
    assert.equal(await answers.count(), 2);
    assert.match(await page.locator(".count").last().textContent(), /2 \/ 2/);
    await page.hover(".turn.user:nth-last-child(2)");
    await press("Edit");
    assert.equal(await page.inputValue("#input"), "Again");
    assert.equal(await answers.count(), 2); // nothing goes until something is sent, and then nothing either
    await ask(page, "What is 2 + 3?");
    await idle(page);
    assert.deepEqual(await questions.allTextContents(), ["Tell me a short story about a fox.", "What is 2 + 3?"]);
    assert.equal(await stored(), before + 3);
    await press("Earlier version");
    assert.equal(await questions.last().textContent(), "Again");
    await page.getByRole("button", { name: "Earlier version" }).last().click();
    await says("Stopped.");
  },
  async "arrow up takes the question, Escape gives the draft back"() {
    const before = await stored();
    await page.focus("#input");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.inputValue("#input"), "Again");
    await page.keyboard.press("Escape");
    assert.equal(await page.inputValue("#input"), "");
    await page.fill("#input", "a draft");
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.inputValue("#input"), "a draft");
    await page.hover(".turn.user:nth-last-child(2)");
    await press("Edit");
    await press("Cancel");
    assert.equal(await page.inputValue("#input"), "a draft");
    await page.fill("#input", "");
    assert.equal(await stored(), before);
    assert.equal(await answers.count(), 2);
  },
  async "shows what a model or a user writes as text"() {
    await ask(page, "<img src=x onerror=alert(1)><b>bold</b>");
    await idle(page);
    assert.equal(await page.locator("#talk img, #talk b").count(), 0);
  },
  async "keeps the history over a reload, and deletes with a way back"() {
    const before = await answers.first().textContent(), kept = await stored();
    await page.reload();
    await answers.first().waitFor();
    assert.equal(await answers.first().textContent(), before);
    await page.locator("#chats .icon").first().click();
    await page.locator(".empty").waitFor();
    assert.equal(await page.locator("#chats li").count(), 0);
    await press("Undo");
    await answers.first().waitFor();
    assert.equal(await stored(), kept);
    await page.keyboard.press("Alt+n");
    await page.locator(".empty").waitFor();
    await page.locator("#chats button.open").first().click();
    await answers.first().waitFor();
    await page.click("#forget");
    await press("Undo");
    await answers.first().waitFor();
    assert.equal(await stored(), kept);
  },
  async "a deleted conversation goes when there is no way back"() {
    await page.keyboard.press("Alt+n");
    await page.locator(".empty").waitFor();
    await ask(page, "Hello");
    await idle(page);
    const before = await stored();
    await page.locator("#chats .icon").first().click();
    await press("Dismiss");
    await page.waitForFunction(async n => (await Promise.all((await store.chats()).map(c => store.turns(c.id)))).flat().length === n, before - 2);
    await page.reload();
    assert.equal(await page.locator("#chats li").count(), 1);
    await page.locator("#chats button.open").first().click();
    await answers.first().waitFor();
  },
  async "two tabs take nothing from each other"() {
    await page.keyboard.press("Alt+n");
    await page.locator(".empty").waitFor();
    await ask(page, "Hello");
    await idle(page);
    const other = await context.newPage(), before = await stored();
    await other.goto(page.url());
    await other.locator(".turn.assistant").waitFor();
    await other.evaluate(() => store.onchange(() => {})); // so that it has not heard of the first tab's question
    for (const [tab, text] of [[page, "From the first tab"], [other, "From the second tab"]]) {
      await ask(tab, text);
      await idle(tab);
    }
    await page.locator(".count", { hasText: "1 / 2" }).waitFor();
    await Promise.all([page.reload(), other.close()]);
    await page.locator(".count", { hasText: "2 / 2" }).waitFor();
    await press("Earlier version");
    assert.equal(await questions.last().textContent(), "From the first tab");
    assert.equal(await stored(), before + 4);
  },
  async "follows a second tab's answer and its deletion"() {
    const other = await context.newPage();
    await other.goto(page.url());
    await other.locator(".turn.assistant").first().waitFor();
    let go;
    const gate = new Promise(resolve => { go = resolve; });
    await other.route("**/v1/chat/completions", async route => { await gate; await route.fulfill(reply(delta({ content: "From over there." }) + end)); });
    await ask(other, "A question in the second tab");
    await says("Being written in another tab");
    go();
    await page.locator(".turn.assistant .text", { hasText: "From over there." }).waitFor();
    await other.locator("#chats .icon").first().click();
    await page.locator(".empty").waitFor();
    await other.getByRole("button", { name: "Undo" }).click();
    await page.locator("#chats li").nth(1).waitFor();
    await other.close();
  },
  async "sends the system prompt and the controls"() {
    await page.click("#settings");
    await page.fill("#system", "Be kind.");
    await page.locator("#knobs input").first().fill("0.3");
    await page.click("#close");
    const sent = page.waitForRequest("**/v1/chat/completions");
    await ask(page, "Hello");
    const body = JSON.parse((await sent).postData());
    assert.deepEqual(body.messages[0], { role: "system", content: "Be kind." });
    assert.equal(body.temperature, 0.3);
    await idle(page);
  },
  async "shows reasoning apart"() {
    await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ reasoning_content: "Hm, two." }) + delta({ content: "Two." }) + end)));
    await ask(page, "One and one?");
    await idle(page);
    await page.unroute("**/v1/chat/completions");
    assert.equal(await answers.last().textContent(), "Two.");
    await page.locator(".thoughts summary").last().click();
    await page.locator(".thoughts", { hasText: /Reasoning.*Hm, two\./ }).last().waitFor();
  },
  async "says when the server is lost, and asks again"() {
    await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: "Half an ans" }))));
    await ask(page, "Are you there?");
    await says("connection to the server was lost");
    assert.equal(await answers.last().textContent(), "Half an ans");
    await page.route("**/v1/chat/completions", route => route.abort());
    await page.route("**/health", route => route.abort());
    await press("Try again");
    await says("The server cannot be reached");
    await page.locator("#model[data-state=lost]", { hasText: "cannot be reached" }).waitFor();
    await page.unroute("**/v1/chat/completions");
    await page.unroute("**/health");
    await press("Try again");
    await idle(page);
    await page.locator("#model[data-state=ready]").waitFor();
    assert.match(await page.locator(".count").last().textContent(), /3 \/ 3/);
    assert.equal(await page.locator(".say.bad:visible").count(), 0);
  },
  async "an answer that a closed tab leaves behind is kept, and says so"() {
    const other = await context.newPage();
    await other.goto(url);
    await other.locator("#model[data-state=ready]").waitFor();
    await other.evaluate(() => { settings.temperature = 1.9; settings.max_tokens = 900; });
    await other.route("**/v1/chat/completions", route => {
      route.continue({ postData: JSON.stringify({ ...JSON.parse(route.request().postData()), ignore_eos: true }) });
    });
    await ask(other, "A question of a tab that closes");
    await other.waitForFunction(async () => runs.size && (await store.turns(current.id)).some(t => t.content.length > 5));
    const address = other.url();
    await other.close();
    await page.goto(address);
    await says("Interrupted");
    await press("Try again");
    await idle(page);
  },
  async "says what to do when the context is full"() {
    await ask(page, "hello there ".repeat(800));
    await says("The context is full");
    await says("Start a new chat");
    await page.locator(".say:visible").getByRole("button", { name: "New chat" }).click();
    const context_full = await page.evaluate(() => ({ prompt_n: model.meta.context - 171, cache_n: 0, predicted_n: 171, predicted_per_second: 9 })); // as the server tells it
    await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: "And then" }) +
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "length" }], timings: context_full })}\n\n` + end)));
    await ask(page, "A long story, please");
    await says("The context is full");
    assert.match(await page.locator("#room").textContent(), /\d+ of \d+ tokens of context are used/);
    await page.unroute("**/v1/chat/completions");
  },
  async "tells an error of the server"() {
    await page.evaluate(() => { settings.stops = "x".repeat(5000); });
    await ask(page, "Hello");
    await says("stop");
    await page.evaluate(() => { settings.stops = ""; });
  },
  async "says when the browser's storage is full"() {
    const fresh = await browser.newContext({ httpCredentials: { username: "x", password: "test-key" } }), tab = await fresh.newPage();
    const session = await fresh.newCDPSession(tab);
    await tab.goto(url);
    await tab.locator("#model[data-state=ready]").waitFor();
    await session.send("Storage.overrideQuotaForOrigin", { origin: url, quotaSize: 1 });
    await tab.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: "Here." }) + end)));
    await ask(tab, "x".repeat(300000));
    await tab.locator("#notice:visible", { hasText: "storage is full" }).waitFor();
    assert.equal(await tab.locator(".turn.assistant .text").textContent(), "Here."); // the page works on
    await fresh.close();
  },
  async "opens a huge conversation piece by piece"() {
    const address = await page.evaluate(async () => {
      const chat = { id: store.id(), title: "huge", changed: Date.now(), leaf: null }, list = [];
      for (let i = 0; i < 4000; i++) {
        list.push({ id: "huge-" + i, chat: chat.id, parent: i ? "huge-" + (i - 1) : null, role: i % 2 ? "assistant" : "user", state: "done", at: i, content: `**Turn ${i}** ` + "and some words ".repeat(60) });
      }
      await store.put(chat, ...list);
      return chat.id;
    });
    await page.goto(url + "/#" + address);
    await page.reload();
    await page.locator(".earlier").waitFor();
    assert.equal(await page.locator(".turn").count(), 40);
    assert.match(await answers.last().textContent(), /Turn 3999/);
    await page.locator(".earlier").click();
    assert.equal(await page.locator(".turn").count(), 80);
    await page.locator("#chats .icon").first().click();
    await press("Dismiss");
  },
  async "is worked by the keyboard, with a focus that is seen"() {
    await page.keyboard.press("Alt+n");
    await page.locator(".empty").waitFor();
    await ask(page, "Hello");
    await idle(page);
    await page.evaluate(() => document.activeElement.blur());
    const seen = [];
    for (let i = 0; i < 25; i++) {
      await page.keyboard.press("Tab");
      seen.push(await page.evaluate(() => {
        const e = document.activeElement, style = getComputedStyle(e.id === "input" ? e.form : e);
        return e === document.body ? "" : (e.id || e.getAttribute("aria-label") || e.textContent) + (style.outlineStyle !== "none" || style.boxShadow.includes("0px 0px 0px 1px") ? "" : " HIDDEN");
      }));
    }
    assert.deepEqual(seen.filter(s => s.endsWith("HIDDEN")), []);
    for (const id of ["skip", "new", "forget", "settings", "talk", "Copy", "Regenerate", "input", "send"]) assert.ok(seen.includes(id), id + " of " + seen);
  },
  async "is accessible, in light and dark"() {
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await accessible();
      await page.click("#settings");
      await accessible();
      await page.click("#close");
    }
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector("#side")).transitionDuration), "0s");
  },
  async "fits a phone, and its drawer closes"() {
    const inside = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
    await page.setViewportSize({ width: 360, height: 640 });
    assert.ok(await inside());
    assert.ok(await page.locator("#send").isVisible());
    await page.click("#settings");
    assert.ok(await page.evaluate(() => [...document.querySelectorAll("#sheet output")].every(o => o.getBoundingClientRect().right <= document.querySelector("#sheet").getBoundingClientRect().right)));
    await page.click("#close");
    const shown = () => page.locator("#new").isVisible();
    const closers = [() => page.keyboard.press("Escape"), () => page.mouse.click(350, 300), () => page.click("#hide"), () => page.locator("#chats button.open").last().click(), () => page.click("#new")];
    for (const close of closers) {
      await page.click("#menu");
      assert.ok(await shown());
      await accessible();
      await close();
      assert.ok(!await shown(), String(close));
      assert.ok(!await page.evaluate(() => document.querySelector("main").inert));
    }
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(25, 24, 23)");
  },
  async "asks nothing of anyone else, and fails nowhere"() {
    assert.deepEqual(elsewhere, []);
    assert.deepEqual(problems, []);
  },
};
await run("page", tests);

await browser.close();
