"use strict";
// store.js - conversations, kept in this browser by IndexedDB.
//
// A turn is written under an id of its own and names its parent, so a conversation is a tree: an edited question and a second answer
// stand beside the first ones, and two tabs that write to one conversation cannot overwrite each other. Nothing but store.remove()
// takes turns away. Where the browser keeps no data (a private window, say) all of it lives until the tab is closed.
const store = (() => {
  const tables = ["chats", "turns"], memory = { chats: new Map(), turns: new Map() };
  const others = "BroadcastChannel" in window ? new BroadcastChannel("ingot") : { postMessage() {} };
  let base = null;

  const result = request => new Promise((yes, no) => { request.onsuccess = () => yes(request.result); request.onerror = () => no(request.error); });

  async function open() {
    const request = indexedDB.open("ingot", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("chats", { keyPath: "id" });
      request.result.createObjectStore("turns", { keyPath: "id" }).createIndex("chat", "chat");
    };
    base = await result(request);
  }

  // Runs work(chats, turns) in one transaction; rejects with the transaction's error, QuotaExceededError among them.
  function change(work) {
    return new Promise((yes, no) => {
      const t = base.transaction(tables, "readwrite");
      t.oncomplete = () => yes();
      t.onabort = () => no(t.error || new Error("aborted"));
      work(...tables.map(name => t.objectStore(name)));
    });
  }

  return {
    id: () => Date.now().toString(36) + "-" + [...crypto.getRandomValues(new Uint8Array(6))].map(b => b.toString(16).padStart(2, "0")).join(""),
    lasting: () => !!base,
    onchange: listener => { others.onmessage = e => listener(e.data); }, // what other tabs wrote: {chat}
    open,
    chats: () => base ? result(base.transaction("chats").objectStore("chats").getAll()) : Promise.resolve([...memory.chats.values()]),
    turns: chat => base ? result(base.transaction("turns").objectStore("turns").index("chat").getAll(chat))
      : Promise.resolve([...memory.turns.values()].filter(t => t.chat === chat)),
    async put(chat, ...turns) {
      if (base) await change((c, t) => { c.put(chat); turns.forEach(turn => t.put(turn)); });
      else { memory.chats.set(chat.id, chat); turns.forEach(turn => memory.turns.set(turn.id, turn)); }
      others.postMessage({ chat: chat.id });
    },
    async remove(ids) {
      if (base) await change((c, t) => ids.forEach(id => {
        c.delete(id);
        t.index("chat").openKeyCursor(id).onsuccess = e => { const at = e.target.result; if (at) { t.delete(at.primaryKey); at.continue(); } };
      }));
      else ids.forEach(id => { memory.chats.delete(id); memory.turns.forEach(turn => { if (turn.chat === id) memory.turns.delete(turn.id); }); });
    },
    setting(otherwise) { try { return { ...otherwise, ...JSON.parse(localStorage.getItem("ingot.settings")) }; } catch { return { ...otherwise }; } },
    keep_setting(value) { try { localStorage.setItem("ingot.settings", JSON.stringify(value)); } catch { /* kept in this tab */ } },
  };
})();
