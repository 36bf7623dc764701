// page.js - what is on the page: the list of conversations, the turns of one, the field to write in, the settings.
const $ = id => document.getElementById(id);
const KNOBS = [ // field, name, least, most, step, default; max_tokens and seed are left out of a request where they are 0
  ["temperature", "Temperature", 0, 2, 0.05, 0.8], ["top_k", "Top-k", 0, 200, 1, 40], ["top_p", "Top-p", 0, 1, 0.01, 0.95],
  ["min_p", "Min-p", 0, 1, 0.01, 0.05], ["repeat_penalty", "Repeat penalty", 1, 2, 0.01, 1],
  ["presence_penalty", "Presence", -2, 2, 0.1, 0], ["frequency_penalty", "Frequency", -2, 2, 0.1, 0],
  ["max_tokens", "Longest answer", 0, 4096, 16, 0], ["seed", "Seed", 0, 9999, 1, 0]];
const DEFAULTS = Object.fromEntries(KNOBS.map(k => [k[0], k[5]]));
const BASE = { system: "", stops: "", key: "", ...DEFAULTS };
const SAVE_MS = 1000, GONE_MS = 6000; // a turn that is being written is saved so often, and taken for abandoned after so long
const UNDO_MS = 20000, WATCH_MS = 15000;
const WINDOW_TURNS = 40, WINDOW_CHARACTERS = 200000; // shown at once; earlier ones on demand

let settings = store.setting(BASE);
let chats = [];        // of the list, the latest first
let current = null;    // the open conversation, null: a new one
let turns = new Map(); // id -> turn of the open conversation
let tree = null;       // parent's id -> turns, made when it is asked for
let leaf = null;       // id of the last turn that is shown
let shown_turns = WINDOW_TURNS;
let editing = null;    // the question of which a new version is being written, and the draft it pushed aside
let attached = [];     // pictures of the message that is being written
let model = null;      // as /v1/models tells it
const own = new Set();   // ids of the turns that this tab has written
const runs = new Map();  // turn's id -> { turn, controller }: the answers that this tab is receiving
const boxes = new Map(); // turn's id -> its nodes on the page

const icon = name => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), use = document.createElementNS(svg.namespaceURI, "use");
  use.setAttribute("href", "#i-" + name);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
};
const button = (text, action, name = "plain", picture = null) => {
  const b = element("button", name);
  b.type = "button";
  b.onclick = action;
  if (picture) b.append(icon(picture));
  if (name.includes("icon")) b.setAttribute("aria-label", b.title = text); else b.append(element("span", "", text));
  return b;
};

// ---- notices and copying

let notice_timer = 0, notice_end = () => {};
function notice(text, { action, label, ms = 4000, end = () => {} } = {}) {
  close_notice();
  notice_end = end;
  const close = button("Dismiss", close_notice, "icon", "close");
  $("notice").replaceChildren(element("span", "", text), ...(action ? [button(label, () => { notice_end = () => {}; close_notice(); action(); }, "act")] : []), close);
  $("notice").hidden = false;
  if (ms) notice_timer = setTimeout(close_notice, ms);
}
function close_notice() {
  clearTimeout(notice_timer);
  $("notice").hidden = true;
  const end = notice_end;
  notice_end = () => {};
  end();
}

async function copy(text, from) {
  let done = false;
  try { await navigator.clipboard.writeText(text); done = true; } catch { // there is no clipboard on a plain http address
    const field = document.body.appendChild(element("textarea", "unseen"));
    field.value = text;
    field.select();
    done = document.execCommand("copy");
    field.remove();
    from.focus();
  }
  const word = from.querySelector("span") || from, was = word.dataset.was ||= word.textContent;
  word.textContent = done ? "Copied" : "Not copied";
  say(word.textContent);
  setTimeout(() => { word.textContent = was; }, 1500);
}
const say = text => $("spoken").append(element("p", "", text));

// ---- the tree of turns

