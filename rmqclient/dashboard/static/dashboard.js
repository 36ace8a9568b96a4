// Live numbers, refreshed parts, times, tables, theme, copy buttons and keys. Values come as text and stay text.
"use strict";
(() => {
  const root = document.documentElement;
  const base = root.dataset.base;
  const main = document.getElementById("main");
  const pause = document.getElementById("pause");
  const said = document.getElementById("live-text");
  const veil = document.getElementById("veil");
  const REFRESH_EVERY = 2; // samples
  const group = document.querySelector("[data-group]")?.dataset.group;
  const LOST_AFTER_MS = 6000;
  let paused = sessionStorage.getItem("rmq-paused") === "1";
  let source = null;
  let heard = 0;
  let lost = 0;

  // --- numbers, written as rendering.py writes them

  const count = (number) => {
    if (number === null || number === undefined) return "–";
    const digits = !Number.isInteger(number) && Math.abs(number) < 10 ? 1 : 0;
    return number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  const age = (s) => {
    if (s === null || s === undefined) return "–";
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    if (s < 10) return `${s.toFixed(1)} s`;
    if (s < 60) return `${Math.round(s)} s`;
    for (const [length, unit, shorter, less] of UNITS) {
      if (s >= length) return `${Math.floor(s / length)} ${unit} ${Math.floor((s % length) / shorter)} ${less}`;
    }
    return "–";
  };
  const about = (s) => {
    for (const [length, unit] of UNITS) if (s >= length) return `${Math.floor(s / length)} ${unit}`;
    return `${Math.floor(s)} s`;
  };

  // --- times: one clock, that of the browser, whose zone stands beside them

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const clock = (moment) => moment.toLocaleTimeString("en-GB");
  const day = (moment) => `${moment.getFullYear()}-${String(moment.getMonth() + 1).padStart(2, "0")}-${String(moment.getDate()).padStart(2, "0")}`;
  const zoneAt = (moment) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(moment).find((part) => part.type === "timeZoneName").value;
  const away = (moment) => {
    const passed = (Date.now() - moment) / 1000;
    return passed >= 0 ? `${about(passed)} ago` : `in ${about(-passed)}`;
  };
  const setText = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
  const localize = (place) => {
    const moment = new Date(place.dateTime);
    const [text] = place.childNodes;
    const shown = day(moment) === day(new Date()) ? clock(moment) : `${day(moment)} ${clock(moment)}`;
    setText(text, `${shown} `);
    setText(place.querySelector("i"), zoneAt(moment));
    setText(place.querySelector("small"), away(moment));
    place.title = `${place.dateTime}, in ${zone}: ${day(moment)} ${clock(moment)}`;
  };
  const localizeAll = () => { for (const place of main.querySelectorAll("time[datetime]")) localize(place); };
  setText(document.getElementById("zone"), `Times: ${zone}`);
  setInterval(() => { if (!document.hidden) localizeAll(); }, 10000);

  // --- tables: cells that know their column, for narrow windows, and an order that a person chose

  const valueOf = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return text !== "" && !Number.isNaN(number) ? number : text === "–" || text === "" ? -1 : text.toLowerCase();
  };
  const compared = (one, other) => (typeof one === typeof other ? (one < other ? -1 : one > other ? 1 : 0) : typeof one === "number" ? -1 : 1);
  const nameOf = (table) => `rmq-order ${location.pathname} ${table.closest("[aria-label]")?.getAttribute("aria-label") ?? ""}`;
  const keyOf = (row) => row.id || row.querySelector("th, a")?.textContent || "";
  const held = new WeakMap(); // the order of rows under the pointer
  const arrange = (table) => {
    const body = table.tBodies[0];
    if (!body || !table.querySelector("button.order")) return;
    const chosen = JSON.parse(sessionStorage.getItem(nameOf(table)) ?? "null");
    const heads = [...table.tHead.rows[0].cells];
    for (const head of heads) if (head.querySelector(".order")) head.setAttribute("aria-sort", chosen && head.textContent === chosen.by ? chosen.down ? "descending" : "ascending" : "none");
    const rows = [...body.rows];
    const before = held.get(body);
    const at = heads.findIndex((head) => head.textContent === chosen?.by);
    let wanted = rows;
    if (before) {
      const place = (row) => { const found = before.indexOf(keyOf(row)); return found < 0 ? before.length : found; };
      wanted = rows.toSorted((one, other) => place(one) - place(other));
    } else if (at >= 0) {
      wanted = rows.toSorted((one, other) => compared(valueOf(one.cells[at]), valueOf(other.cells[at])) * (chosen.down ? -1 : 1));
    }
    if (wanted.some((row, number) => row !== rows[number])) body.append(...wanted);
  };
  const label = (table) => {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((head) => head.textContent.trim());
    for (const body of table.tBodies) for (const row of body.rows) for (const [number, cell] of [...row.cells].entries()) if (heads[number]) cell.dataset.label = heads[number];
  };
  const dress = () => {
    for (const table of main.querySelectorAll("table:not(.u-legend)")) { label(table); arrange(table); }
    localizeAll();
  };
  main.addEventListener("click", (event) => {
    const button = event.target.closest("button.order");
    if (!button) return;
    const table = button.closest("table");
    const chosen = JSON.parse(sessionStorage.getItem(nameOf(table)) ?? "null");
    const by = button.closest("th").textContent;
    const first = button.closest("th").classList.contains("n"); // numbers: the largest first
    sessionStorage.setItem(nameOf(table), JSON.stringify({ by, down: chosen?.by === by ? !chosen.down : first }));
    arrange(table);
  });
  main.addEventListener("pointerover", ({ target }) => {
    const body = target.closest("tbody");
    if (body && !held.has(body)) {
      held.set(body, [...body.rows].map(keyOf));
      body.addEventListener("pointerleave", () => { held.delete(body); arrange(body.parentElement); }, { once: true });
    }
    const cut = target.closest("a, th, td, h1, h2, code, b, .name");
    if (cut && !cut.title && (cut.scrollWidth > cut.clientWidth || cut.scrollHeight > cut.clientHeight + 4)) cut.title = cut.textContent.trim();
  });
  document.addEventListener("htmx:after:swap", dress);

  // --- events

  const show = (sample) => {
    for (const place of document.querySelectorAll("[data-live]")) {
      const value = sample[place.dataset.live];
      place.textContent = place.dataset.format === "age" ? age(value) : count(value);
      if (place.classList.contains("badge")) place.hidden = !value;
    }
    document.dispatchEvent(new CustomEvent("rmq:sample", { detail: sample }));
    heard += 1;
    pause.classList.remove("beat");
    requestAnimationFrame(() => pause.classList.add("beat"));
    if (heard % REFRESH_EVERY === 0) refresh();
  };

  // A person who selects text, or is in a field or a question of the part, keeps it.
  const refresh = () => {
    const part = document.getElementById("live");
    if (!part) return;
    const selected = document.getSelection();
    const reads = selected && !selected.isCollapsed && main.contains(selected.anchorNode);
    const writes = main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    const asked = main.querySelector("details[open].ask, dialog[open]");
    if (!reads && !writes && !asked) part.dispatchEvent(new Event("refresh"));
  };

  const cover = (text) => {
    root.classList.toggle("stale", Boolean(text));
    veil.hidden = !text;
    setText(veil, text);
  };
  let last = new Date();
  const listen = () => {
    if (source || paused || document.hidden) return;
    source = new EventSource(group ? `${base}/live?group=${encodeURIComponent(group)}` : `${base}/live`);
    source.onmessage = (event) => {
      clearTimeout(lost);
      lost = 0;
      last = new Date();
      cover("");
      tell();
      show(JSON.parse(event.data));
    };
    source.onerror = async () => {
      const ended = source.readyState === EventSource.CLOSED;
      tell("Connection lost");
      if (!lost) lost = setTimeout(() => cover(`No connection to the dashboard since ${clock(last)}. What you see is from then.`), LOST_AFTER_MS);
      if (!ended) return;
      source = null;
      const answer = await fetch(`${base}/live`, { method: "HEAD" }).catch(() => null);
      if (answer?.status === 401) {
        clearTimeout(lost);
        tell("Restarted");
        cover("This dashboard was restarted: open its new address, which it printed.");
        return;
      }
      if (answer?.status === 503) {
        clearTimeout(lost);
        tell("No live updates: 20 pages have them");
      }
      setTimeout(listen, answer?.status === 503 ? 30000 : 3000);
    };
  };
  const leave = () => { if (source) source.close(); source = null; clearTimeout(lost); lost = 0; };
  const tell = (problem) => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.classList.toggle("lost", Boolean(problem));
    setText(said, problem || (paused ? "Paused" : "Live"));
  };
  const setPaused = (to) => {
    paused = to;
    sessionStorage.setItem("rmq-paused", to ? "1" : "0");
    if (to) { leave(); cover(""); } else listen();
    tell();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", () => listen());
  pause.addEventListener("click", () => setPaused(!paused));

  // --- the drawer of narrow windows, theme, copy, choose all

  const menu = document.getElementById("menu");
  const setOpen = (to) => { menu.setAttribute("aria-expanded", String(to)); root.classList.toggle("open", to); };
  menu.addEventListener("click", () => setOpen(menu.getAttribute("aria-expanded") !== "true"));
  const turn = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("rmq-theme", root.dataset.theme);
    document.dispatchEvent(new Event("rmq:theme"));
  };
  document.getElementById("theme").addEventListener("click", turn);
  const decoded = (base64) => {
    const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const given = button.dataset.copy;
    const text = button.dataset.form === "base64" ? decoded(given) : given;
    navigator.clipboard?.writeText(text).then(() => {
      button.classList.add("done");
      button.setAttribute("aria-label", "Copied");
    });
  });
  document.addEventListener("change", (event) => {
    const all = event.target.dataset.all;
    if (all) for (const box of document.getElementsByName(all)) box.checked = event.target.checked;
  });

  // --- keys: / and Ctrl-K to the search, p to pause, t for the theme, Escape leaves the drawer and a question

  const search = document.getElementById("search");
  document.addEventListener("keydown", (event) => {
    const wanted = event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey;
    const writes = event.target.matches("input, select, textarea");
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !writes;
    if (wanted || (plain && event.key === "/")) {
      event.preventDefault();
      setOpen(true);
      search.focus();
      search.select();
    }
    if (event.key === "Escape") {
      setOpen(false);
      for (const open of document.querySelectorAll("details.ask[open]")) open.open = false;
    }
    if (plain && event.key === "p") setPaused(!paused);
    if (plain && event.key === "t") turn();
  });

  window.rmq = { count, age, clock, day, base, isPaused: () => paused };
  tell();
  dress();
  listen();
})();
