// page_pictures.mjs URL CHROMIUM - pictures on the chat page, with a model that sees: attached, dropped and pasted; shown, sent and kept;
// and what is said of files that cannot be.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { open_browser, delta, end, ask, idle, reply, run } from "./page_open.mjs";

const [url, executablePath] = process.argv.slice(2);
const { browser, page, problems, elsewhere } = await open_browser(url, executablePath);
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const pixel = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z6AAAAMhASBBa7giAAAAAElFTkSuQmCC", "base64");
const gif = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");
const file = (name, buffer, mimeType = "image/png") => ({ name, mimeType, buffer });
const attach = (...files) => page.setInputFiles("#files", files);
const attached = page.locator("#attached img"), shown = page.locator(".turn.user .pictures img");
const notice = text => page.locator("#notice:visible", { hasText: text }).waitFor();
const dismiss = () => page.locator("#notice").getByRole("button", { name: "Dismiss" }).click();
const answer_with = text => page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: text }) + end)));
const drawn = images => images.evaluateAll(list => Promise.all(list.map(async image => { await image.decode(); return image.naturalWidth; })));

async function sent(question) { // the content of the last message of the request
  const request = page.waitForRequest("**/v1/chat/completions");
  await ask(page, question);
  const body = JSON.parse((await request).postData());
  await idle(page);
  return body.messages.map(m => m.content);
}

// An event of another program: files dropped on the page or pasted into it, and a text with them or not.
const bring = (event, name, buffer, text) => page.evaluate(([event, name, base64, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(base64), c => c.charCodeAt(0))], name, { type: "image/png" }));
  if (text) data.setData("text/plain", text);
  const init = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
  return !$("input").dispatchEvent(event === "paste" ? new ClipboardEvent(event, init) : new DragEvent(event, init));
}, [event, name, buffer.toString("base64"), text]);

function wide_png(width) { // one row of grey, of so many pixels
  const table = [...Array(256)].map((_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1; return n >>> 0; });
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]), out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length);
    body.copy(out, 4);
    out.writeUInt32BE(~body.reduce((c, b) => table[(c ^ b) & 255] ^ (c >>> 8), 0xffffffff) >>> 0, body.length + 4);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width);
  head.writeUInt32BE(1, 4);
  head[8] = 8;
  return Buffer.concat([pixel.subarray(0, 8), chunk("IHDR", head), chunk("IDAT", deflateSync(Buffer.alloc(width + 1))), chunk("IEND", Buffer.alloc(0))]);
}

