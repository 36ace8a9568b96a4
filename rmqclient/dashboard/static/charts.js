// Charts, drawn by uPlot: the history of the store, which the samples of live pages go on with. One crosshair for all
// charts of a page; marks say what was done meanwhile.
"use strict";
(async () => {
  const places = [...document.querySelectorAll("[data-chart]")];
  if (!places.length) return;
  const { base, count, clock, day, age } = window.rmq;
  const range = new URLSearchParams(location.search).get("range") ?? "10m";
  const group = document.querySelector("[data-group]")?.dataset.group ?? "";
  const isLive = range === "10m";
  const address = `${base}/history?${new URLSearchParams(group ? { range, group } : { range })}`;
  const EVERY_MS = { "10m": 15000, "1h": 20000 }[range] ?? 60000;
  const NAMES = ["published", "handled", "born", "lag", "oldest"];

  // --- what is drawn: columns by name, and marks

  let columns = { t: [] };
  let cells = { t: [], waited: [], ran: [] };
  let marks = [];
  let span = [0, 1];
  const add = (sample) => {
    if (columns.t.length && columns.t.at(-1) >= sample.t) return;
    columns.t.push(sample.t);
    for (const name of NAMES) columns[name].push(sample[name]);
    const width = span[1] - span[0];
    span = [sample.t - width, sample.t];
    while (columns.t[0] < span[0]) for (const name of ["t", ...NAMES]) columns[name].shift();
  };
  const read = async () => {
    const answer = await fetch(address).catch(() => null);
    if (!answer?.ok) return false;
    const known = await answer.json();
    columns = known.series;
    cells = { t: [...columns.t], waited: columns.waited ?? [], ran: columns.ran ?? [] };
    marks = known.marks;
    span = [known.since, known.until];
    for (const sample of known.samples) add(sample);
    return true;
  };

  // --- how it looks

  const colour = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const faded = (shade, share) => shade.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
  const WHOLE = [1, 2, 5, 10, 20, 50].flatMap((step) => [1, 100, 1e4, 1e6, 1e8].map((unit) => step * unit)).sort((one, other) => one - other);
  const BOUNDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
  const LABELLED = { 1: "1 ms", 4: "10 ms", 7: "100 ms", 10: "1 s", 13: "10 s", 15: "1 min" };
  const short = (value) => (value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString("en-US"));
  const axisTime = (at) => {
    const moment = new Date(at * 1000);
    return range === "7d" ? day(moment).slice(5) : range === "10m" ? clock(moment) : clock(moment).slice(0, 5);
  };
  const told = (at) => { const moment = new Date(at * 1000); return range === "7d" || range === "24h" ? `${day(moment).slice(5)} ${clock(moment).slice(0, 5)}` : clock(moment); };
  const SPARK = { published: "series-1", handled: "series-2", lag: "series-3", oldest: "series-5" };
  const LINES = {
    spark: ({ series }) => [[series, series, SPARK[series]]],
    rates: () => [["Published", "published", "series-1"], ["Handled", "handled", "series-2"], ["Dead letters", "born", "bad"]],
    lag: () => [["Lag", "lag", "series-3"]],
    heat: ({ series }) => [["p95", series, "series-1"]],
  };

  // A single burst is cut at the top rather than that it flattens all beside it; the legend has its number.
  const top = (values) => {
    const known = values.filter((value) => value > 0).sort((one, other) => one - other);
    if (!known.length) return 1;
    const most = known.at(-1);
    const usual = known[Math.floor(known.length * 0.95)];
    return Math.max((most > 6 * usual ? 2.5 * usual : most) * 1.1, 1);
  };

  // --- layers that uPlot has not: dead letters as red bars, histograms as cells, marks

  const bars = (shade) => (plot) => {
    const { ctx, bbox } = plot;
    const [times, values] = [plot.data[0], plot.data[3]];
    ctx.save();
    ctx.fillStyle = shade;
    const width = Math.max(2, (bbox.width / Math.max(times.length, 60)) * 0.7);
    for (const [number, value] of values.entries()) {
      if (!(value > 0)) continue;
      const x = plot.valToPos(times[number], "x", true);
      const y = Math.min(plot.valToPos(value, "y", true), bbox.top + bbox.height - 8 * devicePixelRatio);
      if (x >= bbox.left) ctx.fillRect(x - width / 2, y, width, bbox.top + bbox.height - y);
    }
    ctx.restore();
  };
  const heat = (name, shade) => (plot) => {
    const { ctx, bbox } = plot;
    const rows = cells[name];
    const most = Math.log1p(Math.max(1, ...rows.flat()));
    const step = Math.min(...cells.t.slice(1).map((at, number) => at - cells.t[number]).filter((width) => width > 1), (span[1] - span[0]) / 20);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [number, row] of rows.entries()) {
      const until = plot.valToPos(cells.t[number], "x", true);
      const from = plot.valToPos(Math.max(cells.t[number - 1] ?? 0, cells.t[number] - 3 * step), "x", true);
      for (const [at, value] of row.entries()) {
        if (!value) continue;
        const [y, end] = [plot.valToPos(at + 1, "y", true), plot.valToPos(at, "y", true)];
        ctx.fillStyle = faded(shade, (0.12 + 0.88 * Math.log1p(value) / most).toFixed(3));
        ctx.fillRect(from, y, Math.max(until - from - devicePixelRatio * 0.5, 1), end - y - devicePixelRatio * 0.5);
      }
    }
    ctx.restore();
  };
  const quantile = (row, part) => {
    const wanted = part * (row ?? []).reduce((sum, each) => sum + each, 0);
    if (!wanted) return null;
    let below = 0;
    for (const [at, value] of row.entries()) { below += value; if (below >= wanted) return BOUNDS[at] ?? BOUNDS.at(-1); }
    return null;
  };
  const lines = (shade) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = shade;
    ctx.fillStyle = shade;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { t } of marks) {
      const x = Math.round(plot.valToPos(t, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, 7);
      ctx.fill();
    }
    ctx.restore();
  };
  const tip = (plot) => {
    const place = plot.over.querySelector(".tip") ?? plot.over.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
    const near = plot.cursor.left < 0 ? [] : marks.filter(({ t }) => Math.abs(plot.valToPos(t, "x") - plot.cursor.left) < 6);
    place.hidden = !near.length;
    place.textContent = near.slice(-3).map(({ t, text }) => `${told(t)} ${text}`).join("\n");
    const right = plot.cursor.left > plot.over.clientWidth / 2;
    place.style.left = right ? "" : `${plot.cursor.left + 10}px`;
    place.style.right = right ? `${plot.over.clientWidth - plot.cursor.left + 10}px` : "";
  };

  // --- charts

  const heightOf = (place) => ({ spark: 40 })[place.dataset.chart] ?? (place.classList.contains("low") ? 150 : 230);
  const options = (place, drawn) => {
    const kind = place.dataset.chart;
    const spark = kind === "spark";
    const axis = { size: 26, gap: 5, stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const times = { ...axis, space: range === "10m" ? 80 : 60, values: (_plot, at) => at.map(axisTime) };
    const heights = kind === "heat"
      ? { ...axis, size: 50, splits: () => Object.keys(LABELLED).map(Number), values: (_plot, at) => at.map((number) => LABELLED[number]) }
      : { ...axis, size: 50, incrs: WHOLE, values: (_plot, values) => values.map(short) };
    const layers = kind === "rates" ? [bars(colour("bad"))] : kind === "heat" ? [heat(place.dataset.series, colour("series-1"))] : [];
    const y = kind === "heat" ? { range: [0, BOUNDS.length + 1] } : { range: (plot) => [0, top(plot.data.slice(1, 3).flat())] };
    const valued = {
      rates: (_plot, value, number) => `${count(value ?? columns[drawn[number - 1][1]].at(-1))}/s`,
      lag: (_plot, value) => count(value ?? columns.lag.at(-1)),
      heat: (plot) => age(quantile(cells[place.dataset.series][plot.cursor.idx ?? cells.t.length - 1], 0.95)),
    }[kind];
    return {
      width: place.clientWidth,
      height: heightOf(place),
      padding: spark ? [4, 0, 0, 0] : [10, 30, 0, 0],
      legend: { show: !spark },
      cursor: { show: !spark, y: false, drag: { x: false, y: false }, points: { show: kind !== "heat" }, sync: { key: "rmq", scales: ["x", null] } },
      scales: { x: { range: () => span }, y },
      axes: spark ? [{ show: false }, { show: false }] : [times, heights],
      hooks: spark ? {} : { draw: [...layers, lines(colour("soft"))], setCursor: [tip] },
      series: [
        { label: "", value: (_plot, at) => told(at ?? span[1]) },
        ...drawn.map(([label, name, tone]) => {
          const shade = colour(tone);
          const isLayer = kind === "heat" || name === "born";
          return { label, stroke: shade, width: isLayer ? 0 : 1.5, fill: isLayer ? undefined : faded(shade, spark || drawn.length === 1 ? 0.14 : 0.06), paths: isLayer ? () => null : undefined, points: { show: false }, value: valued };
        }),
      ],
    };
  };
  const data = (place, drawn) => (place.dataset.chart === "heat" ? [cells.t, cells.t.map(() => null)] : [columns.t, ...drawn.map(([, name]) => columns[name])]);
  let plots = [];
  const draw = () => {
    for (const { plot } of plots) plot.destroy();
    plots = places.map((place) => {
      const drawn = LINES[place.dataset.chart](place.dataset);
      return { place, drawn, plot: new uPlot(options(place, drawn), data(place, drawn), place) };
    });
  };
  const update = () => { for (const { place, drawn, plot } of plots) plot.setData(data(place, drawn)); };

  if (!(await read())) return;
  draw();
  document.addEventListener("rmq:sample", ({ detail }) => { if (isLive) { add(detail); update(); } });
  setInterval(async () => {
    if (!document.hidden && !window.rmq.isPaused() && await read()) update();
  }, EVERY_MS);
  document.addEventListener("rmq:theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => { for (const { plot, place } of plots) plot.setSize({ width: place.clientWidth, height: heightOf(place) }); }).observe(document.getElementById("main"));
})();
