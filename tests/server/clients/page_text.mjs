// page_text.mjs URL CHROMIUM - answers as Markdown: what is shown, that nothing a model writes becomes active, and what a long answer
// costs. All of it with markdown-it, as far as the build found one, and without.
import assert from "node:assert/strict";
import { open_browser, delta, end, ask, idle, reply, run } from "./page_open.mjs";

const [url, executablePath] = process.argv.slice(2);
const { browser, context, page, problems, elsewhere } = await open_browser(url, executablePath);

const HOSTILE = [
  "<script>hacked=1</script>", "<img src=x onerror=hacked=1>", "<svg onload=hacked=1>", "<svg><script>hacked=1</script></svg>",
  "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>", "<math><mi xlink:href='javascript:hacked=1'>x</mi></math>",
  "[a](javascript:hacked=1)", "[a](JaVaScRiPt:hacked=1)", "[a](java\nscript:hacked=1)", "[a](&#106;avascript:hacked=1)", "[a](\u0001javascript:hacked=1)",
  "[a](vbscript:x)", "[a](data:text/html,<script>hacked=1</script>)", "[a](file:///etc/passwd)", "[a](blob:x)", "[a](//evil.example)", "[a](/v1/models)",
  "[a](ftp://x)", "<javascript:hacked=1>", "[a]: javascript:hacked=1\n\n[a]", "[a][b]\n\n[b]: data:text/html,x 'title\" onmouseover=hacked=1'",
  "![a](x onerror=hacked=1)", "![a](https://evil.example/x.png)", "![a](data:image/svg+xml,<svg onload=hacked=1>)", "![a][b]\n\n[b]: http://evil.example/x.png",
  "[a](https://x.example/\"onmouseover=\"hacked=1)", "[a](https://x.example 'title\" onclick=\"hacked=1')", "https://x.example/\"><script>hacked=1</script>",
  "```\"><img src=x onerror=hacked=1>\n</code></pre><script>hacked=1</script>\n```", "```c onclick=hacked=1\nx\n```", "`</code><script>hacked=1</script>`",
  "|<script>hacked=1</script>|[x](javascript:hacked=1)|\n|:-:|--\" onclick=hacked=1|\n|<img src=x onerror=hacked=1>|b|", "<a href='javascript:hacked=1'>x</a>",
  "# <img src=x onerror=hacked=1>", "- <style>*{display:none}</style>", "> <base href=//evil.example>", "<meta http-equiv=refresh content='0;url=//evil.example'>",
  "<form action=//evil.example><input name=hacked></form>", "<object data=//evil.example></object>", "<link rel=stylesheet href=//evil.example>", "<!--<img src=x onerror=hacked=1>-->",
  "{{constructor.constructor('hacked=1')()}}", "${hacked=1}", "&lt;script&gt;hacked=1&lt;/script&gt;", "<x onclick=hacked=1 id=input>", "<img name=getElementById>", "\u202e<b>\u0000</b>",
];
const DOCUMENTS = [
  "# One\n\nText *with* **forms** and `code`.\n\n## Two\n\n- a\n- b\n  - c\n\n    d\n- e\n\n1. x\n2. y\n\n7. z\n", "Setext\n===\n\nmore\n---\n\n> quote\nlazy\n>\n> - list\n\nend",
  "```c\nint x;\n\n\nint y;\n```\ntext\n~~~\nopen fence\n\nthat never ends", "|a|b|\n|-|:-:|\n|1|2|\n|3|4|\n\nafter\n\n    indented\n\n    code\n\nlast",
  "[late] is a link\n\ntext\n\n[late]: https://x.example\n\n[late] again\n\n- [late]\n", "a\r\nb\r\n\r\nc\rd\r\n\r\n- e\r\n", "* * *\n\n***\n\n__a__ _b_ ~~c~~ \\*d\\* &amp; https://x.example.\n\n1) a\n1) b\n\n- a\n+ b\n",
];
const random = (state => () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648)(7);
const mixed = n => Array.from({ length: n }, () => HOSTILE[Math.floor(random() * HOSTILE.length)] + ["", "\n", "\n\n", " ", "\n- ", "\n> ", "`", "**", "|"][Math.floor(random() * 9)]).join("");

