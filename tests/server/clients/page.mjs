// page.mjs URL CHROMIUM [PICTURE] - the chat page in a headless browser: streaming, stop, edit, regenerate, history, keys, phone width.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [url, executablePath, picture] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
// A key in the browser's own login box opens the page; its requests carry it too.
const context = await browser.newContext({ viewport: { width: 1100, height: 760 }, httpCredentials: { username: "x", password: "test-key" } });
const page = await context.newPage();
const problems = [], elsewhere = [];
page.on("pageerror", error => problems.push(String(error)));
page.on("request", request => { if (!request.url().startsWith(url) && !request.url().startsWith("data:")) elsewhere.push(request.url()); });

const answers = page.locator(".turn.assistant .text");
const idle = () => page.locator("#send").waitFor({ state: "visible", timeout: 20000 });
async function ask(text) {
  await page.fill("#input", text);
  await page.keyboard.press("Enter");
}

const tests = {
  async "tells the model"() {
    await page.goto(url);
    await page.locator("#model", { hasText: "context" }).waitFor();
  },
  async "streams an answer with its figures"() {
    await ask("Tell me a short story about a fox.");
    await idle();
    assert.ok((await answers.first().textContent()).length > 30);
    assert.match(await page.locator(".turn.assistant .figures").first().textContent(), /tokens\/s.*prompt \d+.*first after/);
  },
  async "stops at Escape and keeps what there is"() {
    await page.evaluate(() => { settings.temperature = 1.9; settings.max_tokens = 900; });
    await page.route("**/v1/chat/completions", route => {
      const body = { ...JSON.parse(route.request().postData()), ignore_eos: true };
      route.continue({ postData: JSON.stringify(body) });
    });
    await ask("Again");
    await page.locator("#stop").waitFor({ state: "visible" });
    await page.waitForFunction(() => [...document.querySelectorAll(".turn.assistant .text")].at(-1).textContent.length > 5);
    await page.keyboard.press("Escape");
    await idle();
    assert.match(await page.locator(".turn.assistant .figures").last().textContent(), /^$|stopped/);
    await page.unroute("**/v1/chat/completions");
    await page.evaluate(() => { settings.temperature = 0.8; settings.max_tokens = 60; });
  },
  async "regenerates and edits"() {
    await page.getByRole("button", { name: "Regenerate" }).last().click();
    await idle();
    assert.equal(await answers.count(), 2);
    await page.getByRole("button", { name: "Edit" }).last().click();
    assert.equal(await page.inputValue("#input"), "Again");
    assert.equal(await answers.count(), 1);
    await ask("What is 2 + 3?");
    await idle();
    assert.equal(await answers.count(), 2);
  },
  async "shows what a model or a user writes as text"() {
    await ask("<img src=x onerror=alert(1)><b>bold</b>");
    await idle();
    assert.equal(await page.locator("#talk img, #talk b").count(), 0);
  },
  async "keeps the history over a reload"() {
    const before = await answers.first().textContent();
    await page.reload();
    assert.equal(await answers.first().textContent(), before);
    await page.keyboard.press("Alt+n");
    assert.equal(await answers.count(), 0);
    await page.locator("#chats button.open").first().click();
    assert.ok(await answers.count() > 0);
  },
  async "sends the system prompt and the controls"() {
    await page.click("#settings");
    await page.fill("#system", "Be kind.");
    await page.locator("#knobs input").first().fill("0.3");
    await page.click("#close");
    const sent = page.waitForRequest("**/v1/chat/completions");
    await ask("Hello");
    const body = JSON.parse((await sent).postData());
    assert.deepEqual(body.messages[0], { role: "system", content: "Be kind." });
    assert.equal(body.temperature, 0.3);
    await idle();
  },
  async "shows reasoning apart, and takes a question back by the arrow"() {
    const delta = d => `data: ${JSON.stringify({ choices: [{ index: 0, delta: d }] })}\n\n`;
    await page.route("**/v1/chat/completions", route => route.fulfill({
      contentType: "text/event-stream", body: delta({ reasoning_content: "Hm, two." }) + delta({ content: "Two." }) + "data: [DONE]\n\n",
    }));
    await ask("One and one?");
    await idle();
    await page.unroute("**/v1/chat/completions");
    assert.equal(await answers.last().textContent(), "Two.");
    assert.match(await page.locator(".thoughts").last().textContent(), /Reasoning.*Hm, two\./);
    await page.keyboard.press("ArrowUp");
    assert.equal(await page.inputValue("#input"), "One and one?");
    await page.fill("#input", "");
  },
  async "tells an error of the server"() {
    await page.evaluate(() => { settings.stops = "x".repeat(5000); });
    await ask("Hello");
    await idle();
    assert.match(await page.locator(".turn.assistant .error").last().textContent(), /stop/);
    await page.evaluate(() => { settings.stops = ""; });
  },
  async "fits a phone, and the dark"() {
    await page.setViewportSize({ width: 360, height: 640 });
    await page.emulateMedia({ colorScheme: "dark" });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    assert.ok(await page.locator("#send").isVisible());
    await page.click("#settings");
    assert.ok(await page.evaluate(() => [...document.querySelectorAll("#sheet output")].every(o => o.getBoundingClientRect().right <= document.querySelector("#sheet").getBoundingClientRect().right)));
    await page.click("#close");
    await page.click("#menu");
    assert.ok(await page.locator("#new").isVisible());
    await page.click("#new");
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(25, 24, 23)");
  },
  async "asks nothing of anyone else, and fails nowhere"() {
    assert.deepEqual(elsewhere, []);
    assert.deepEqual(problems, []);
  },
};

for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log("ok   page: " + name);
  } catch (problem) {
    console.error("FAIL page: " + name + "\n", problem);
    process.exitCode = 1;
    break;
  }
}
if (picture) {
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1100, height: 700 });
  await page.evaluate(() => { localStorage.clear(); });
  await page.reload();
  for (const text of ["Tell me a short story about a fox.", "What is 7 + 8?"]) {
    await ask(text);
    await idle();
  }
  await page.screenshot({ path: picture });
}
await browser.close();
