// markdown.js - an answer as Markdown. markdown-it parses; nodes are made here, from a list of elements, and text is set as text. No
// string ever becomes HTML (the policy asks for Trusted Types and grants none), and nothing is loaded: pictures are shown as links.
// Without markdown-it an answer is plain text.
const element = (tag, name, text) => {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
};

const markdown = (() => {
  const SLOW_MS = 150, MANY = 60000; // a block that takes longer to parse or has more tokens is made to be costly: it stays plain
  const STEP = 4096; // characters: a long text is parsed in steps that double, so that such a block is met while it is short
  const PLAIN = new Set(["p", "ul", "ol", "li", "blockquote", "thead", "tbody", "tr", "th", "td", "strong", "em", "s"]);
  const link_allowed = href => /^(https?:\/\/|mailto:)/i.test(href);
  const parser = globalThis.markdownit && markdownit({ html: false, linkify: true, breaks: true });
  if (parser) {
    parser.validateLink = link_allowed;
    parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  }

  function reached(box, name) { // by the keyboard, which scrolls it
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", name);
  }

  function code_block(language, text, copy) {
    const box = element("div", "code"), bar = element("div", "bar"), pre = element("pre"), button = element("button", "plain", "Copy");
    button.type = "button";
    button.setAttribute("aria-label", "Copy the code");
    button.onclick = () => copy(pre.textContent, button);
    bar.append(element("span", "", language), button);
    reached(pre, language ? language + " code" : "Code");
    pre.append(element("code", "", text));
    box.append(bar, pre);
    return box;
  }

  function link(href, text) {
    const a = element(link_allowed(href || "") ? "a" : "span", "", text);
    if (a.tagName === "A") Object.assign(a, { href, target: "_blank", rel: "noopener noreferrer", referrerPolicy: "no-referrer" });
    return a;
  }

  function table() {
    const box = element("div", "table");
    reached(box, "Table");
    box.append(element("table"));
    return box;
  }

  function opened(token) {
    const tag = token.tag;
    if (/^h[1-6]$/.test(tag)) return element("h" + Math.min(6, Number(tag[1]) + 2)); // below the page's own headings
    if (tag === "a") return link(token.attrGet("href"));
    const e = element(PLAIN.has(tag) ? tag : "span");
    if (tag === "ol" && token.attrGet("start") !== null) e.start = Number(token.attrGet("start"));
    const align = /^text-align:(left|right|center)$/.exec(token.attrGet("style") || "");
    if (align) e.style.textAlign = align[1];
    return e;
  }

  const leaf = (token, copy) => {
    switch (token.type) {
    case "code_inline": return element("code", "", token.content);
    case "fence": return code_block(token.info.trim().split(/\s+/)[0], token.content.replace(/\n$/, ""), copy);
    case "code_block": return code_block("", token.content.replace(/\n$/, ""), copy);
    case "softbreak": case "hardbreak": return element("br");
    case "hr": return element("hr");
    case "image": return link(token.attrGet("src"), token.content || token.attrGet("src"));
    default: return document.createTextNode(token.content);
    }
  };

  function build(tokens, into, copy) {
    const stack = [into];
    for (const token of tokens) {
      if (token.hidden) continue;
      if (token.nesting < 0) { stack.pop(); continue; }
      const top = stack[stack.length - 1];
      if (token.type === "inline") { build(token.children, top, copy); continue; }
      if (!token.nesting) { top.append(leaf(token, copy)); continue; }
      const e = token.tag === "table" ? table() : opened(token);
      top.append(e);
      stack.push(token.tag === "table" ? e.firstChild : e);
    }
  }

  function parsed(text, environment) { // null: too much comes of it, or it takes too long, twice, so that a busy machine is not why
    for (let i = 0; i < 2; i++) {
      const begun = performance.now(), tokens = parser.parse(text, environment);
      if (tokens.length > MANY) return null;
      if (performance.now() - begun < SLOW_MS) return tokens;
    }
    return null;
  }

  // Shows a text that grows at its end. All blocks but the last are settled and stay as they are, so that an update costs what the
  // last block does. settled(node) is called once for each; copy(text, button) serves the code blocks.
  function view(into, { copy, settled = () => {}, plain = !parser }) {
    let from = 0, shown = "", defines = false, live = []; // from: where the last block begins

    function set_plain(text) {
      const node = into.firstChild;
      into.classList.remove("rich");
      if (node && node === into.lastChild && node.nodeType === Node.TEXT_NODE && text.startsWith(node.data)) node.appendData(text.slice(node.length));
      else into.replaceChildren(text);
    }

    function grow_code(token) { // a code block that is being written keeps its place, its selection and its scrolling
      const code = live.length === 1 && live[0].className === "code" && live[0].querySelector("code");
      if (!code || live[0].querySelector(".bar span").textContent !== token.info.trim().split(/\s+/)[0]) return false;
      const text = token.content.replace(/\n$/, "");
      if (text.startsWith(code.textContent)) code.firstChild ? code.firstChild.appendData(text.slice(code.textContent.length)) : code.append(text);
      else code.textContent = text;
      return true;
    }

    function grow_list(fragment) { // so does a list: its items stay up to the first that differs
      const old = live[0], now = fragment.firstChild;
      if (!old || !now || !/^[UO]L$/.test(old.nodeName) || !old.cloneNode().isEqualNode(now.cloneNode())) return false;
      let same = old.firstChild;
      while (same && now.firstChild && same.isEqualNode(now.firstChild)) { now.firstChild.remove(); same = same.nextSibling; }
      while (same) { const next = same.nextSibling; same.remove(); same = next; }
      old.append(...now.childNodes);
      now.remove();
      return true;
    }

    function show(tail, done) {
      const environment = {}, tokens = parsed(tail, environment);
      if (!tokens) return false;
      if (tokens.length === 1 && tokens[0].type === "fence" && grow_code(tokens[0])) return true;
      const fragment = document.createDocumentFragment();
      build(tokens, fragment, copy);
      const kept = grow_list(fragment) ? live[0] : null;
      live.forEach(node => { if (node !== kept) node.remove(); });
      live = [...(kept ? [kept] : []), ...fragment.childNodes];
      into.append(fragment);
      defines = !!environment.references;
      if (!done && !defines && !tail.includes("\r")) settle(tokens.filter(t => t.level === 0 && t.nesting >= 0), tail); // \r alone is a line, too
      return true;
    }

    // What a line begins is known when the line is complete: 7 may become the list's next item.
    function settle(blocks, tail) {
      const n_lines = tail.split("\n").length - 1, last = blocks.findLastIndex(t => t.map && t.map[0] < n_lines);
      for (let line = last > 0 ? blocks[last].map[0] : 0; line > 0; line--) from = shown.indexOf("\n", from) + 1;
      if (last > 0) live.splice(0, last).forEach(settled);
    }

    function restart() {
      from = 0;
      live = [];
      into.replaceChildren();
    }

    function set_rich(text, done) {
      if (!text.startsWith(shown)) { shown = ""; restart(); }
      for (let n = Math.max(shown.length, from) + STEP; n < text.length; n += Math.max(STEP, n - from)) {
        shown = text.slice(0, n);
        if (!show(shown.slice(from), false)) return false;
      }
      shown = text;
      if (done && defines) restart(); // a definition may serve links that stand before it
      return show(text.slice(from), done);
    }

    return {
      set(text, done = false) {
        into.classList.toggle("rich", !plain);
        try { plain = plain || !set_rich(text, done); } catch { plain = true; }
        if (plain) set_plain(text);
        if (done) live.forEach(settled);
      },
    };
  }

  return { view, rich: !!parser };
})();