// In the page: nothing stands in a node but what markdown.js makes.
const check = (texts) => {
  const TAGS = "P BR H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE DIV SPAN BUTTON TABLE THEAD TBODY TR TH TD HR STRONG EM S A".split(" ");
  const NAMES = ["class", "href", "target", "rel", "referrerpolicy", "type", "tabindex", "role", "aria-label", "start", "style"], wrong = [];
  for (const text of texts) {
    const into = document.body.appendChild(document.createElement("div"));
    const view = markdown.view(into, { copy() {} });
    for (let n = 1; n < text.length; n += 7) view.set(text.slice(0, n));
    view.set(text, true);
    for (const e of into.querySelectorAll("*")) {
      if (!TAGS.includes(e.tagName)) wrong.push(e.tagName + " of " + text);
      for (const a of e.attributes) if (!NAMES.includes(a.name)) wrong.push(a.name + " of " + text);
      if (e.hasAttribute("style") && !/^text-align: (left|right|center);$/.test(e.getAttribute("style"))) wrong.push(e.getAttribute("style"));
      if (e.tagName !== "A") continue;
      if (!["https:", "http:", "mailto:"].includes(e.protocol) || e.origin === location.origin) wrong.push(e.href + " of " + text);
      if (e.rel !== "noopener noreferrer" || e.target !== "_blank") wrong.push("a link without rel, of " + text);
      e.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    }
    into.remove();
  }
  return { wrong, hacked: typeof hacked !== "undefined" };
};

async function nothing_active() {
  const found = await page.evaluate(`(${check})(${JSON.stringify([...HOSTILE, ...HOSTILE.map(h => "text " + h + " text"), ...Array.from({ length: 300 }, () => mixed(4)), mixed(200)])})`);
  assert.deepEqual(found, { wrong: [], hacked: false });
  await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: HOSTILE.join("\n\n"), reasoning_content: HOSTILE.join("\n") }) + end)));
  await page.keyboard.press("Alt+n");
  await ask(page, HOSTILE[1]);
  await idle(page);
  await page.unroute("**/v1/chat/completions");
  assert.equal(await page.locator("#talk").locator("img, script, iframe, form, object, style, base").count(), 0);
  assert.equal(await page.evaluate(() => typeof hacked), "undefined");
  assert.deepEqual(elsewhere, []);
}

// An answer of some 20,000 tokens, 85 KB, token by token: what is parsed, in characters, and what it takes.
const cost = kind => {
  const prose = "## Part\n\nSome *text* with `code` and [a link](https://x.example/c), quite as models write it.\n\n- first\n- second\n\n```c\nint x = 1;\n```\n\n";
  const text = kind === "code" ? "```c\n" + "    x = call(y, z);\n".repeat(4200) : kind === "list" ? "- an item of a list\n".repeat(1000) : prose.repeat(600);
  const into = document.querySelector("#talk").appendChild(document.createElement("div")), view = markdown.view(into, { copy() {} });
  let parsed = 0, most = 0, begun = performance.now();
  const type = globalThis.markdownit && Object.getPrototypeOf(markdownit()), parse = type && type.parse;
  if (type) type.parse = function (tail, environment) { parsed += tail.length; return parse.call(this, tail, environment); };
  for (let n = 64; n < text.length + 64; n += 64) { // some 15 tokens a frame: 900 tokens/s
    const at = performance.now();
    view.set(text.slice(0, n), n >= text.length);
    most = Math.max(most, performance.now() - at);
  }
  if (type) type.parse = parse;
  const shown = into.textContent.length;
  into.remove();
  return { characters: text.length, updates: Math.ceil(text.length / 64), parsed, shown, most_ms: Math.round(most), all_ms: Math.round(performance.now() - begun) };
};