const tests = {
  async "attaches a picture, and the model sees it"() {
    await page.goto(url);
    await page.locator("#attach:visible").waitFor();
    await page.evaluate(() => { settings.max_tokens = 6; });
    await attach(file("red.png", pixel));
    assert.deepEqual(await drawn(attached), [1]);
    const contents = await sent("what?");
    assert.deepEqual(contents.at(-1), [{ type: "image_url", image_url: { url: "data:image/png;base64," + pixel.toString("base64") } }, { type: "text", text: "what?" }]);
    assert.match(await page.locator(".turn.assistant .figures").textContent(), /6 tokens · prompt \d\d\d/); // 17 tiles
    assert.equal(await attached.count(), 0);
    assert.deepEqual(await drawn(shown), [1]);
    assert.equal(await shown.getAttribute("alt"), "red.png");
  },
  async "keeps it over a reload, and sends it with the next question"() {
    await page.reload();
    await page.locator("#attach:visible").waitFor();
    assert.deepEqual(await drawn(shown), [1]);
    await answer_with("Red.");
    const contents = await sent("and now?");
    assert.equal(contents.length, 3);
    assert.equal(contents[0][0].image_url.url.length, 22 + pixel.toString("base64").length);
    assert.equal(contents[2], "and now?");
  },
  async "takes pictures that are dropped and pasted, of every format by its bytes"() {
    const jpeg = Buffer.from(await page.evaluate(() => { const c = document.createElement("canvas"); c.width = c.height = 8; return c.toDataURL("image/jpeg").split(",")[1]; }), "base64");
    const webp = Buffer.from(await page.evaluate(() => { const c = document.createElement("canvas"); c.width = c.height = 9; return c.toDataURL("image/webp").split(",")[1]; }), "base64");
    assert.ok(await bring("dragover", "a.png", pixel));
    assert.ok(await page.locator("#drop").isVisible());
    assert.ok(await bring("drop", "a.png", jpeg));
    await attached.first().waitFor();
    assert.ok(!await page.locator("#drop").isVisible());
    assert.ok(await bring("paste", "image.png", webp));
    await attached.nth(1).waitFor();
    assert.ok(!await bring("paste", "cell.png", pixel, "a cell of a table")); // is text to the browser
    assert.deepEqual(await drawn(attached), [8, 9]);
    const content = (await sent("")).at(-1); // no text is needed
    assert.deepEqual(content.map(p => p.image_url.url.slice(0, 16)), ["data:image/jpeg;", "data:image/webp;"]);
    assert.equal(await page.locator(".turn.user .text:visible").count(), 2);
  },
  async "takes a picture back, and gives an edited question its own"() {
    await attach(file("one.png", pixel), file("two.png", pixel));
    await attached.nth(1).waitFor();
    await page.getByRole("button", { name: "Remove one.png" }).click();
    assert.deepEqual(await attached.evaluateAll(list => list.map(i => i.alt)), ["two.png"]);
    await page.hover(".turn.user >> nth=0");
    await page.locator(".turn.user").first().getByRole("button", { name: "Edit" }).click();
    assert.deepEqual(await attached.evaluateAll(list => list.map(i => i.alt)), ["red.png"]);
    await page.keyboard.press("Escape");
    assert.deepEqual(await attached.evaluateAll(list => list.map(i => i.alt)), ["two.png"]);
    await page.getByRole("button", { name: "Remove two.png" }).click();
    assert.ok(!await page.locator("#attached").isVisible());
  },
  async "says what is wrong with a file, and takes the others"() {
    await attach(file("cat.gif", gif, "image/gif"), file("broken.png", pixel.subarray(0, 30)), file("good.png", pixel), file("wide.png", wide_png(16385)));
    await notice("cat.gif: not a PNG, JPEG or WebP picture. broken.png: the file is damaged. wide.png: 16385 x 1 pixels; at most 16384 a side");
    assert.deepEqual(await attached.evaluateAll(list => list.map(i => i.alt)), ["good.png"]);
    await dismiss();
    await attach(file("big.png", Buffer.concat([pixel, Buffer.alloc(21 << 20)])));
    await notice("big.png: 21.0 MiB; at most 20");
    await attach(file("full.png", Buffer.concat([pixel, Buffer.alloc(7 << 20)])));
    await notice("more bytes than the server takes, 8 MiB");
    await attach(...[...Array(14)].map((_, i) => file(i + ".png", pixel)));
    await notice("at most 16 pictures");
    assert.equal(await attached.count(), 13); // beside three that were sent
    await dismiss();
  },
  async "tells what the server says of a picture"() {
    await page.unroute("**/v1/chat/completions");
    await page.keyboard.press("Alt+n");
    await page.evaluate(() => { attached = [new File(["\x89PNG"], "x.png", { type: "image/png" })]; });
    await ask(page, "what?");
    await page.locator(".say.bad:visible", { hasText: "messages[0].content[0]" }).waitFor();
  },
  async "is accessible with pictures, and fits a phone"() {
    await attach(file("red.png", pixel));
    await attached.waitFor();
    await page.setViewportSize({ width: 360, height: 640 });
    await page.evaluate(axe);
    const found = await page.evaluate(async () => (await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }))
      .violations.map(v => v.id + ": " + v.nodes.map(n => n.target + " " + n.failureSummary).join("; ")));
    assert.deepEqual(found, []);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  },
  async "a model without eyes takes none, and says so"() {
    await page.evaluate(() => { model.meta.modalities = ["text"]; attached = []; show_attached(); });
    await bring("drop", "a.png", pixel);
    await notice("This model has no eyes");
    assert.equal(await attached.count(), 0);
  },
  async "asks nothing of anyone else, and fails nowhere"() {
    assert.deepEqual(elsewhere.filter(u => !u.startsWith("blob:" + url)), []);
    assert.deepEqual(problems, []);
  },
};
await run("page with pictures", tests);

await browser.close();
