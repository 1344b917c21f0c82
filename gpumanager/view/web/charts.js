"use strict";
// Small charts of the last minutes, as paths. One unit across is a second, one down a percent.
const charts = (() => {
  const { svg, mark } = look;
  const ACROSS = past.SECONDS;
  const GAP = 12;

  // Pieces between gaps: a look that is missing, or a value nobody told.
  function runs(times, values) {
    const newest = times[times.length - 1];
    const found = [];
    let run = null;
    let last = -Infinity;
    times.forEach((time, place) => {
      const value = values[place];
      if (value === null || value === undefined) { run = null; return; }
      if (run === null || time - last > GAP) found.push((run = []));
      run.push([ACROSS - (newest - time), value]);
      last = time;
    });
    return found;
  }

  const point = ([x, y], top) => `${x.toFixed(1)} ${(100 - (100 * Math.min(y, top)) / top).toFixed(1)}`;

  function line(times, values, top) {
    return runs(times, values).map((run) => `M${run.map((one) => point(one, top)).join("L")}`).join("");
  }

  function area(times, values, top) {
    return runs(times, values).map((run) => {
      const [first, last] = [run[0][0], run[run.length - 1][0]];
      return `M${first.toFixed(1)} 100L${run.map((one) => point(one, top)).join("L")}L${last.toFixed(1)} 100Z`;
    }).join("");
  }

  function frame(kind) {
    return svg("svg", { class: kind, viewBox: `0 0 ${ACROSS} 100`, preserveAspectRatio: "none", role: "img" });
  }

  const across = (kind, y) => svg("line", { class: kind, x1: 0, x2: ACROSS, y1: y, y2: y });

  // Shares of one container: what it got, what it was granted, what it may take.
  function spark() {
    const node = frame("spark");
    const parts = {
      area: svg("path", { class: "area" }), got: svg("path", { class: "got" }),
      ceiling: across("ceiling", 0), grant: across("grant", 0),
    };
    node.append(across("base", 100), parts.area, parts.ceiling, parts.grant, parts.got);
    return { node, ...parts };
  }

  function drawSpark(chart, times, values, granted, ceiling) {
    const most = Math.max(...values.filter((one) => one !== null), 0);
    const top = Math.min(100, Math.max(granted * 1.5, ceiling * 1.1, most * 1.1, 4));
    mark(chart.area, "d", area(times, values, top));
    mark(chart.got, "d", line(times, values, top));
    place(chart.grant, 100 - (100 * granted) / top);
    place(chart.ceiling, 100 - (100 * ceiling) / top);
    chart.ceiling.toggleAttribute("hidden", ceiling <= granted);
  }

  function place(node, y) {
    mark(node, "y1", y.toFixed(1));
    mark(node, "y2", y.toFixed(1));
  }

  // All shares of one GPU, one on top of the other.
  function stack() {
    const node = frame("stack");
    [0, 50, 100].forEach((y) => node.append(across("rule", y)));
    return { node, layers: new Map() };
  }

  function drawStack(chart, times, layers) {
    const wanted = new Set(layers.map((one) => one.key));
    for (const [key, path] of chart.layers) {
      if (!wanted.has(key)) { path.remove(); chart.layers.delete(key); }
    }
    let below = times.map(() => 0);
    for (const one of layers) {
      const above = below.map((value, at) => Math.min(100, value + (one.values[at] ?? 0)));
      let path = chart.layers.get(one.key);
      if (path === undefined) {
        chart.layers.set(one.key, (path = svg("path")));
        chart.node.append(path);
      }
      mark(path, "class", `${one.colour}${one.picked ? " picked" : ""}`);
      mark(path, "d", band(times, below, above));
      below = above;
    }
    return below;
  }

  function band(times, below, above) {
    const lower = runs(times, below);
    return runs(times, above).map((run, at) => {
      const back = [...lower[at]].reverse();
      return `M${run.map((one) => point(one, 100)).join("L")}L${back.map((one) => point(one, 100)).join("L")}Z`;
    }).join("");
  }

  return { spark, drawSpark, stack, drawStack };
})();
