// clients.mjs URL MODEL - the real clients from npm, unmodified, against a running server. Exits with 1 at the first surprise.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import { Ollama } from "ollama";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const key = "test-key";
const openai = new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const ollama = new Ollama({ host: url, headers: { Authorization: "Bearer " + key } });
const compatible = createOpenAICompatible({
  name: "ingot", baseURL: url + "/v1", apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
});
const Weather = z.object({ city: z.enum(["Rome", "Oslo"]), days: z.number().int().min(1).max(7) });
const weatherSchema = {
  type: "object", required: ["city", "days"], additionalProperties: false,
  properties: { city: { enum: ["Rome", "Oslo"] }, days: { type: "integer", minimum: 1, maximum: 7 } },
};
const weatherTool = { type: "function", function: { name: "weather", description: "Tells the weather.", parameters: weatherSchema } };
const question = [{ role: "user", content: "What is the weather in Rome?" }];
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
    assert.match(r._request_id, /^req_/);
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
  async "openai: parse"() {
    const r = await openai.chat.completions.parse({
      model, messages: question, seed: 1, response_format: zodResponseFormat(Weather, "weather"),
    });
    Weather.parse(r.choices[0].message.parsed);
  },
  async "openai: tools, whole and streamed, and their results"() {
    const body = { model, messages: question, tools: [weatherTool], tool_choice: "required", parallel_tool_calls: false, seed: 3 };
    const r = await openai.chat.completions.create(body);
    const call = r.choices[0].message.tool_calls[0];
    assert.equal(r.choices[0].finish_reason, "tool_calls");
    Weather.parse(JSON.parse(call.function.arguments));
    const streamed = await openai.chat.completions.stream(body).finalChatCompletion();
    assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
    const next = await openai.chat.completions.create({
      model, max_tokens: 4, tools: [weatherTool],
      messages: [...question, r.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }],
    });
    assert.ok(next.choices[0].message.content.length > 0);
  },
  async "openai: runTools"() {
    let asked;
    const runner = openai.chat.completions.runTools({
      model, messages: question, max_tokens: 300, seed: 3, parallel_tool_calls: false,
      tool_choice: { type: "function", function: { name: "weather" } },
      tools: [{ type: "function", function: { ...weatherTool.function, parse: JSON.parse, function: args => { asked = args; return "sunny"; } } }],
    });
    await runner.done();
    Weather.parse(asked);
  },
  async "openai: logit_bias, penalties, json_object"() {
    const r = await openai.chat.completions.create({
      model, messages, max_tokens: 30, response_format: { type: "json_object" }, logit_bias: { 5: -100 },
      presence_penalty: 0.1, frequency_penalty: 0.1,
    });
    assert.equal(r.choices[0].message.content[0], "{");
    assert.equal(r.warnings, undefined);
  },
  async "openai: responses"() {
    const r = await openai.responses.create({ model, input: "Tell me a story.", instructions: "Be brief.", max_output_tokens: 12, store: false });
    assert.ok(r.output_text.length > 5);
    assert.equal(r.status, "incomplete");
    assert.equal(r.usage.output_tokens, 12);
    const parsed = await openai.responses.parse({ model, input: "Weather?", seed: 1, text: { format: zodTextFormat(Weather, "weather") } });
    Weather.parse(parsed.output_parsed);
  },
  async "openai: a response as a stream"() {
    const stream = openai.responses.stream({ model, input: [{ role: "user", content: "Tell me a story." }], max_output_tokens: 12 });
    let text = "";
    stream.on("response.output_text.delta", event => (text += event.delta));
    const r = await stream.finalResponse();
    assert.equal(r.output_text, text);
    assert.ok(text.length > 5);
  },
  async "openai: a response calls a tool"() {
    const stream = openai.responses.stream({
      model, input: "Weather?", parallel_tool_calls: false, tool_choice: "required", seed: 1,
      tools: [{ type: "function", name: "weather", strict: true, parameters: weatherSchema }],
    });
    const item = (await stream.finalResponse()).output.find(o => o.type === "function_call");
    Weather.parse(JSON.parse(item.arguments));
  },
  async "openai: embeddings, in base64 as the client asks and as numbers"() {
    const packed = await openai.embeddings.create({ model, input: ["A fox.", "A train."] });
    const plain = await openai.embeddings.create({ model, input: "A fox.", encoding_format: "float" });
    assert.equal(packed.data.length, 2);
    assert.equal(packed.data[0].embedding.length, plain.data[0].embedding.length);
    plain.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - packed.data[0].embedding[i]) < 1e-6));
    const short = await openai.embeddings.create({ model, input: "A fox.", dimensions: 3, encoding_format: "float" });
    assert.equal(short.data[0].embedding.length, 3);
    await assert.rejects(openai.embeddings.create({ model, input: "x", dimensions: 100000 }), OpenAI.BadRequestError);
  },
  async "openai: a schema that is not supported is an error with its name"() {
    const format = { type: "json_schema", json_schema: { name: "x", schema: { not: {} } } };
    await assert.rejects(openai.chat.completions.create({ model, messages, response_format: format }), /'not'/);
  },
  async "openai: errors have their classes"() {
    await assert.rejects(openai.chat.completions.create({ model, messages: [] }), problem => problem.param === "messages" && /^req_/.test(problem.requestID));
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
    assert.match(r._request_id, /^req_/);
    const begun = await anthropic.messages.create({
      model, max_tokens: 4, temperature: 0, messages: [...messages, { role: "assistant", content: "Once upon a time" }],
    });
    assert.equal(begun.warnings, undefined);
    assert.ok(!begun.content[0].text.startsWith("Once"));
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
  async "anthropic: tools, whole and streamed, and their results"() {
    const body = {
      model, messages: question, max_tokens: 300, temperature: 0, tool_choice: { type: "any", disable_parallel_tool_use: true },
      tools: [{ name: "weather", description: "Tells the weather.", input_schema: weatherSchema }],
    };
    const r = await anthropic.messages.create(body);
    assert.equal(r.stop_reason, "tool_use");
    const use = r.content.find(block => block.type === "tool_use");
    Weather.parse(use.input);
    const streamed = await anthropic.messages.stream(body).finalMessage();
    Weather.parse(streamed.content.find(block => block.type === "tool_use").input);
    const next = await anthropic.messages.create({
      ...body, max_tokens: 4, tool_choice: { type: "auto" },
      messages: [...question, { role: "assistant", content: r.content },
        { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }] }],
    });
    assert.equal(next.content[0].type, "text");
  },
  async "anthropic: errors have their classes"() {
    await assert.rejects(anthropic.messages.create({ model, messages: [], max_tokens: 1 }), Anthropic.BadRequestError);
    const stranger = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), Anthropic.AuthenticationError);
  },
  async "ollama: list, ps, show, version, loading"() {
    assert.equal((await ollama.list()).models[0].name, model);
    assert.equal((await ollama.ps()).models[0].model, model);
    assert.ok((await ollama.show({ model })).capabilities.includes("tools"));
    assert.match((await ollama.version()).version, /^\d+\.\d+/);
    assert.equal((await ollama.generate({ model, prompt: "", keep_alive: "10m", stream: false })).done_reason, "load");
    await assert.rejects(ollama.show({ model: "none" }), /not here/);
  },
  async "ollama: chat and generate, whole and streamed"() {
    const body = { model, messages, keep_alive: -1, options: { num_predict: 12, seed: 5, num_ctx: 4096, repeat_last_n: -1 } };
    const whole = await ollama.chat(body);
    assert.equal(whole.done_reason, "length");
    assert.equal(whole.eval_count, 12);
    assert.equal(whole.warnings, undefined);
    let text = "", last;
    for await (const part of await ollama.chat({ ...body, stream: true })) text += (last = part).message.content;
    assert.equal(text, whole.message.content);
    assert.equal(last.eval_count, 12);
    const prompted = { model, prompt: messages[0].content, options: body.options };
    assert.equal((await ollama.generate(prompted)).response, text);
    let pieces = "";
    for await (const part of await ollama.generate({ ...prompted, stream: true })) pieces += part.response;
    assert.equal(pieces, text);
  },
  async "ollama: a format, a tool and its result, embeddings, abort"() {
    const r = await ollama.chat({ model, messages: question, format: weatherSchema, options: { seed: 1 } });
    Weather.parse(JSON.parse(r.message.content));
    const called = { role: "assistant", content: "", tool_calls: [{ function: { name: "weather", arguments: { city: "Rome", days: 1 } } }] };
    const next = await ollama.chat({
      model, tools: [weatherTool], options: { num_predict: 6, temperature: 0 },
      messages: [...question, called, { role: "tool", tool_name: "weather", content: "sunny" }],
    });
    assert.ok(next.message.content.length > 0);
    assert.equal((await ollama.embed({ model, input: ["A fox.", "A train."] })).embeddings.length, 2);
    await assert.rejects(ollama.chat({ model, messages: [{ role: "user", content: "x", images: ["aGVsbG8="] }] }), /no pictures/);
    const stream = await ollama.chat({ model, messages, stream: true });
    await assert.rejects(async () => { for await (const part of stream) { assert.ok(part.model); stream.abort(); } }, /abort/i);
  },
  async "ai sdk: text, a stream, usage"() {
    const whole = await generateText({ model: compatible(model), prompt: "Tell me a story.", maxOutputTokens: 12 });
    assert.equal(whole.usage.outputTokens, 12);
    const result = streamText({ model: compatible(model), prompt: "Tell me a story.", maxOutputTokens: 12 });
    let text = "";
    for await (const part of result.textStream) text += part;
    assert.ok(text.length > 5);
    assert.equal((await result.usage).outputTokens, 12);
  },
  async "ai sdk: an object, a tool, an embedding"() {
    const { object } = await generateObject({ model: compatible(model), schema: Weather, prompt: "Weather?", seed: 1 });
    Weather.parse(object);
    const tools = { weather: tool({ description: "Tells it.", inputSchema: jsonSchema(weatherSchema), execute: async () => "sunny" }) };
    const called = await generateText({ model: compatible(model), tools, toolChoice: "required", prompt: "Weather?", maxOutputTokens: 400, temperature: 0 });
    Weather.parse(called.toolCalls[0].input);
    const vector = await embed({ model: compatible.textEmbeddingModel(model), value: "A fox." });
    assert.ok(vector.embedding.length > 10);
  },
  async "langchain: chat, a stream, structured output, tools, embeddings"() {
    const options = { model, apiKey: key, maxTokens: 300, maxRetries: 0, configuration: { baseURL: url + "/v1" } };
    const chat = new ChatOpenAI(options);
    assert.ok((await chat.invoke("Tell me a story.")).content.length > 5);
    let n = 0;
    for await (const chunk of await chat.stream("Tell me a story.")) n += chunk.content.length > 0;
    assert.ok(n > 5);
    Weather.parse(await chat.withStructuredOutput(Weather).invoke("Weather?"));
    const bound = chat.bindTools([weatherTool], { tool_choice: "required", parallel_tool_calls: false });
    Weather.parse((await bound.invoke("Weather?")).tool_calls[0].args);
    const vectors = new OpenAIEmbeddings({ model, apiKey: key, configuration: { baseURL: url + "/v1" } });
    assert.equal((await vectors.embedDocuments(["A fox.", "A train."])).length, 2);
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
