// page_open.mjs - what the tests of the chat page share: a browser, answers made up, and the list of tests.
import { chromium } from "playwright-core";

export async function open_browser(url, executablePath) {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"] });
  // A key in the browser's own login box opens the page; its requests carry it too.
  const context = await browser.newContext({ viewport: { width: 1100, height: 760 }, httpCredentials: { username: "x", password: "test-key" } });
  const page = await context.newPage(), problems = [], elsewhere = [];
  page.on("pageerror", error => problems.push(String(error)));
  page.on("console", message => { if (/Content Security Policy|TrustedType/.test(message.text())) problems.push(message.text()); });
  page.on("request", request => { if (!request.url().startsWith(url) && !/^(data|about):/.test(request.url())) elsewhere.push(request.url()); });
  return { browser, context, page, problems, elsewhere };
}

// A made-up stream: delta({content}) as often as wanted, then end.
export const delta = d => `data: ${JSON.stringify({ choices: [{ index: 0, delta: d }] })}\n\n`;
export const end = "data: [DONE]\n\n";
export const reply = body => ({ contentType: "text/event-stream", body });

export const idle = page => page.locator("#send").waitFor({ state: "visible", timeout: 30000 });
export async function ask(page, text) {
  await page.fill("#input", text);
  await page.press("#input", "Enter");
}

export async function run(name, tests) {
  for (const [what, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok   ${name}: ${what}`);
    } catch (problem) {
      console.error(`FAIL ${name}: ${what}\n`, problem);
      process.exitCode = 1;
      return;
    }
  }
}
