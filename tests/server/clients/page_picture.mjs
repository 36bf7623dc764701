// page_picture.mjs URL CHROMIUM PICTURE - a picture of the chat page: an answer of the model, and a sample of Markdown in place of a second.
import { readFileSync } from "node:fs";
import { open_browser, delta, end, ask, idle, reply } from "./page_open.mjs";

const [url, executablePath, picture] = process.argv.slice(2);
const { browser, page } = await open_browser(url, executablePath);
await page.setViewportSize({ width: 1280, height: 920 });
await page.goto(url);
await page.locator("#model[data-state=ready]").waitFor();
await page.evaluate(() => { settings.seed = 5; });
await ask(page, "Tell me a short story about a fox.");
await idle(page);
await page.route("**/v1/chat/completions", route => route.fulfill(reply(delta({ content: readFileSync("page_picture.md", "utf8") }) + end)));
await ask(page, "How does Markdown look here?");
await idle(page);
await page.waitForTimeout(300);
await page.screenshot({ path: picture });
await browser.close();
