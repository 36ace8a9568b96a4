// Live numbers, refreshed parts, theme, copy buttons and keys. Values come as text and stay text.
"use strict";
(() => {
  const root = document.documentElement;
  const base = root.dataset.base;
  const pause = document.getElementById("pause");
  const said = document.getElementById("live-text");
  const REFRESH_EVERY = 2; // samples
  let paused = sessionStorage.getItem("rmq-paused") === "1";
  let source = null;
  let heard = 0;

  // --- numbers, written as rendering.py writes them

  const count = (number) => {
    if (number === null || number === undefined) return "–";
    const digits = !Number.isInteger(number) && Math.abs(number) < 10 ? 1 : 0;
    return number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  const age = (s) => {
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    if (s < 10) return `${s.toFixed(1)} s`;
    if (s < 60) return `${Math.round(s)} s`;
    for (const [length, unit, shorter, less] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
      if (s >= length) return `${Math.floor(s / length)} ${unit} ${Math.floor((s % length) / shorter)} ${less}`;
    }
    return "–";
  };
  window.rmq = { count, age, base };

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

  // A person who selects text, or is in a field of the part, keeps it.
  const refresh = () => {
    const part = document.getElementById("live");
    if (!part) return;
    const selected = document.getSelection();
    const reads = selected && !selected.isCollapsed && part.contains(selected.anchorNode);
    const writes = part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (!reads && !writes) part.dispatchEvent(new Event("refresh"));
  };

  const listen = () => {
    if (source || paused || document.hidden) return;
    source = new EventSource(`${base}/events`);
    source.onmessage = (event) => { tell(); show(JSON.parse(event.data)); };
    source.onerror = () => {
      const ended = source.readyState === EventSource.CLOSED;
      tell(ended ? "No live updates: 20 pages have them" : "Connection lost");
      if (ended) { source = null; setTimeout(listen, 30000); }
    };
  };
  const leave = () => { if (source) source.close(); source = null; };
  const tell = (problem) => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.classList.toggle("lost", Boolean(problem));
    const text = problem || (paused ? "Paused" : "Live");
    if (said.textContent !== text) said.textContent = text;
  };
  const setPaused = (to) => {
    paused = to;
    sessionStorage.setItem("rmq-paused", to ? "1" : "0");
    if (to) leave(); else listen();
    tell();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", () => listen());
  pause.addEventListener("click", () => setPaused(!paused));

  // --- theme, copy, choose all

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

  // --- keys: / to the first filter, p to pause, t for the theme

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const first = document.querySelector("[data-focus]");
    if (event.key === "/" && first) { event.preventDefault(); first.focus(); }
    if (event.key === "p") setPaused(!paused);
    if (event.key === "t") turn();
  });

  tell();
  listen();
})();