const tests = {
  async "shows headings, lists, tables, links and code with Copy"() {
    await page.goto(url);
    await page.locator("#model[data-state=ready]").waitFor();
    if (!await page.evaluate(() => markdown.rich)) return console.log("     left out: this build has no markdown-it");
    const text = "# One\n\n1. a\n   - b\n\n|x|y|\n|-|-:|\n|1|2|\n\n[l](https://x.example) <b>raw</b> ![alt](https://x.example/p.png)\n\n```python\nprint(1)\n```\n";
    await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: text }) + end)));
    await ask(page, "Show");
    await idle(page);
    await page.unroute("**/v1/chat/completions");
    const last = page.locator(".turn.assistant .text").last();
    assert.equal(await last.locator("h3").textContent(), "One");
    assert.equal(await last.locator("ol > li > ul > li").textContent(), "b");
    assert.deepEqual(await last.locator("td").allTextContents(), ["1", "2"]);
    assert.match(await last.locator("p").last().textContent(), /l <b>raw<\/b> alt/);
    assert.equal(await last.locator("a").count(), 2);
    assert.equal(await last.locator(".code .bar span").first().textContent(), "python");
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await last.getByRole("button", { name: "Copy the code" }).click();
    await last.getByText("Copied").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "print(1)");
    await page.evaluate(() => { navigator.clipboard.writeText = () => Promise.reject(new Error("no")); });
    await page.locator(".turn.assistant .acts").last().getByRole("button", { name: "Copy" }).click();
    await page.locator(".turn.assistant .acts").last().getByText("Copied").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
  },
  async "a growing text is shown as the whole one is"() {
    const differ = await page.evaluate(texts => texts.filter(text => {
      const views = [1, 2, 5, 1e9].map(step => {
        const into = document.createElement("div"), view = markdown.view(into, { copy() {} });
        for (let n = step; n < text.length; n += step) view.set(text.slice(0, n));
        view.set(text, true);
        into.normalize();
        return into.innerHTML;
      });
      return new Set(views).size > 1;
    }), [...DOCUMENTS, DOCUMENTS.join("\n\n"), ...HOSTILE]);
    assert.deepEqual(differ, []);
  },
  async "a block that grows keeps the nodes that stay, and what is selected in them"() {
    if (!await page.evaluate(() => markdown.rich)) return;
    assert.deepEqual(await page.evaluate(() => ["- a\n- b\n- c", "1. a\n2. b", "```c\nint x;"].map(text => {
      const into = document.createElement("div"), view = markdown.view(into, { copy() {} });
      view.set(text);
      const first = into.querySelector("li, pre");
      view.set(text + " and\n  more");
      return first === into.querySelector("li, pre") && /more/.test(into.textContent);
    })), [true, true, true]);
  },
  "nothing that a model writes becomes active": nothing_active,
  async "a long answer stays cheap"() {
    for (const kind of ["prose", "code", "list"]) {
      const spent = await page.evaluate(`(${cost})("${kind}")`);
      console.log("     " + kind + ": " + JSON.stringify(spent));
      assert.ok(spent.shown > spent.characters * .5);
      if (kind === "prose") assert.ok(spent.parsed < 10 * spent.characters, "all is parsed again and again");
    }
  },
  async "a text made to be slow is shown as it is"() {
    for (const text of ["[a](".repeat(20000), "|a".repeat(3000) + "|\n" + "|-".repeat(3000) + "|\n" + ("|x".repeat(20) + "|\n").repeat(800), "*a **b ".repeat(20000)]) {
      const [shown, ms] = await page.evaluate(t => {
        const into = document.body.appendChild(document.createElement("div")), begun = performance.now();
        markdown.view(into, { copy() {} }).set(t, true);
        const shown = into.textContent, ms = performance.now() - begun;
        into.remove();
        return [shown === t || shown.length > t.length / 4, ms];
      }, text);
      console.log(`     ${text.slice(0, 8)}…: ${Math.round(ms)} ms`);
      assert.ok(shown);
      assert.ok(ms < 15000);
    }
  },
  async "without markdown-it an answer is plain text"() {
    await page.route(url + "/", async route => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace(/<script>[^]*?<\/script>/, "") });
    });
    await page.goto("about:blank");
    await page.goto(url + "/");
    await page.locator("#model[data-state=ready]").waitFor();
    assert.equal(await page.evaluate(() => markdown.rich), false);
    await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: "# One\n\n**two**" }) + end)));
    await ask(page, "Show");
    await idle(page);
    assert.equal(await page.locator(".turn.assistant .text").last().innerHTML(), "# One\n\n**two**");
    await nothing_active();
  },
  async "runs its own scripts and no others"() {
    const policy = (await page.request.get(url, { headers: { Authorization: "Bearer test-key" } })).headers()["content-security-policy"];
    assert.match(policy, /^default-src 'none'; script-src( 'sha256-[\w+/]{43}=')+; style-src 'sha256-[\w+/]{43}=';/);
    assert.ok(!/unsafe/.test(policy));
    assert.deepEqual(problems, []);
    await page.evaluate(() => { const s = document.createElement("script"); try { s.textContent = "hacked=1"; } catch { /* a Trusted Type is missing */ } document.body.append(s); });
    assert.equal(await page.evaluate(() => typeof hacked), "undefined");
    assert.equal(await page.evaluate(() => { try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>"); return "made"; } catch (e) { return e.name; } }), "TypeError");
  },
};
await run("text", tests);
await browser.close();