function put_turn(turn) { turns.set(turn.id, turn); tree = null; }
function children(parent) { // the earliest first
  if (!tree) {
    tree = new Map();
    [...turns.values()].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1))
      .forEach(t => tree.has(t.parent) ? tree.get(t.parent).push(t) : tree.set(t.parent, [t]));
  }
  return tree.get(parent) || [];
}
function path(end = leaf) {
  const list = [];
  for (let t = turns.get(end); t; t = turns.get(t.parent)) list.push(t);
  return list.reverse();
}
function descend(id) { // to the end of the newest branch below
  for (let next = children(id); next.length; next = children(id)) id = next.at(-1).id;
  return id;
}
const running = () => path().map(t => runs.get(t.id)).find(r => r);
const abandoned = t => t.state === "running" && !runs.has(t.id) && Date.now() - t.beat > GONE_MS;

let save_failed = false;
async function save(chat, ...changed) {
  changed.forEach(t => own.add(t.id));
  if (chat === current) chat.leaf = leaf; // another tab's may have come in between
  try { await store.put(chat, ...changed); save_failed = false; } catch (problem) {
    if (save_failed) return; // told once
    save_failed = true;
    notice(problem.name === "QuotaExceededError" ? "This browser's storage is full: what is new here will be lost with this tab. Delete chats that you no longer need."
      : "The browser could not save this conversation: " + problem.message, { ms: 0 });
  }
}

// ---- what is shown

function figures(turn) {
  const t = turn.timings, parts = [];
  if (!t) return "";
  if (t.predicted_n > 1) parts.push(`${t.predicted_per_second.toFixed(1)} tokens/s`);
  parts.push(`${t.predicted_n} tokens`, `prompt ${t.prompt_n + t.cache_n}` + (t.cache_n ? ` (${t.cache_n} reused)` : ""));
  if (turn.first_ms) parts.push(`first after ${Math.round(turn.first_ms)} ms`);
  return parts.join(" · ");
}

const used = turn => turn.timings ? turn.timings.prompt_n + turn.timings.cache_n + turn.timings.predicted_n : 0;
const full = turn => turn.code === "context_length_exceeded" || (turn.finish === "length" && model && used(turn) >= model.meta.context - 1);

// How an answer ended, where it did not end by itself: { text, bad, again }, again: a second answer may help.
function ending(turn) {
  if (full(turn)) return { text: `The context is full: the model holds ${model ? model.meta.context + " tokens" : "no more"}, and question and answer count. ` +
    "Start a new chat, ask in fewer words, or start the server with a larger -c." };
  if (turn.state === "error") return { text: turn.error, bad: true, again: true };
  if (turn.state === "lost") return { text: "The connection to the server was lost before the answer ended.", bad: true, again: true };
  if (turn.state === "stopped") return { text: "Stopped.", again: true };
  if (abandoned(turn)) return { text: "Interrupted: the page was closed before the answer ended.", again: true };
  if (turn.state === "running" && !runs.has(turn.id)) return { text: "Being written in another tab…" };
  if (turn.finish === "length") return { text: "Cut at the longest answer that the settings allow." };
  return null;
}

function show_ending(turn, box) {
  const end = runs.has(turn.id) ? null : ending(turn);
  box.say.hidden = !end;
  if (!end) return;
  box.say.className = "say" + (end.bad ? " bad" : "");
  box.say.replaceChildren(element("span", "", end.text), ...(end.again ? [button("Try again", () => answer(turn.parent), "act", "again")] : []),
    ...(full(turn) ? [button("New chat", fresh, "act", "new")] : []));
}

function show_acts(turn, box, busy) {
  const brothers = children(turn.parent), at = brothers.indexOf(turn), list = [];
  if (brothers.length > 1) {
    const count = element("span", "count"), step = (text, by, picture) => {
      const b = button(text, () => { leaf = descend(brothers[at + by].id); current.leaf = leaf; save(current); show(); }, "plain icon", picture);
      b.disabled = !brothers[at + by];
      return b;
    };
    count.append(step("Earlier version", -1, "left"), `${at + 1} / ${brothers.length}`, step("Later version", 1, "right"));
    list.push(count);
  }
  if (turn.content) { const b = button("Copy", () => copy(turn.content, b), "plain", "copy"); list.push(b); }
  if (!busy && turn.role === "user") list.push(button("Edit", () => edit(turn), "plain", "edit"));
  if (!busy && turn.role === "assistant" && !ending(turn)?.again) list.push(button("Regenerate", () => answer(turn.parent), "plain", "again"));
  list.push(element("span", "figures", figures(turn)));
  box.acts.replaceChildren(...(runs.has(turn.id) ? [] : list));
}

