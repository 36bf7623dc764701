// types.mjs URL MODEL - what the server says, against the types that the clients' packages declare for it. Each reply, and each event of
// a stream, is written down as a constant of its type, and the TypeScript compiler judges: a field that is missing, of another type, or
// not known there is an error. Fields of ours beyond those (EXTRA) are taken out first. Exits with 1 at the first surprise.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import ts from "typescript";

const [url, model] = process.argv.slice(2);
const EXTRA = new Set(["timings", "warnings", "reasoning_content", "meta", "store"]); // store: OpenAI tells it, its client's types do not
const key = "test-key";
const source = ['import type OpenAI from "openai";', 'import type Anthropic from "@anthropic-ai/sdk";', 'import type * as Ollama from "ollama";'];
source.push("type Told<T> = T extends Date ? string : T extends Map<string, any> ? Record<string, any> : T extends (infer U)[] ? Told<U>[] :",
  "  T extends object ? { [K in keyof T]: Told<T[K]> } : T;"); // as JSON has it
source.push('type Response = Omit<OpenAI.Responses.Response, "output_text">;', // which the client adds
  'type Sent<T> = T extends { response: unknown } ? Omit<T, "response"> & { response: Response } : T;');
let n = 0;

function without(value, names) {
  if (Array.isArray(value)) return value.map(item => without(item, names));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.has(name)).map(([name, item]) => [name, without(item, names)]));
}

function expect(type, value) {
  source.push(`export const reply${n++}: ${type} = ${JSON.stringify(without(value, EXTRA))};`);
}

async function ask(path, body, headers = {}) {
  const init = { headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers } };
  const r = await fetch(url + path, body ? { ...init, method: "POST", body: JSON.stringify(body) } : init);
  return { status: r.status, text: await r.text() };
}

