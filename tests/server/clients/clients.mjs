// clients.mjs URL MODEL - the real clients from npm, unmodified, against a running server. Exits with 1 at the first surprise.
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const [url, model] = process.argv.slice(2);
const key = "test-key";
const openai = new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me a short story about a fox." }];

const tests = {
  async "openai: models"() {
    const list = await openai.models.list();
    assert.equal(list.data[0].id, model);
    assert.equal((await openai.models.retrieve(model)).id, model);
  },
  async "openai: chat"() {
    const r = await openai.chat.completions.create({ model, messages, max_completion_tokens: 12, temperature: 0 });
    assert.ok(r.choices[0].message.content.length > 5);
    assert.equal(r.choices[0].finish_reason, "length");
    assert.equal(r.usage.completion_tokens, 12);
  },
  async "openai: content parts, the developer role, n, logprobs"() {
    const r = await openai.chat.completions.create({
      model, n: 2, seed: 5, max_tokens: 4, logprobs: true, top_logprobs: 2, user: "someone",
      messages: [{ role: "developer", content: "Be brief." }, { role: "user", content: [{ type: "text", text: "Hello" }] }],
    });
    assert.equal(r.choices.length, 2);
    assert.equal(r.choices[1].logprobs.content.length, r.usage.completion_tokens - r.choices[0].logprobs.content.length);
    assert.equal(r.choices[0].logprobs.content[0].top_logprobs.length, 2);
    assert.equal(r.warnings, undefined);
  },
  async "openai: a stream is the whole answer in pieces"() {
    const body = { model, messages, max_tokens: 30, seed: 11 };
    const whole = await openai.chat.completions.create(body);
    const stream = await openai.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
    let text = "", usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 30);
  },
  async "openai: the stream helper"() {
    const runner = openai.chat.completions.stream({ model, messages, max_tokens: 10 });
    assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, "length");
  },
  async "openai: abort"() {
    const stream = await openai.chat.completions.create({ model, messages, ignore_eos: true, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      stream.controller.abort();
    }
  },
  async "openai: completions"() {
    const r = await openai.completions.create({ model, prompt: "Once upon a time", max_tokens: 5, logprobs: 1, stop: ["never"], ignore_eos: true });
    assert.equal(typeof r.choices[0].text, "string");
    assert.equal(r.choices[0].logprobs.tokens.length, 5);
  },
  async "openai: errors have their classes"() {
    await assert.rejects(openai.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError);
    await assert.rejects(openai.chat.completions.create({ model, messages, temperature: -1 }), OpenAI.BadRequestError);
    await assert.rejects(openai.models.retrieve("none"), OpenAI.NotFoundError);
    const stranger = new OpenAI({ baseURL: url + "/v1", apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },
  async "anthropic: messages"() {
    const r = await anthropic.messages.create({ model, system: "Be brief.", messages, max_tokens: 12 });
    assert.equal(r.content[0].type, "text");
    assert.equal(r.stop_reason, "max_tokens");
    assert.equal(r.usage.output_tokens, 12);
  },
  async "anthropic: stream"() {
    const kinds = [], stream = anthropic.messages.stream({ model, messages, max_tokens: 12 });
    stream.on("streamEvent", event => kinds.push(event.type));
    const r = await stream.finalMessage();
    assert.equal(r.usage.output_tokens, 12);
    assert.equal(kinds[0], "message_start");
    assert.equal(kinds.at(-1), "message_stop");
  },
  async "anthropic: count_tokens and models"() {
    const n = (await anthropic.messages.countTokens({ model, messages })).input_tokens;
    const r = await anthropic.messages.create({ model, messages, max_tokens: 1 });
    assert.equal(r.usage.input_tokens + r.usage.cache_read_input_tokens, n);
    assert.equal((await anthropic.models.list()).data[0].id, model);
  },
  async "anthropic: errors have their classes"() {
    await assert.rejects(anthropic.messages.create({ model, messages: [], max_tokens: 1 }), Anthropic.BadRequestError);
    const stranger = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), Anthropic.AuthenticationError);
  },
};

for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log("ok   " + name);
  } catch (problem) {
    console.error("FAIL " + name + "\n", problem);
    process.exitCode = 1;
  }
}