// The moving part of an answer; done: nothing follows.
function paint(turn, done) {
  const box = boxes.get(turn.id);
  if (!box) return;
  const near = near_end();
  box.thoughts.hidden = !turn.thoughts;
  if (turn.thoughts) {
    if (box.thoughts.open || !done) box.thought.set(turn.thoughts);
    box.thoughts.open ||= !done && !turn.content;
  }
  box.view.set(turn.content, done);
  box.text.classList.toggle("waits", !done && !turn.content && !turn.thoughts);
  if (done) box.node.removeAttribute("aria-busy");
  if (near) to_end();
}

function picture_list(files) {
  const list = element("ul", "pictures");
  list.setAttribute("aria-label", "Pictures");
  list.append(...pictures.list(files));
  return list;
}

function turn_box(turn) {
  const node = element("article", "turn " + turn.role), text = element("div", "text"), live = runs.has(turn.id);
  const box = { node, text, say: element("div", "say"), acts: element("div", "acts"), thoughts: element("details", "thoughts") };
  node.append(element("h2", "unseen", turn.role === "user" ? "You" : "Answer"), text, box.acts);
  boxes.set(turn.id, box);
  if (turn.role === "user") {
    text.textContent = turn.content;
    text.hidden = !turn.content;
    if (turn.pictures?.length) text.before(picture_list(turn.pictures));
    return box;
  }
  const thought = element("div"), set = markdown.view(thought, { copy, plain: true });
  box.thoughts.append(element("summary", "", "Reasoning"), thought);
  box.thoughts.ontoggle = () => set.set(turn.thoughts);
  box.thought = set;
  box.view = markdown.view(text, { copy, settled: block => live && say(block.textContent) });
  text.before(box.thoughts);
  text.after(box.say);
  (turn.warnings || []).forEach(w => box.say.after(element("p", "say", w)));
  if (live) node.setAttribute("aria-busy", "true");
  paint(turn, !live);
  return box;
}

function show_chats() {
  $("chats").replaceChildren(...chats.filter(c => !c.deleted).map(c => {
    const li = element("li", c === current ? "current" : ""), open = button(c.title, () => { go(c.id); hide_side(); }, "open");
    if (c === current) open.setAttribute("aria-current", "page");
    open.title = c.title;
    li.append(open, button("Delete " + c.title, () => remove([c]), "icon", "close"));
    return li;
  }));
  $("forget").hidden = !chats.some(c => !c.deleted);
}

function show_controls() {
  const busy = running(), last = path().findLast(t => t.timings), context = model && model.meta.context;
  $("send").hidden = !!busy;
  $("stop").hidden = !busy;
  $("room").textContent = last && context && used(last) > context * .75 ? `${used(last)} of ${context} tokens of context are used` : "";
}

function greeting() {
  const box = element("div", "empty");
  box.append(icon("mark"), element("h2", "", "What would you like to know?"),
    element("p", "", store.lasting() ? "What you write stays in this browser and on the server's machine." : "This browser keeps no data here: chats end with this tab."));
  return box;
}

function show() {
  const list = path(), nodes = [];
  let first = list.length;
  for (let n = 0, characters = 0; first > 0 && n < shown_turns && characters < WINDOW_CHARACTERS * shown_turns / WINDOW_TURNS; n++) characters += list[--first].content.length;
  if (first > 0) nodes.push(button(`Show earlier messages (${first})`, () => {
    const height = $("talk").scrollHeight;
    shown_turns += WINDOW_TURNS;
    show();
    $("talk").scrollTop = $("talk").scrollHeight - height;
  }, "earlier"));
  boxes.clear();
  nodes.push(...list.slice(first).map(turn => turn_box(turn).node));
  $("talk").replaceChildren(...(list.length ? nodes : [greeting()]));
  refresh_ends();
  show_chats();
  to_end();
}