// A reply, or each event of a stream.
async function check(type, path, body, status = 200, headers = {}) {
  const r = await ask(path, body, headers);
  assert.equal(r.status, status, r.text);
  const stream = body?.stream && status === 200;
  const events = !stream ? [r.text] : [...r.text.matchAll(/^(?:data: )?(\{.*)$/gm)].map(match => match[1]);
  assert.ok(events.length > (stream ? 2 : 0), r.text);
  for (const event of events) expect(type, JSON.parse(event));
}

const schema = { type: "object", required: ["city"], additionalProperties: false, properties: { city: { enum: ["Rome", "Oslo"] } } };
const messages = [{ role: "user", content: "Tell me a story." }];
const chat = { model, messages, max_tokens: 6 };
const tools = [{ type: "function", function: { name: "weather", parameters: schema } }];
const flat = [{ type: "function", name: "weather", parameters: schema, strict: true }];
const call = { tool_choice: "required", parallel_tool_calls: false, seed: 1, max_tokens: 300 };
const anthropic = { "anthropic-version": "2023-06-01" };

const CHAT = "OpenAI.Chat.Completions.ChatCompletion", CHUNK = CHAT + "Chunk";
await check(CHAT, "/v1/chat/completions", chat);
await check(CHAT, "/v1/chat/completions", { ...chat, n: 2, logprobs: true, top_logprobs: 2 });
await check(CHAT, "/v1/chat/completions", { ...chat, ...call, tools });
await check(CHUNK, "/v1/chat/completions", { ...chat, stream: true, stream_options: { include_usage: true } });
await check(CHUNK, "/v1/chat/completions", { ...chat, stream: true, logprobs: true, top_logprobs: 2 });
await check(CHUNK, "/v1/chat/completions", { ...chat, ...call, tools, stream: true });
await check("OpenAI.Completions.Completion", "/v1/completions", { model, prompt: "A fox", max_tokens: 6, logprobs: 1 });
const CHOICE = "OpenAI.Completions.CompletionChoice", ENDS = '"finish_reason"'; // null before the end, which the type does not have
const PART = `Omit<OpenAI.Completions.Completion, "choices"> & { choices: (Omit<${CHOICE}, ${ENDS}> & { finish_reason: ${CHOICE}[${ENDS}] | null })[] }`;
await check(PART, "/v1/completions", { model, prompt: "A fox", max_tokens: 6, stream: true });
await check("OpenAI.Embeddings.CreateEmbeddingResponse", "/v1/embeddings", { model, input: ["A fox.", "A train."], encoding_format: "float" });
await check('{ object: "list"; data: OpenAI.Models.Model[] }', "/v1/models");
await check("OpenAI.Models.Model", "/v1/models/" + encodeURIComponent(model));
await check("{ error: OpenAI.ErrorObject }", "/v1/chat/completions", { model, messages: [] }, 400);

const RESPONSE = "Response", EVENT = "Sent<OpenAI.Responses.ResponseStreamEvent>";
const response = { model, input: "Tell me a story.", max_output_tokens: 6 };
const { max_tokens: _, ...calling } = call;
await check(RESPONSE, "/v1/responses", response);
await check(RESPONSE, "/v1/responses", { model, input: "Weather?", tools: flat, ...calling });
await check(EVENT, "/v1/responses", { ...response, stream: true });
await check(EVENT, "/v1/responses", { model, input: "Weather?", tools: flat, ...calling, stream: true });
await check("OpenAI.Responses.InputTokenCountResponse", "/v1/responses/input_tokens", { model, input: "Hello" });

const ask_tool = { tools: [{ name: "weather", input_schema: schema }], tool_choice: { type: "any", disable_parallel_tool_use: true } };
await check("Anthropic.Message", "/v1/messages", chat);
await check("Anthropic.Message", "/v1/messages", { ...chat, max_tokens: 300, ...ask_tool });
await check('Anthropic.RawMessageStreamEvent | { type: "ping" }', "/v1/messages", { ...chat, stream: true });
await check("Anthropic.MessageTokensCount", "/v1/messages/count_tokens", { model, messages });
await check("{ data: Anthropic.ModelInfo[]; has_more: boolean; first_id: string | null; last_id: string | null }", "/v1/models", undefined, 200, anthropic);
await check("Anthropic.ErrorResponse", "/v1/messages", { model, messages: [] }, 400);

const prompted = { model, prompt: "Tell me a story.", options: { num_predict: 6 } }, talked = { model, messages, options: { num_predict: 6 } };
const GENERATED = 'Told<Omit<Ollama.GenerateResponse, "context">>', CHATTED = "Told<Ollama.ChatResponse>"; // context is gone from Ollama's own docs
await check(GENERATED, "/api/generate", { ...prompted, stream: false });
await check(`Partial<${GENERATED}>`, "/api/generate", { ...prompted, stream: true });
await check(CHATTED, "/api/chat", { ...talked, stream: false });
await check(CHATTED, "/api/chat", { model, messages, stream: false, tools, options: { num_predict: 20 } });
await check(`Partial<${CHATTED}>`, "/api/chat", { ...talked, stream: true });
await check("Told<Ollama.EmbedResponse>", "/api/embed", { model, input: ["A fox.", "A train."] });
await check('{ models: Omit<Told<Ollama.ModelResponse>, "expires_at" | "size_vram">[] }', "/api/tags");
await check("{ models: Told<Ollama.ModelResponse>[] }", "/api/ps");
await check("Told<Ollama.ShowResponse>", "/api/show", { model });
await check("Ollama.VersionResponse", "/api/version");
await check("Ollama.ErrorResponse", "/api/chat", { model, messages: 1 }, 400);

writeFileSync("replies.ts", source.join("\n"));
const program = ts.createProgram(["replies.ts"], {
  strict: true, noEmit: true, skipLibCheck: true, types: [],
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
});
const problems = ts.getPreEmitDiagnostics(program).map(p => ts.flattenDiagnosticMessageText(p.messageText, "\n") + "\n  " +
  source[p.file ? p.file.getLineAndCharacterOfPosition(p.start).line : 0]?.slice(0, 300));
for (const problem of new Set(problems)) console.error("FAIL " + problem);
console.log(`${problems.length ? "FAIL" : "ok  "} types: ${n} replies and events`);
process.exitCode = problems.length ? 1 : 0;
