// Charts: ten minutes of samples, drawn by uPlot. They begin with what the server kept and go on with its events.
"use strict";
(async () => {
  const places = [...document.querySelectorAll("[data-chart], [data-spark]")];
  if (!places.length) return;
  const KEPT = 600;
  const answer = await fetch(`${window.rmq.base}/samples`);
  const samples = answer.ok ? await answer.json() : [];
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const faded = (shade, share) => shade.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
  const SPARK = { in: "series-1", out: "series-2", lag: "series-3", oldest: "series-5", flight: "busy", dead: "bad" };

  // The five groups that are furthest behind now or were during these minutes.
  const furthest = () => {
    const most = {};
    for (const sample of samples) for (const [group, lag] of Object.entries(sample.groups)) most[group] = Math.max(most[group] || 0, lag);
    return Object.entries(most).sort((one, other) => other[1] - one[1]).slice(0, 5).map(([group]) => group);
  };
  const lines = (place) => {
    const { chart, spark, group } = place.dataset;
    if (spark) return [[spark, SPARK[spark], (sample) => sample[spark]]];
    if (chart === "rates") return [["in", "series-1", (sample) => sample.in], ["finished", "series-2", (sample) => sample.out]];
    const groups = chart === "lag" ? [group] : furthest();
    return groups.map((name, number) => [name, `series-${number + 1}`, (sample) => sample.groups[name] || 0]);
  };

  const WHOLE = [1, 2, 5, 10, 20, 50].flatMap((step) => [1, 100, 1e4, 1e6, 1e8].map((unit) => step * unit)).sort((one, other) => one - other);
  const clock = (at) => window.rmq.clock(new Date(at * 1000));
  const short = (value) => (value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString("en-US"));
  const heightOf = (place) => (place.dataset.spark ? 40 : place.classList.contains("low") ? 104 : 184);
  const options = (place, drawn) => {
    const spark = Boolean(place.dataset.spark);
    const axis = { size: 24, gap: 4, stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    return {
      width: place.clientWidth,
      height: heightOf(place),
      padding: spark ? [4, 0, 0, 0] : [8, 26, 0, 0],
      legend: { show: !spark },
      cursor: { show: !spark, y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: spark ? [{ show: false }, { show: false }] : [{ ...axis, space: 70, values: (_plot, at) => at.map(clock) }, { ...axis, size: 44, incrs: WHOLE, values: (_plot, values) => values.map(short) }],
      series: [
        { label: "at", value: (_plot, at) => (at ? clock(at) : "now") },
        ...drawn.map(([label, name]) => {
          const shade = colour(name);
          return { label, stroke: shade, width: 1.5, fill: faded(shade, spark || drawn.length === 1 ? 0.14 : 0.07), points: { show: false }, value: (plot, value, number) => window.rmq.count(value ?? plot.data[number].at(-1)) };
        }),
      ],
    };
  };

  const data = (drawn) => [samples.map((sample) => sample.t), ...drawn.map(([, , value]) => samples.map(value))];
  let plots = [];
  const draw = () => {
    for (const { plot } of plots) plot.destroy();
    plots = places.map((place) => {
      const drawn = lines(place);
      return { place, drawn, names: drawn.map(([name]) => name).join("\n"), plot: new uPlot(options(place, drawn), data(drawn), place) };
    });
  };
  const update = () => {
    for (const each of plots) {
      const drawn = lines(each.place);
      if (drawn.map(([name]) => name).join("\n") !== each.names) { draw(); return; }
      each.plot.setData(data(each.drawn));
    }
  };

  document.addEventListener("rmq:sample", ({ detail }) => {
    if (samples.length && samples[samples.length - 1].t >= detail.t) return;
    samples.push(detail);
    while (samples.length > KEPT) samples.shift();
    update();
  });
  document.addEventListener("rmq:theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => { for (const { plot, place } of plots) plot.setSize({ width: place.clientWidth, height: heightOf(place) }); }).observe(document.getElementById("main"));
  draw();
})();