function refresh_ends() { // what stands below the turns
  const busy = running();
  boxes.forEach((box, id) => {
    const turn = turns.get(id);
    if (turn.role === "assistant") show_ending(turn, box);
    show_acts(turn, box, busy);
  });
  show_controls();
}

const near_end = () => $("talk").scrollHeight - $("talk").scrollTop - $("talk").clientHeight < 60;
const to_end = () => { $("talk").scrollTop = $("talk").scrollHeight; };

// ---- conversations

let opening = null; // the conversation whose turns are being read; nothing is sent meanwhile
async function open_chat(id) {
  const chat = chats.find(c => c.id === id && !c.deleted) || null;
  if (chat !== current) { shown_turns = WINDOW_TURNS; stop_editing(); }
  opening = chat;
  const list = chat ? await store.turns(chat.id) : [];
  if (opening !== chat) return;
  opening = null;
  current = chat;
  turns = new Map();
  tree = null;
  list.forEach(t => put_turn(runs.has(t.id) ? runs.get(t.id).turn : t));
  leaf = chat && descend(turns.has(chat.leaf) ? chat.leaf : null);
  show();
}
const named = () => decodeURIComponent(location.hash.slice(1));
function go(id) {
  if (named() !== (id || "")) history.pushState(null, "", id ? "#" + id : location.pathname + location.search);
  open_chat(id);
}
const wide = matchMedia("(pointer: fine)");
function fresh() { go(null); hide_side(); if (wide.matches) $("input").focus(); }

const by_time = (a, b) => b.changed - a.changed;
async function load_chats() { // an object stands for one conversation as long as the page lives
  const known = new Map(chats.map(c => [c.id, c]));
  for (const record of await store.chats()) {
    const chat = known.get(record.id) || record;
    known.set(record.id, Object.assign(chat, { deleted: undefined }, record));
  }
  chats = [...known.values()].sort(by_time);
  const gone = chats.filter(c => c.deleted && Date.now() - c.deleted > 3 * UNDO_MS);
  if (gone.length) forget(gone);
}
function forget(list) {
  chats = chats.filter(c => !list.includes(c));
  store.remove(list.map(c => c.id));
}

// Another tab wrote: its turns are added, and nothing of this tab's is replaced.
async function follow(id) {
  await load_chats();
  if (!current || current.id !== id) { show_chats(); return; }
  if (current.deleted) { stop(); fresh(); return; }
  const list = await store.turns(id);
  let added = false;
  list.filter(t => !own.has(t.id) || !turns.has(t.id)).forEach(t => { added ||= !turns.has(t.id); put_turn(t); });
  if (added && !running()) { leaf = descend(leaf); show(); return; }
  boxes.forEach((box, key) => { if (turns.get(key).role === "assistant" && !own.has(key)) paint(turns.get(key), turns.get(key).state !== "running"); });
  refresh_ends();
  show_chats();
}

function remove(list) {
  const here = list.includes(current) ? current.id : null;
  runs.forEach(run => { if (list.some(c => c.id === run.turn.chat)) run.controller.abort(); });
  close_notice();
  list.forEach(c => { c.deleted = Date.now(); save(c); });
  if (here) fresh(); else show_chats();
  notice(list.length > 1 ? `${list.length} chats deleted` : "Chat deleted", {
    label: "Undo", ms: UNDO_MS,
    action: () => { list.forEach(c => { c.deleted = undefined; save(c); }); show_chats(); if (here) go(here); },
    end: () => forget(list),
  });
}

// ---- asking

async function message(turn) { // pictures first: behind the text answers are worse
  if (!turn.pictures?.length) return { role: turn.role, content: turn.content };
  const parts = await Promise.all(turn.pictures.map(pictures.part));
  return { role: turn.role, content: turn.content ? [...parts, { type: "text", text: turn.content }] : parts };
}

async function request(question) {
  const body = { messages: [], stream: true, stream_options: { include_usage: true } };
  KNOBS.forEach(([field]) => { if (!(["max_tokens", "seed"].includes(field) && !settings[field])) body[field] = Number(settings[field]); });
  const stops = settings.stops.split("\n").filter(s => s);
  if (stops.length) body.stop = stops;
  const said = path(question).filter(t => t.content || t.pictures?.length);
  if (settings.system.trim()) said.unshift({ role: "system", content: settings.system });
  body.messages = await Promise.all(said.map(message));
  return body;
}

