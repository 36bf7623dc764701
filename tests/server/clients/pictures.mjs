// pictures.mjs URL MODEL - pictures from the clients of npm, to a model with eyes.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Ollama } from "ollama";

const [url, model] = process.argv.slice(2), apiKey = "test-key";
const openai = new OpenAI({ baseURL: url + "/v1", apiKey, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
const ollama = new Ollama({ host: url, headers: { Authorization: "Bearer " + apiKey } });
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const data = "data:image/png;base64," + pixel, text = "what?";
const ask = image_url => [{ role: "user", content: [{ type: "image_url", image_url }, { type: "text", text }] }];
const greedy = { model, max_tokens: 6, temperature: 0 };

const chat = await openai.chat.completions.create({ ...greedy, messages: ask({ url: data }) });
const answer = chat.choices[0].message.content;
assert.equal(chat.usage.completion_tokens, 6);
assert.equal(chat.warnings, undefined);

let streamed = "";
for await (const chunk of await openai.chat.completions.create({ ...greedy, messages: ask({ url: data }), stream: true }))
  streamed += chunk.choices[0]?.delta?.content ?? "";
assert.equal(streamed, answer);

const low = await openai.chat.completions.create({ ...greedy, messages: ask({ url: data, detail: "low" }) });
assert.ok(low.usage.prompt_tokens < chat.usage.prompt_tokens);

const content = [{ type: "input_image", image_url: data, detail: "auto" }, { type: "input_text", text }];
const response = await openai.responses.create({ model, max_output_tokens: 6, temperature: 0, input: [{ role: "user", content }] });
assert.equal(response.output_text, answer);

const source = { type: "base64", media_type: "image/png", data: pixel };
const message = await anthropic.messages.create({ ...greedy, messages: [{ role: "user", content: [{ type: "image", source }, { type: "text", text }] }] });
assert.equal(message.content[0].text, answer);

const options = { num_predict: 6, temperature: 0 };
const told = await ollama.chat({ model, options, messages: [{ role: "user", content: text, images: [Buffer.from(pixel, "base64")] }] });
assert.equal(told.message.content, answer);

await assert.rejects(openai.chat.completions.create({ ...greedy, messages: ask({ url: "https://example.org/x.png" }) }),
  error => error instanceof OpenAI.BadRequestError && /fetches nothing/.test(error.message) && error.param === "messages[0].content[0]");
console.log("pictures: seen");