const headers = () => settings.key ? { "Content-Type": "application/json", Authorization: "Bearer " + settings.key } : { "Content-Type": "application/json" };

const problem_of = (message, code) => Object.assign(new Error(message), { code, told: true });

function take(turn, event) {
  if (event.error) throw problem_of(event.error.message, event.error.code);
  const choice = event.choices && event.choices[0];
  if (choice && choice.delta && choice.delta.content) turn.content += choice.delta.content;
  if (choice && choice.delta && choice.delta.reasoning_content) turn.thoughts = (turn.thoughts || "") + choice.delta.reasoning_content;
  if (choice && choice.finish_reason) turn.finish = choice.finish_reason;
  if (event.timings) turn.timings = event.timings;
  if (event.warnings) turn.warnings = event.warnings;
}

// Returns whether the stream came to its end.
async function read_events(response, turn, changed) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = "";;) {
    const { value, done } = await reader.read();
    if (done) return false;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const e of events) {
      if (e === "data: [DONE]") { changed(); return true; }
      if (e.startsWith("data: ")) take(turn, JSON.parse(e.slice(6)));
    }
    changed();
  }
}

async function ask(body, turn, signal, changed) {
  let response;
  try { response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body), signal }); } catch (problem) {
    throw signal.aborted ? problem : problem_of("The server cannot be reached. Is ingot serve running?");
  }
  if (!response.ok) {
    const error = (await response.json().catch(() => null))?.error;
    throw problem_of(error?.message || `The server answered with status ${response.status}.`, error?.code);
  }
  return read_events(response, turn, changed);
}

// Painted at most once a frame, and so that painting takes at most a fifth of the time, however long the answer is.
function painter(turn) {
  let waiting = false, not_before = 0;
  const work = () => {
    waiting = false;
    if (!runs.has(turn.id)) return; // painted for the last time
    const begun = performance.now();
    paint(turn, false);
    not_before = begun + 5 * (performance.now() - begun);
  };
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => requestAnimationFrame(work), Math.max(0, not_before - performance.now()));
  };
}

async function answer(question) {
  const chat = current, at = Date.now(), begun = performance.now(), controller = new AbortController();
  const turn = { id: store.id(), chat: chat.id, parent: question, role: "assistant", content: "", state: "running", at, beat: at };
  const body = request(question), draw = painter(turn); // of the settings and turns of now
  put_turn(turn);
  runs.set(turn.id, { turn, controller });
  leaf = chat.leaf = turn.id;
  chat.changed = at;
  save(chat, turn);
  $("spoken").replaceChildren(element("p", "", "Writing an answer."));
  show();
  const beat = setInterval(() => { turn.beat = Date.now(); save(chat, turn); }, SAVE_MS);
  try {
    const whole = await ask(await body, turn, controller.signal, () => {
      if ((turn.content || turn.thoughts) && !turn.first_ms) turn.first_ms = performance.now() - begun;
      draw();
    });
    turn.state = whole || turn.finish ? "done" : "lost";
  } catch (problem) {
    turn.state = controller.signal.aborted ? "stopped" : problem.told ? "error" : "lost";
    turn.error = problem.message;
    turn.code = problem.code;
  }
  clearInterval(beat);
  finish(chat, turn);
}

function finish(chat, turn) {
  if (turn.state === "error" || turn.state === "lost") connect();
  const near = near_end();
  paint(turn, true);
  runs.delete(turn.id);
  save(chat, turn);
  chats.sort(by_time);
  refresh_ends();
  show_chats();
  if (near) to_end();
  const end = ending(turn);
  say(end ? end.text : "The answer is complete.");
}

function stop() { running()?.controller.abort(); }

function send() {
  const content = $("input").value.trim(), at = Date.now();
  if (!content && !attached.length || opening || running()) return;
  if (!current) {
    current = { id: store.id(), title: content.slice(0, 80) || attached[0].name, changed: at, leaf: null };
    chats.unshift(current);
    history.pushState(null, "", "#" + current.id);
  }
  const turn = { id: store.id(), chat: current.id, parent: editing ? editing.turn.parent : leaf, role: "user", content, pictures: attached, at };
  put_turn(turn);
  save(current, turn);
  write("", []);
  stop_editing();
  answer(turn.id);
}

function edit(turn) {
  editing = { turn, draft: editing ? editing.draft : [$("input").value, attached] };
  $("editing").hidden = false;
  write(turn.content, turn.pictures || []);
  $("input").focus();
}
function stop_editing() {
  if (!editing) return;
  write(...editing.draft);
  editing = null;
  $("editing").hidden = true;
}

// ---- the server

let watch = 0;
function tell(state, text) { $("model").dataset.state = state; if ($("model").textContent !== text) $("model").textContent = text; }

async function connect() {
  clearTimeout(watch);
  watch = setTimeout(connect, await look());
}

// Returns the milliseconds after which to look again.
async function look() {
  try {
    const health = await fetch("health"), state = await health.json();
    if (health.status === 503 && state.status === "loading") tell("loading", `loading the model: ${Math.round(state.progress * 100)} %`);
    else if (!health.ok) tell("lost", state.status === "stopping" ? "the server is stopping" : "the server's device has failed: see its log");
    if (!health.ok) return 500;
    if (model && $("model").dataset.state === "ready") return WATCH_MS;
    const response = await fetch("v1/models", { headers: headers() });
    if (response.status === 401) { tell("lost", "a key is needed: Settings"); return WATCH_MS; }
    model = (await response.json()).data[0];
    $("attach").hidden = !sees();
    tell("ready", `${model.id} · ${model.meta.quantization} · context ${model.meta.context}`);
    document.title = model.id + " · ingot";
    refresh_ends();
    return WATCH_MS;
  } catch {
    tell("lost", "the server cannot be reached; trying again");
    return 2000;
  }
}

// ---- fields, keys and the drawer

function grow() {
  const field = $("input");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + "px";
}
function write(text, files) { $("input").value = text; attached = files; show_attached(); grow(); }

// ---- pictures

const sees = () => !!model?.meta.modalities.includes("image");

function show_attached() {
  $("attached").hidden = !attached.length;
  $("attached").replaceChildren(...pictures.list(attached, file => [button("Remove " + file.name, () => {
    attached = attached.filter(f => f !== file);
    show_attached();
    $("input").focus();
  }, "icon", "close")]));
}

// Checks one file and adds it to the message; throws what is wrong with it.
async function add_picture(file) {
  const picture = await pictures.check(file), sent = path(editing ? editing.turn.parent : leaf).flatMap(t => t.pictures || []);
  if (sent.length + attached.length >= pictures.MOST) throw new Error(`A conversation has at most ${pictures.MOST} pictures.`);
  if (pictures.bytes([...sent, ...attached, picture]) > model.meta.body_bytes - (64 << 10)) { // and some text
    throw new Error(`${picture.name}: with it the conversation has more bytes than the server takes, ${Math.floor(model.meta.body_bytes / (1 << 20))} MiB (ingot serve --max-body).`);
  }
  attached = [...attached, picture];
}

async function attach(files) {
  const refused = [];
  if (!sees()) { notice(model ? "This model has no eyes: it reads text, and no pictures." : "There is no model yet: try again in a moment."); return; }
  for (const file of [...files]) await add_picture(file).catch(problem => refused.push(problem.message));
  show_attached();
  if (refused.length) notice([...new Set(refused)].join(" "), { ms: 0 });
  if (wide.matches) $("input").focus();
}

const has_files = data => !!data && [...data.types].includes("Files");
function drop_over(e, over) {
  if (!has_files(e.dataTransfer)) return;
  e.preventDefault(); // else the browser leaves the page for the file
  $("drop").hidden = !over || !sees();
}
addEventListener("dragover", e => drop_over(e, true));
addEventListener("dragleave", e => drop_over(e, !!e.relatedTarget));
addEventListener("drop", e => { drop_over(e, false); if (has_files(e.dataTransfer)) attach(e.dataTransfer.files); });
addEventListener("paste", e => { // what has a text too is text: a cell of a table comes with its picture
  if (!e.clipboardData.files.length || e.clipboardData.types.includes("text/plain") || $("sheet").open) return;
  e.preventDefault();
  attach(e.clipboardData.files);
});
$("attach").onclick = () => $("files").click();
$("files").onchange = () => { attach($("files").files).then(() => { $("files").value = ""; }); };

function show_side() {
  $("side").classList.add("shown");
  $("menu").setAttribute("aria-expanded", "true");
  $("shade").hidden = false;
  document.querySelector("main").inert = true;
  $("hide").focus();
}
function hide_side() {
  if (!$("side").classList.contains("shown")) return;
  $("side").classList.remove("shown");
  $("menu").setAttribute("aria-expanded", "false");
  $("shade").hidden = true;
  document.querySelector("main").inert = false;
  $("menu").focus();
}

function fill_sheet() {
  ["system", "stops", "key"].forEach(id => { $(id).value = settings[id]; $(id).oninput = () => { settings[id] = $(id).value; store.keep_setting(settings); }; });
  $("knobs").replaceChildren(...KNOBS.map(([field, name, min, max, step]) => {
    const label = element("label"), input = element("input"), out = element("output");
    Object.assign(input, { type: "range", min, max, step, value: settings[field] });
    const told = () => { out.textContent = ["max_tokens", "seed"].includes(field) && !Number(input.value) ? (field === "seed" ? "random" : "full") : input.value; };
    input.oninput = () => { settings[field] = Number(input.value); told(); store.keep_setting(settings); };
    told();
    label.append(element("span", "", name), input, out);
    return label;
  }));
}

$("form").onsubmit = e => { e.preventDefault(); send(); };
$("input").onkeydown = e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing && wide.matches) { e.preventDefault(); send(); } // a phone has its button
  const last = e.key === "ArrowUp" && !$("input").value && !running() && path().findLast(t => t.role === "user");
  if (last) { e.preventDefault(); edit(last); }
};
$("input").oninput = grow;
$("cancel").onclick = () => { stop_editing(); $("input").focus(); };
$("stop").onclick = () => { stop(); $("input").focus(); };
$("skip").onclick = e => { e.preventDefault(); $("input").focus(); };
$("new").onclick = fresh;
$("forget").onclick = () => remove(chats.filter(c => !c.deleted));
$("menu").onclick = show_side;
$("hide").onclick = $("shade").onclick = hide_side;
$("newest").onclick = to_end;
$("talk").onscroll = () => { $("newest").hidden = near_end(); };
$("settings").onclick = () => { fill_sheet(); $("sheet").showModal(); };
$("close").onclick = () => $("sheet").close();
$("sheet").onclose = () => { model = null; connect(); $("input").focus(); };
$("reset").onclick = () => { Object.assign(settings, DEFAULTS); store.keep_setting(settings); fill_sheet(); };
addEventListener("keydown", e => {
  if (e.altKey && e.code === "KeyN") { e.preventDefault(); fresh(); }
  if (e.key !== "Escape" || $("sheet").open) return;
  if ($("side").classList.contains("shown")) hide_side();
  else if (running()) stop();
  else stop_editing();
});
addEventListener("popstate", () => open_chat(named()));
addEventListener("storage", e => { if (e.key === "ingot.settings") settings = store.setting(BASE); });
matchMedia("(max-width: 48rem)").onchange = hide_side;
if (window.visualViewport) visualViewport.onresize = () => { // a phone's keyboard takes its part of the height
  if (visualViewport.scale === 1) document.documentElement.style.setProperty("--height", visualViewport.height + "px");
};
setInterval(() => { if ([...boxes.keys()].some(id => turns.get(id).state === "running" && !runs.has(id))) refresh_ends(); }, GONE_MS);

async function begin() {
  try { await store.open(); } catch { /* told in the greeting */ }
  store.onchange(e => follow(e.chat));
  await load_chats();
  await open_chat(named());
  connect();
  if (wide.matches) $("input").focus();
}
begin();
